#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // flock, syscall
#endif
#include "nn/snapshot.h"

#include "nn/safetensors.h"
#include "tape/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#else
#include <dirent.h>
#endif

enum { PATH_BYTES = 4096, ATTEMPTS = 10 };

static const char model_file[] = "model.safetensors";
static const char optimizer_file[] = "optimizer.safetensors";
static const char format_name[] = "memtape";
static const char format_version[] = "1";

static bool fail_path(struct error *e, const char *path, const char *doing, const char *why)
{
    char shown[SAFETENSORS_SHOWN_BYTES];
    return refuse(e,
                  "snapshot '%s': cannot %s: %s; expected a place that can be written, try another",
                  safetensors_shown(path, shown), doing, why);
}

static bool join(char out[PATH_BYTES], const char *a, const char *b, const char *c, struct error *e)
{
    int bytes = snprintf(out, PATH_BYTES, "%s%s%s", a, b, c);
    return (bytes >= 0 && bytes < PATH_BYTES) || fail_path(e, a, "use it", "its path is too long");
}

// ---- what the files hold ---------------------------------------------------------------

static struct safetensors_entry entry_of(const struct param *p, const char *suffix,
                                         const struct tensor *x, const real *data)
{
    CHECK(tensor_is_contiguous(x));
    return (struct safetensors_entry){.name = data != NULL ? p->name : NULL,
                                      .suffix = suffix,
                                      .dtype = DTYPE_REAL,
                                      .dim_count = x->dim_count,
                                      .dim = x->dim,
                                      .data = data};
}

static struct safetensors_entry weight_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i];
    return entry_of(p, NULL, &p->tensor, p->tensor.data);
}

static struct safetensors_entry gradient_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i];
    return entry_of(p, NULL, &p->tensor, p->tensor.grad);
}

static struct safetensors_entry moment_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i / 2];
    const struct tensor *x = i % 2 == 0 ? &p->m : &p->v;
    return entry_of(p, i % 2 == 0 ? ".m" : ".v", &p->tensor, x->data);
}

static const struct {
    const char *name;
    size_t offset;
} sizes[] = {
    {"layers", offsetof(struct gpt_config, layers)},
    {"heads", offsetof(struct gpt_config, heads)},
    {"width", offsetof(struct gpt_config, width)},
    {"context", offsetof(struct gpt_config, context)},
    {"vocab", offsetof(struct gpt_config, vocab)},
};

static int64_t *size_field(struct gpt_config *c, int i)
{
    return (int64_t *)((char *)c + sizes[i].offset);
}

static int64_t size_value(const struct gpt_config *c, int i)
{
    return *(const int64_t *)((const char *)c + sizes[i].offset);
}

static const char *yes_no(bool b)
{
    return b ? "true" : "false";
}

static bool write_model(const char *path, const struct snapshot_info *info,
                        const struct param_list *params, struct error *e)
{
    char step[TEXT_NUMBER_BYTES], dropout[TEXT_NUMBER_BYTES];
    char size[COUNT_OF(sizes)][TEXT_NUMBER_BYTES];
    const struct gpt_config *c = &info->model;
    snprintf(step, sizeof(step), "%" PRId64, info->step);
    enum { PLAIN = 10, ALL = PLAIN + COUNT_OF(sizes) };
    struct safetensors_pair pair[ALL] = {
        {"format", format_name},
        {"version", format_version},
        {"step", step},
        {"dtype", dtype_name(DTYPE_REAL)},
        {"bias", yes_no(c->bias)},
        {"tie", yes_no(c->tie)},
        {"dropout", text_from_double(c->dropout, dropout)},
        {"attention", gpt_attention_name(c->attention)},
        {"checkpoint", tape_policy_name(c->checkpoint)},
        {"tokenizer", info->tokenizer},
    };
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        snprintf(size[i], sizeof(size[i]), "%" PRId64, size_value(c, i));
        pair[PLAIN + i] = (struct safetensors_pair){sizes[i].name, size[i]};
    }
    return safetensors_write(path, weight_entry, params, params->count, pair, ALL, e);
}

static bool write_optimizer(const char *path, const struct snapshot_info *info,
                            const struct param_list *params, struct error *e)
{
    char step[TEXT_NUMBER_BYTES];
    snprintf(step, sizeof(step), "%" PRId64, info->step);
    const struct safetensors_pair pair[] = {
        {"format", format_name},
        {"version", format_version},
        {"step", step},
        {"optimizer", info->optimizer},
    };
    return safetensors_write(path, moment_entry, params, 2 * (int64_t)params->count, pair,
                             COUNT_OF(pair), e);
}

bool snapshot_write_gradients(const char *path, const struct param_list *params, struct error *e)
{
    const struct safetensors_pair pair[] = {{"format", format_name}, {"holds", "gradients"}};
    return safetensors_write(path, gradient_entry, params, params->count, pair, COUNT_OF(pair), e);
}

// ---- directories -----------------------------------------------------------------------

static bool is_ours(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, model_file) == 0 ||
           strcmp(name, optimizer_file) == 0;
}

#ifdef __linux__

// opendir() allocates. d_name is where the kernel puts it; see getdents64(2).
static bool holds_other(int fd, char name[SAFETENSORS_SHOWN_BYTES])
{
    enum { LENGTH_AT = 16, NAME_AT = 19 };
    char entries[4096];
    long bytes;
    while ((bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0) {
        uint16_t length;
        for (long at = 0; at < bytes; at += length) {
            memcpy(&length, entries + at + LENGTH_AT, sizeof(length));
            if (is_ours(entries + at + NAME_AT))
                continue;
            safetensors_shown(entries + at + NAME_AT, name);
            return true;
        }
    }
    if (bytes < 0)
        safetensors_shown(strerror(errno), name);
    return bytes < 0;
}

#else

static bool holds_other(int fd, char name[SAFETENSORS_SHOWN_BYTES])
{
    DIR *d = fdopendir(dup(fd));
    bool other = d == NULL;
    if (other)
        safetensors_shown(strerror(errno), name);
    for (struct dirent *x; !other && (x = readdir(d)) != NULL;) {
        other = !is_ours(x->d_name);
        if (other)
            safetensors_shown(x->d_name, name);
    }
    if (d != NULL)
        closedir(d);
    return other;
}

#endif

// Both names change places in one step. False with ENOTSUP where there is no such call.
static bool exchange(const char *a, const char *b)
{
#if defined(__linux__) && defined(SYS_renameat2)
    enum { EXCHANGE = 1 << 1 };
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, EXCHANGE) == 0;
#elif defined(__APPLE__)
    return renamex_np(a, b, RENAME_SWAP) == 0;
#else
    (void)a;
    (void)b;
    errno = ENOTSUP;
    return false;
#endif
}

// What a directory's name means after a power cut. Some file systems cannot; they do not promise
// it.
static void sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static void parent_of(const char *path, char out[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t bytes = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(out, slash == NULL ? "." : path, bytes == 0 ? 1 : bytes);
    out[bytes == 0 ? 1 : bytes] = 0;
}

static bool make_parents(const char *path, struct error *e)
{
    char above[PATH_BYTES];
    parent_of(path, above);
    for (char *at = above + 1;; at++) {
        if (*at != '/' && *at != 0)
            continue;
        char c = *at;
        struct stat status;
        *at = 0;
        if (mkdir(above, 0777) != 0 && (stat(above, &status) != 0 || !S_ISDIR(status.st_mode)))
            return fail_path(e, above, "create this directory", strerror(errno));
        *at = c;
        if (c == 0)
            return true;
    }
}

// Our two files and the directory, whichever are there. False with errno if it stays.
static bool remove_snapshot(const char *dir)
{
    char path[PATH_BYTES];
    static const char *const file[] = {model_file, optimizer_file};
    for (int i = 0; i < COUNT_OF(file); i++)
        if (join(path, dir, "/", file[i], NULL))
            unlink(path);
    return rmdir(dir) == 0 || errno == ENOENT;
}

// ---- writing ---------------------------------------------------------------------------

struct writer {
    char dir[PATH_BYTES], temporary[PATH_BYTES], old[PATH_BYTES];
    int new_fd, old_fd; // locked directories, or -1
    struct error *e;
};

static bool is_same(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

// Opens and locks. -1: refused. A file system without locks gets none.
static int lock_directory(const struct writer *w, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int number = errno;
        fail_path(w->e, path, "replace it", strerror(number));
        errno = number;
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        fail_path(w->e, path, "write it", "another process is writing this snapshot");
        close(fd);
        errno = EWOULDBLOCK;
        return -1;
    }
    return fd;
}

// Makes the temporary directory and locks it. One that is there and not locked was left by a dead
// writer. Between opening and locking another writer may remove it: then again.
static bool begin_temporary(struct writer *w)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        bool made = mkdir(w->temporary, 0777) == 0;
        if (!made && errno != EEXIST)
            return fail_path(w->e, w->temporary, "create it", strerror(errno));
        w->new_fd = lock_directory(w, w->temporary);
        if (w->new_fd < 0 && errno == ENOENT)
            continue;
        if (w->new_fd < 0)
            return false;
        if (made && is_same(w->new_fd, w->temporary))
            return true;
        if (!made && is_same(w->new_fd, w->temporary) && !remove_snapshot(w->temporary))
            return fail_path(w->e, w->temporary, "remove it", strerror(errno));
        close(w->new_fd);
        w->new_fd = -1;
    }
    return fail_path(w->e, w->temporary, "create it", "another process keeps removing it");
}

// Whatever stands at dir is replaced only if it is a snapshot, or an empty directory.
static bool look_at_old(struct writer *w)
{
    struct stat status;
    char why[SAFETENSORS_SHOWN_BYTES + 64], name[SAFETENSORS_SHOWN_BYTES];
    if (lstat(w->dir, &status) != 0)
        return errno == ENOENT || fail_path(w->e, w->dir, "write it", strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return fail_path(w->e, w->dir, "replace it",
                         S_ISLNK(status.st_mode) ? "it is a link" : "it is no directory");
    w->old_fd = lock_directory(w, w->dir);
    if (w->old_fd < 0)
        return false;
    if (!holds_other(w->old_fd, name))
        return true;
    snprintf(why, sizeof(why), "it holds '%s', which is no part of a snapshot", name);
    return fail_path(w->e, w->dir, "replace it", why);
}

static bool write_files(struct writer *w, const struct snapshot_info *info,
                        const struct param_list *params)
{
    char path[PATH_BYTES];
    if (!join(path, w->temporary, "/", model_file, w->e) ||
        !write_model(path, info, params, w->e) ||
        !join(path, w->temporary, "/", optimizer_file, w->e) ||
        !write_optimizer(path, info, params, w->e))
        return false;
    if (fsync(w->new_fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        return fail_path(w->e, w->temporary, "sync it", strerror(errno));
    return true;
}

// The moment when new replaces old. After the first of the two renames a reader finds the one that
// was moved aside.
static bool put_in_place(struct writer *w)
{
    if (w->old_fd < 0) {
        if (rename(w->temporary, w->dir) == 0)
            return true;
        return fail_path(w->e, w->dir, "put the new one in place", strerror(errno));
    }
    if (exchange(w->temporary, w->dir))
        return true;
    remove_snapshot(w->old);
    if (rename(w->dir, w->old) != 0)
        return fail_path(w->e, w->dir, "move the old one away", strerror(errno));
    if (rename(w->temporary, w->dir) == 0)
        return true;
    int number = errno;
    rename(w->old, w->dir);
    return fail_path(w->e, w->dir, "put the new one in place", strerror(number));
}

static bool name_places(struct writer *w, const char *dir)
{
    if (!join(w->dir, dir, "", "", w->e))
        return false;
    size_t bytes = strlen(w->dir);
    while (bytes > 1 && w->dir[bytes - 1] == '/')
        w->dir[--bytes] = 0;
    const char *slash = strrchr(w->dir, '/'), *last = slash != NULL ? slash + 1 : w->dir;
    if (last[0] == 0 || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return fail_path(w->e, dir, "write it", "it must be a directory of its own with a name");
    return join(w->temporary, w->dir, ".memtape-tmp", "", w->e) &&
           join(w->old, w->dir, ".memtape-old", "", w->e);
}

bool snapshot_write(const char *dir, const struct snapshot_info *info,
                    const struct param_list *params, struct error *e)
{
    char above[PATH_BYTES];
    struct writer w;
    w.new_fd = w.old_fd = -1;
    w.e = e;
    bool begun = name_places(&w, dir) && make_parents(w.dir, e) && begin_temporary(&w);
    bool ok = begun && look_at_old(&w) && write_files(&w, info, params) && put_in_place(&w);
    if (ok) {
        parent_of(w.dir, above);
        sync_directory(above);
        remove_snapshot(w.old);
    }
    if (begun)
        remove_snapshot(w.temporary); // after an exchange: what was dir before
    if (w.new_fd >= 0)
        close(w.new_fd);
    if (w.old_fd >= 0)
        close(w.old_fd);
    return ok;
}

// ---- reading ---------------------------------------------------------------------------

// A writer between its two renames, or dead there, has moved the snapshot aside.
static bool path_in(char out[PATH_BYTES], const char *dir, const char *file, struct error *e)
{
    char name[PATH_BYTES];
    if (!join(name, dir, "", "", e))
        return false;
    for (size_t bytes = strlen(name); bytes > 1 && name[bytes - 1] == '/'; bytes--)
        name[bytes - 1] = 0;
    struct stat status;
    bool moved = stat(name, &status) != 0 && errno == ENOENT;
    return join(out, name, moved ? ".memtape-old/" : "/", file, e) &&
           (!moved || stat(out, &status) == 0 || join(out, name, "/", file, e));
}

static bool fail_value(const struct safetensors *f, const char *key, const char *value,
                       const char *expected, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], shown[SAFETENSORS_SHOWN_BYTES];
    return refuse(e, "'%s': metadata %s: got %s%s%s, expected %s", safetensors_shown(f->path, path),
                  key, value != NULL ? "'" : "",
                  value != NULL ? safetensors_shown(value, shown) : "none",
                  value != NULL ? "'" : "", expected);
}

static bool get_int(const struct safetensors *f, const char *key, int64_t *v, struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    if (value != NULL && text_to_int64(value, v) && *v >= 0)
        return true;
    return fail_value(f, key, value, "a whole number of at least 0", e);
}

static bool get_bool(const struct safetensors *f, const char *key, bool *v, struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    *v = value != NULL && strcmp(value, "true") == 0;
    if (*v || (value != NULL && strcmp(value, "false") == 0))
        return true;
    return fail_value(f, key, value, "true or false", e);
}

static bool get_text(const struct safetensors *f, const char *key, char *out, size_t bytes,
                     struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    if (value == NULL || strlen(value) >= bytes)
        return fail_value(f, key, value, "a text that is not longer than ours", e);
    memcpy(out, value, strlen(value) + 1);
    return true;
}

static bool get_config(const struct safetensors *f, struct gpt_config *c, struct error *e)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (!get_int(f, sizes[i].name, size_field(c, i), e))
            return false;
    if (!get_bool(f, "bias", &c->bias, e) || !get_bool(f, "tie", &c->tie, e))
        return false;
    const char *value = safetensors_metadata(f, "dropout");
    if (value == NULL || !text_to_double(value, &c->dropout))
        return fail_value(f, "dropout", value, "a number", e);
    int a = 0, p = 0;
    value = safetensors_metadata(f, "attention");
    while (a < GPT_ATTENTION_COUNT && value != NULL &&
           strcmp(value, gpt_attention_name((enum gpt_attention)a)) != 0)
        a++;
    if (value == NULL || a == GPT_ATTENTION_COUNT)
        return fail_value(f, "attention", value, "naive or tiled", e);
    value = safetensors_metadata(f, "checkpoint");
    while (p < POLICY_COUNT && value != NULL &&
           strcmp(value, tape_policy_name((enum tape_policy)p)) != 0)
        p++;
    if (value == NULL || p == POLICY_COUNT)
        return fail_value(f, "checkpoint", value, "the name of a policy", e);
    c->attention = (enum gpt_attention)a;
    c->checkpoint = (enum tape_policy)p;
    return true;
}

static bool check_config(const struct safetensors *f, const struct gpt_config *c, struct error *e)
{
    struct error inner;
    char path[SAFETENSORS_SHOWN_BYTES];
    if (gpt_config_check(c, &inner))
        return true;
    return refuse(e, "'%s': %.600s", safetensors_shown(f->path, path), inner.text);
}

static bool open_part(struct safetensors *f, const char *dir, const char *file, struct error *e)
{
    char path[PATH_BYTES];
    if (!path_in(path, dir, file, e) || !safetensors_open(f, path, e))
        return false;
    const char *format = safetensors_metadata(f, "format");
    const char *version = safetensors_metadata(f, "version");
    bool ok = true;
    if (format == NULL || strcmp(format, format_name) != 0)
        ok = fail_value(f, "format", format, "memtape", e);
    else if (version == NULL || strcmp(version, format_version) != 0)
        ok = fail_value(f, "version", version, "1: try a newer memtape", e);
    if (!ok)
        safetensors_close(f);
    return ok;
}

static bool check_step(const struct safetensors *f, int64_t expected, struct error *e)
{
    int64_t step;
    char path[SAFETENSORS_SHOWN_BYTES];
    if (!get_int(f, "step", &step, e))
        return false;
    if (step == expected)
        return true;
    return refuse(e, "'%s': is of step %" PRId64 ", expected %" PRId64 ", the model's",
                  safetensors_shown(f->path, path), step, expected);
}

static bool read_optimizer_info(const char *dir, struct snapshot_info *info, struct error *e)
{
    struct safetensors f;
    char path[PATH_BYTES];
    struct stat status;
    if (!path_in(path, dir, optimizer_file, e))
        return false;
    if (stat(path, &status) != 0 && errno == ENOENT)
        return true;
    if (!open_part(&f, dir, optimizer_file, e))
        return false;
    bool ok = check_step(&f, info->step, e) &&
              get_text(&f, "optimizer", info->optimizer, sizeof(info->optimizer), e);
    safetensors_close(&f);
    return ok;
}

bool snapshot_read_info(const char *dir, struct snapshot_info *info, struct error *e)
{
    struct safetensors f;
    *info = (struct snapshot_info){.step = 0};
    if (!open_part(&f, dir, model_file, e))
        return false;
    bool ok = get_int(&f, "step", &info->step, e) && get_config(&f, &info->model, e) &&
              check_config(&f, &info->model, e) &&
              get_text(&f, "tokenizer", info->tokenizer, sizeof(info->tokenizer), e);
    safetensors_close(&f);
    return ok && read_optimizer_info(dir, info, e);
}

// ---- tensors ---------------------------------------------------------------------------

static bool check_tensor(const struct safetensors *f, const struct safetensors_entry *x,
                         const struct safetensors_tensor **found, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], got[SAFETENSORS_SHOWN_BYTES], want[SAFETENSORS_SHOWN_BYTES];
    char name[PARAM_NAME_BYTES + 8];
    snprintf(name, sizeof(name), "%s%s", x->name, x->suffix != NULL ? x->suffix : "");
    const struct safetensors_tensor *t = *found = safetensors_find(f, name);
    safetensors_shown(f->path, path);
    safetensors_shape_text(x->dim_count, x->dim, want);
    if (t == NULL)
        return refuse(e, "'%s': tensor '%s': got none, expected shape %s", path, name, want);
    bool same = t->dim_count == x->dim_count;
    for (int i = 0; same && i < x->dim_count; i++)
        same = t->dim[i] == x->dim[i];
    if (!same)
        return refuse(e, "'%s': tensor '%s': got shape %s, expected %s", path, name,
                      safetensors_shape_text(t->dim_count, t->dim, got), want);
    if (t->dtype == DTYPE_F32 || t->dtype == DTYPE_F64)
        return true;
    return refuse(e, "'%s': tensor '%s': got dtype %s, expected f32 or f64", path, name,
                  dtype_name(t->dtype));
}

static bool is_expected(const char *name, safetensors_entry_fn *entry, const void *user,
                        int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        const char *suffix = x.suffix != NULL ? x.suffix : "";
        if (x.name == NULL || strncmp(name, x.name, strlen(x.name)) != 0)
            continue;
        if (strcmp(name + strlen(x.name), suffix) == 0)
            return true;
    }
    return false;
}

// More tensors than the model has: name one.
static bool fail_unknown(const struct safetensors *f, safetensors_entry_fn *entry, const void *user,
                         int64_t count, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], name[SAFETENSORS_SHOWN_BYTES];
    int64_t i = 0;
    while (i + 1 < f->tensor_count && is_expected(f->tensor[i].name, entry, user, count))
        i++;
    return refuse(e, "'%s': tensor '%s': got one, expected none in this model",
                  safetensors_shown(f->path, path), safetensors_shown(f->tensor[i].name, name));
}

// Every tensor is checked before the first is read.
static bool read_tensors(const struct safetensors *f, safetensors_entry_fn *entry, const void *user,
                         int64_t count, struct error *e)
{
    const struct safetensors_tensor *t;
    int64_t expected = 0;
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        if (x.name != NULL && !check_tensor(f, &x, &t, e))
            return false;
        expected += x.name != NULL;
    }
    if (expected != f->tensor_count)
        return fail_unknown(f, entry, user, count, e);
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        if (x.name != NULL &&
            (!check_tensor(f, &x, &t, e) || !safetensors_read(f, t, (real *)x.data, e)))
            return false;
    }
    return true;
}

bool snapshot_read_weights(const char *dir, struct param_list *params, struct error *e)
{
    struct safetensors f;
    if (!open_part(&f, dir, model_file, e))
        return false;
    bool ok = read_tensors(&f, weight_entry, params, params->count, e);
    safetensors_close(&f);
    return ok;
}

bool snapshot_read_optimizer(const char *dir, struct param_list *params, int64_t step,
                             const char *optimizer, struct error *e)
{
    struct safetensors f;
    if (!open_part(&f, dir, optimizer_file, e))
        return false;
    const char *name = safetensors_metadata(&f, "optimizer");
    bool ok = check_step(&f, step, e);
    if (ok && (name == NULL || strcmp(name, optimizer) != 0))
        ok = fail_value(&f, "optimizer", name, optimizer, e);
    ok = ok && read_tensors(&f, moment_entry, params, 2 * (int64_t)params->count, e);
    safetensors_close(&f);
    return ok;
}

bool snapshot_same_model(const struct gpt_config *a, const struct gpt_config *b, struct error *e)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (size_value(a, i) != size_value(b, i))
            return refuse(e,
                          "%s: got %" PRId64 " in the snapshot, expected %" PRId64 " as asked for",
                          sizes[i].name, size_value(a, i), size_value(b, i));
    if (a->bias != b->bias)
        return refuse(e, "bias: got %s in the snapshot, expected %s as asked for", yes_no(a->bias),
                      yes_no(b->bias));
    if (a->tie != b->tie)
        return refuse(e, "tie: got %s in the snapshot, expected %s as asked for", yes_no(a->tie),
                      yes_no(b->tie));
    return true;
}
