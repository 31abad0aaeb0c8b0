#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // pread, fsync
#endif
#include "nn/safetensors_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors are little-endian, and so must be the machine"
#endif

const char *const safetensors_dtype[DTYPE_COUNT] = {
    [DTYPE_F32] = "F32", [DTYPE_F64] = "F64", [DTYPE_BF16] = "BF16",
    [DTYPE_I32] = "I32", [DTYPE_U8] = "U8",
};

// ---- text ----

int safetensors_utf8_bytes(const char *text, int64_t left)
{
    const uint8_t *s = (const uint8_t *)text;
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > left || s[0] > 0xf4)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool good = n < 3 || !((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
                           (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f));
    return good ? n : 0;
}

char *safetensors_shown(const char *text, char out[SAFETENSORS_SHOWN_BYTES])
{
    enum { ROOM = SAFETENSORS_SHOWN_BYTES - 4 };
    int used = 0;
    int64_t left = (int64_t)strlen(text);
    while (left > 0) {
        int n = safetensors_utf8_bytes(text, left);
        int step = n > 0 ? n : 1;
        if (used + step > ROOM) {
            memcpy(out + used, "...", 4);
            return out;
        }
        bool plain = n > 1 || (n == 1 && text[0] >= 0x20 && text[0] != 0x7f);
        if (plain)
            memcpy(out + used, text, (size_t)step);
        else
            out[used] = '?';
        used += step;
        text += step;
        left -= step;
    }
    out[used] = 0;
    return out;
}

char *safetensors_shape_text(int dim_count, const int64_t *dim, char out[SAFETENSORS_SHOWN_BYTES])
{
    size_t used = 0;
    for (int i = 0; i < dim_count && used < SAFETENSORS_SHOWN_BYTES; i++)
        used += (size_t)snprintf(out + used, SAFETENSORS_SHOWN_BYTES - used, "%s%" PRId64,
                                 i == 0 ? "[" : ", ", dim[i]);
    const char *end = dim_count == 0 ? "[]" : "]";
    if (used + sizeof("[]") <= SAFETENSORS_SHOWN_BYTES)
        memcpy(out + used, end, strlen(end) + 1);
    return out;
}

// dim_count dimensions of elements of this many bytes; false if that is more than an int64_t holds.
bool safetensors_shape_bytes(int dim_count, const int64_t *dim, int64_t element_bytes,
                             int64_t *bytes)
{
    *bytes = element_bytes;
    for (int i = 0; i < dim_count; i++) {
        if (dim[i] < 0 || (dim[i] > 0 && *bytes > INT64_MAX / dim[i]))
            return false;
        *bytes *= dim[i];
    }
    return true;
}

static bool read_at(const struct safetensors *f, int64_t offset, void *out, int64_t count,
                    struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES];
    CHECK(offset >= 0 && count >= 0 && offset <= f->file_bytes - count);
    if (f->bytes != NULL) {
        memcpy(out, f->bytes + offset, (size_t)count);
        return true;
    }
    for (char *at = out; count > 0;) {
        size_t ask =
            (size_t)(count < SAFETENSORS_TRANSFER_BYTES ? count : SAFETENSORS_TRANSFER_BYTES);
        ssize_t n = pread(f->fd, at, ask, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return refuse(e, "'%s': cannot read at byte %" PRId64 ": %s",
                          safetensors_shown(f->path, path), offset, strerror(errno));
        if (n == 0)
            return refuse(e, "'%s': ends at byte %" PRId64 ", expected %" PRId64 " more",
                          safetensors_shown(f->path, path), offset, count);
        at += n;
        offset += n;
        count -= n;
    }
    return true;
}

bool safetensors_grow(struct safetensors *f, int64_t bytes, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES];
    char *moved = realloc(f->block, (size_t)bytes);
    if (moved == NULL)
        return refuse(e, "'%s': no memory for %" PRId64 " bytes, expected room for its header",
                      safetensors_shown(f->path, path), bytes);
    f->block = moved;
    return true;
}

// The header's length is believed only as far as the file goes.
static bool read_prefix(struct safetensors *f, int64_t *header_bytes, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES];
    uint64_t claimed;
    safetensors_shown(f->path, path);
    if (f->file_bytes < SAFETENSORS_PREFIX_BYTES)
        return refuse(e, "'%s': has %" PRId64 " bytes, expected a safetensors file of at least 8",
                      path, f->file_bytes);
    if (!read_at(f, 0, &claimed, SAFETENSORS_PREFIX_BYTES, e))
        return false;
    int64_t most = f->file_bytes - SAFETENSORS_PREFIX_BYTES;
    if (most > SAFETENSORS_HEADER_BYTES)
        most = SAFETENSORS_HEADER_BYTES;
    if (claimed > (uint64_t)most)
        return refuse(e,
                      "'%s': got a header of %" PRIu64 " bytes, expected at most %" PRId64
                      ": is it a safetensors file, and whole?",
                      path, claimed, most);
    *header_bytes = (int64_t)claimed;
    f->data_start = SAFETENSORS_PREFIX_BYTES + *header_bytes;
    return true;
}

static bool read_header(struct safetensors *f, struct error *e)
{
    int64_t bytes;
    return read_prefix(f, &bytes, e) && safetensors_grow(f, bytes + 1, e) &&
           read_at(f, SAFETENSORS_PREFIX_BYTES, f->block, bytes, e) &&
           safetensors_parse(f, bytes, e);
}

static bool open_file(struct safetensors *f, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES];
    struct stat status;
    // O_NONBLOCK: a FIFO without a writer is refused below instead of waited for.
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &status) != 0)
        return refuse(e, "'%s': cannot open: %s; expected a safetensors file",
                      safetensors_shown(f->path, path), strerror(errno));
    if (!S_ISREG(status.st_mode))
        return refuse(e, "'%s': got %s, expected a safetensors file",
                      safetensors_shown(f->path, path),
                      S_ISDIR(status.st_mode) ? "a directory" : "something that is no file");
    f->file_bytes = (int64_t)status.st_size;
    return true;
}

bool safetensors_open(struct safetensors *f, const char *path, struct error *e)
{
    *f = (struct safetensors){.path = path, .fd = -1};
    bool ok = open_file(f, e) && read_header(f, e);
    if (!ok)
        safetensors_close(f);
    return ok;
}

bool safetensors_open_memory(struct safetensors *f, const char *path, const void *bytes,
                             int64_t count, struct error *e)
{
    *f = (struct safetensors){.path = path, .fd = -1, .bytes = bytes, .file_bytes = count};
    bool ok = read_header(f, e);
    if (!ok)
        safetensors_close(f);
    return ok;
}

void safetensors_close(struct safetensors *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->block);
    *f = (struct safetensors){.fd = -1};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name)
{
    int64_t low = 0, high = f->tensor_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, f->by_name[middle]->name);
        if (order == 0)
            return f->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *f, const char *key)
{
    for (int64_t i = 0; i < f->pair_count; i++)
        if (strcmp(f->metadata[i].key, key) == 0)
            return f->metadata[i].value;
    return NULL;
}

int64_t safetensors_count(const struct safetensors_tensor *t)
{
    return (t->end - t->begin) / dtype_bytes(t->dtype);
}

bool safetensors_read_bytes(const struct safetensors *f, const struct safetensors_tensor *t,
                            void *out, struct error *e)
{
    return read_at(f, f->data_start + t->begin, out, t->end - t->begin, e);
}

// What `out` is not stored as, through reals on the stack.
static bool read_converted(const struct safetensors *f, const struct safetensors_tensor *t,
                           struct array out, struct error *e)
{
    enum { COUNT = SAFETENSORS_CHUNK_BYTES / sizeof(double) };
    union {
        float f32[COUNT];
        double f64[COUNT];
        bf16 b16[COUNT];
    } chunk;
    real room[COUNT];
    int64_t width = dtype_bytes(t->dtype), count = safetensors_count(t);
    for (int64_t first = 0, n; first < count; first += n) {
        n = count - first < COUNT ? count - first : COUNT;
        if (!read_at(f, f->data_start + t->begin + first * width, &chunk, n * width, e))
            return false;
        real *to = array_open(out, first, n, false, room);
        const real *wide = to;
        if (t->dtype == DTYPE_BF16)
            wide = array_read(array_of(chunk.b16, DTYPE_BF16), 0, n, room);
        for (int64_t i = 0; i < n; i++)
            to[i] = t->dtype == DTYPE_F32   ? (real)chunk.f32[i]
                    : t->dtype == DTYPE_F64 ? (real)chunk.f64[i]
                                            : wide[i];
        array_close(out, first, n, to);
    }
    return true;
}

bool safetensors_read_array(const struct safetensors *f, const struct safetensors_tensor *t,
                            struct array out, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], name[SAFETENSORS_SHOWN_BYTES];
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F64 && t->dtype != DTYPE_BF16)
        return refuse(e, "'%s': tensor '%s': got dtype %s, expected F32, F64 or BF16",
                      safetensors_shown(f->path, path), safetensors_shown(t->name, name),
                      safetensors_dtype[t->dtype]);
    return t->dtype == out.dtype ? safetensors_read_bytes(f, t, out.at, e)
                                 : read_converted(f, t, out, e);
}

bool safetensors_read(const struct safetensors *f, const struct safetensors_tensor *t, real *out,
                      struct error *e)
{
    return safetensors_read_array(f, t, array_of(out, DTYPE_REAL), e);
}

bool safetensors_hash(const struct safetensors *f, uint64_t *hash, struct error *e)
{
    uint64_t word[SAFETENSORS_CHUNK_BYTES / sizeof(uint64_t)];
    uint64_t sum = (uint64_t)f->file_bytes;
    for (int64_t at = f->data_start, n; at < f->file_bytes; at += n) {
        n = f->file_bytes - at < SAFETENSORS_CHUNK_BYTES ? f->file_bytes - at
                                                         : SAFETENSORS_CHUNK_BYTES;
        memset(word, 0, sizeof(word));
        if (!read_at(f, at, word, n, e))
            return false;
        for (int64_t i = 0; i * (int64_t)sizeof(uint64_t) < n; i++) {
            sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15u;
            sum ^= sum >> 29;
        }
    }
    *hash = sum;
    return true;
}
