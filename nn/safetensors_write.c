#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // pread, fsync
#endif
#include "nn/safetensors_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sink {
    const char *path;
    int fd; // -1: only count
    int64_t total_bytes;
    int64_t used;
    char chunk[SAFETENSORS_CHUNK_BYTES];
    struct error *e;
};

static bool fail_write(const struct sink *s, const char *doing, int number)
{
    char path[SAFETENSORS_SHOWN_BYTES];
    return refuse(s->e, "'%s': cannot %s after %" PRId64 " bytes: %s; expected %s",
                  safetensors_shown(s->path, path), doing, s->total_bytes, strerror(number),
                  number == ENOSPC || number == EDQUOT || number == EFBIG
                      ? "room for the whole file: free some, or try another place"
                      : "a place that can be written: try another");
}

static bool write_all(struct sink *s, const void *bytes, int64_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t n = write(
            s->fd, at,
            (size_t)(count < SAFETENSORS_TRANSFER_BYTES ? count : SAFETENSORS_TRANSFER_BYTES));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(s, "write", n < 0 ? errno : EIO);
        at += n;
        count -= n;
        s->total_bytes += n;
    }
    return true;
}

static bool sink_flush(struct sink *s)
{
    int64_t count = s->used;
    s->used = 0;
    if (s->fd >= 0)
        return write_all(s, s->chunk, count);
    s->total_bytes += count;
    return true;
}

static bool put(struct sink *s, const char *text, int64_t count)
{
    while (count > 0) {
        if (s->used == SAFETENSORS_CHUNK_BYTES && !sink_flush(s))
            return false;
        int64_t room = SAFETENSORS_CHUNK_BYTES - s->used, n = count < room ? count : room;
        memcpy(s->chunk + s->used, text, (size_t)n);
        s->used += n;
        text += n;
        count -= n;
    }
    return true;
}

static bool put_text(struct sink *s, const char *text)
{
    return put(s, text, (int64_t)strlen(text));
}

static bool put_number(struct sink *s, int64_t v)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, v);
    return put_text(s, text);
}

// What stands between the quotes of a JSON string.
static bool put_escaped(struct sink *s, const char *text)
{
    char shown[SAFETENSORS_SHOWN_BYTES], path[SAFETENSORS_SHOWN_BYTES], code[8];
    int64_t left = (int64_t)strlen(text);
    while (left > 0) {
        int n = safetensors_utf8_bytes(text, left);
        if (n == 0)
            return refuse(s->e, "'%s': cannot write the name or metadata '%s': expected UTF-8",
                          safetensors_shown(s->path, path), safetensors_shown(text, shown));
        unsigned c = (unsigned char)text[0];
        if (c < 0x20)
            snprintf(code, sizeof(code), "\\u%04x", c);
        else
            snprintf(code, sizeof(code), "\\%c", (int)c);
        bool ok = c < 0x20 || c == '"' || c == '\\' ? put_text(s, code) : put(s, text, n);
        if (!ok)
            return false;
        text += n;
        left -= n;
    }
    return true;
}

static bool put_metadata(struct sink *s, const struct safetensors_pair *pair, int count)
{
    for (int i = 0; i < count; i++) {
        if (!put_text(s, i == 0 ? "\"__metadata__\":{\"" : ",\"") || !put_escaped(s, pair[i].key) ||
            !put_text(s, "\":\"") || !put_escaped(s, pair[i].value) || !put_text(s, "\""))
            return false;
    }
    return count == 0 || put_text(s, "}");
}

static int64_t entry_bytes(const struct safetensors_entry *x)
{
    int64_t bytes;
    CHECK(x->dim_count >= 0 && x->dim_count <= SAFETENSORS_DIMS);
    CHECK(safetensors_shape_bytes(x->dim_count, x->dim, dtype_bytes(x->dtype), &bytes));
    return bytes;
}

static bool put_entry(struct sink *s, const struct safetensors_entry *x, int64_t begin)
{
    char shape[SAFETENSORS_SHOWN_BYTES];
    bool ok = put_text(s, "\"") && put_escaped(s, x->name) &&
              put_escaped(s, x->suffix != NULL ? x->suffix : "") &&
              put_text(s, "\":{\"dtype\":\"") && put_text(s, safetensors_dtype[x->dtype]) &&
              put_text(s, "\",\"shape\":") &&
              put_text(s, safetensors_shape_text(x->dim_count, x->dim, shape));
    return ok && put_text(s, ",\"data_offsets\":[") && put_number(s, begin) && put_text(s, ",") &&
           put_number(s, begin + entry_bytes(x)) && put_text(s, "]}");
}

struct job {
    safetensors_entry_fn *entry;
    const void *user;
    int64_t count;
    const struct safetensors_pair *metadata;
    int pair_count;
};

// The same code counts the header's bytes and writes them.
static bool put_header(struct sink *s, const struct job *j)
{
    int64_t begin = 0;
    bool first = j->pair_count == 0;
    if (!put_text(s, "{") || !put_metadata(s, j->metadata, j->pair_count))
        return false;
    for (int64_t i = 0; i < j->count; i++) {
        struct safetensors_entry x = j->entry(j->user, i);
        if (x.name == NULL)
            continue;
        CHECK(x.suffix != NULL || strcmp(x.name, "__metadata__") != 0);
        if ((!first && !put_text(s, ",")) || !put_entry(s, &x, begin))
            return false;
        begin += entry_bytes(&x);
        first = false;
    }
    return put_text(s, "}") && sink_flush(s);
}

static bool write_widened(struct sink *s, const struct safetensors_entry *x)
{
    real room[ARRAY_PIECE];
    CHECK(x->dtype == DTYPE_REAL);
    int64_t count = entry_bytes(x) / (int64_t)sizeof(real);
    for (int64_t at = 0; at < count; at += ARRAY_PIECE) {
        int64_t n = array_piece(at, count);
        const real *wide = array_read(array_of(x->data, DTYPE_BF16), at, n, room);
        if (!write_all(s, wide, n * (int64_t)sizeof(real)))
            return false;
    }
    return true;
}

static bool write_data(struct sink *s, const struct job *j)
{
    for (int64_t i = 0; i < j->count; i++) {
        struct safetensors_entry x = j->entry(j->user, i);
        if (x.name == NULL)
            continue;
        if (!(x.widens ? write_widened(s, &x) : write_all(s, x.data, entry_bytes(&x))))
            return false;
    }
    return true;
}

static bool write_file(struct sink *s, const struct job *j)
{
    static const char spaces[SAFETENSORS_PREFIX_BYTES] = "        ";
    s->fd = -1;
    if (!put_header(s, j))
        return false;
    int64_t bytes = s->total_bytes, padding = -bytes & (SAFETENSORS_PREFIX_BYTES - 1);
    uint64_t prefix = (uint64_t)(bytes + padding);
    CHECK(prefix <= SAFETENSORS_HEADER_BYTES);
    s->total_bytes = 0;
    do
        s->fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    while (s->fd < 0 && errno == EINTR);
    if (s->fd < 0)
        return fail_write(s, "create it", errno);
    return write_all(s, &prefix, sizeof(prefix)) && put_header(s, j) &&
           write_all(s, spaces, padding) && write_data(s, j);
}

static bool sync_file(const struct sink *s)
{
    while (fsync(s->fd) != 0) {
        if (errno == EINVAL || errno == ENOTSUP) // a pipe, a device
            return true;
        if (errno != EINTR)
            return fail_write(s, "sync", errno);
    }
    return true;
}

bool safetensors_write(const char *path, safetensors_entry_fn *entry, const void *user,
                       int64_t count, const struct safetensors_pair *metadata, int pair_count,
                       struct error *e)
{
    struct job j = {entry, user, count, metadata, pair_count};
    struct sink s;
    s.path = path;
    s.total_bytes = s.used = 0;
    s.e = e;
    bool ok = write_file(&s, &j);
    if (s.fd < 0)
        return ok;
    ok = ok && sync_file(&s);
    struct stat status;
    bool is_file = fstat(s.fd, &status) == 0 && S_ISREG(status.st_mode);
    if (close(s.fd) != 0 && ok && errno != EINTR)
        ok = fail_write(&s, "close", errno);
    if (!ok && is_file)
        unlink(path);
    return ok;
}
