// How a new snapshot takes the place of an old one. Invariants that hold after a kill at any
// instruction: nn/snapshot.h.
//
// The new snapshot grows in DIR.memtape-tmp, is synced, and then changes places with DIR in one
// call where the system has one; elsewhere DIR is moved to DIR.memtape-old, then the new one to
// DIR. A writer locks DIR.memtape-tmp, and the system drops the lock of a dead one, so nobody has
// to guess from process numbers.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // flock, syscall
#endif
#include "nn/snapshot_int.h"

#include "nn/safetensors.h"

#include <errno.h>
#include <fcntl.h>
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

enum { PATH_BYTES = SNAPSHOT_PATH_BYTES, ATTEMPTS = 10 };

static const char *const file_names[SNAPSHOT_FILES] = {
    [SNAPSHOT_MODEL] = "model.safetensors",
    [SNAPSHOT_OPTIMIZER] = "optimizer.safetensors",
};

const char *snapshot_file_name(enum snapshot_file f)
{
    return file_names[f];
}

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

// ---- reading ----------------------------------------------------------------------------

// A writer between its two renames, or dead there, has moved the snapshot aside.
bool snapshot_path(const char *dir, enum snapshot_file f, char out[PATH_BYTES], struct error *e)
{
    const char *file = file_names[f];
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

// ---- directories -----------------------------------------------------------------------

static bool is_ours(const char *name)
{
    bool is_file = false;
    for (int i = 0; i < SNAPSHOT_FILES; i++)
        is_file |= strcmp(name, file_names[i]) == 0;
    return is_file || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
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
    for (int i = 0; i < SNAPSHOT_FILES; i++)
        if (join(path, dir, "/", file_names[i], NULL))
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

static bool write_files(struct writer *w, snapshot_write_fn *write, const void *user)
{
    char path[PATH_BYTES];
    for (int i = 0; i < SNAPSHOT_FILES; i++)
        if (!join(path, w->temporary, "/", file_names[i], w->e) ||
            !write((enum snapshot_file)i, path, user, w->e))
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

bool snapshot_replace(const char *dir, snapshot_write_fn *write, const void *user, struct error *e)
{
    char above[PATH_BYTES];
    struct writer w;
    w.new_fd = w.old_fd = -1;
    w.e = e;
    bool begun = name_places(&w, dir) && make_parents(w.dir, e) && begin_temporary(&w);
    bool ok = begun && look_at_old(&w) && write_files(&w, write, user) && put_in_place(&w);
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
