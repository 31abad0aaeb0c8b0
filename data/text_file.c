#include "data/text_file.h"

#include "data/corpus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *bytes; // owned
    int64_t count;
};

static bool fail_memory(struct error *e, int64_t bytes)
{
    return refuse(e,
                  "no memory for %" PRId64
                  " bytes of data, expected room for the whole text; try a "
                  "smaller --data file",
                  bytes);
}

static bool fail_file(struct error *e, const char *path, const char *why)
{
    return refuse(
        e,
        "cannot read data '%.200s': %s, expected a text file; try another --data FILE, or "
        "--data " DATASET_BUILTIN,
        path, why);
}

static bool text_resize(struct text *t, int64_t bytes, struct error *e)
{
    char *moved = realloc(t->bytes, (size_t)bytes);
    if (moved == NULL)
        return fail_memory(e, bytes);
    t->bytes = moved;
    return true;
}

// Reads to the end without asking for the size first: a pipe has none. Doubling costs address
// space only, since what is not yet read is not yet touched.
static bool read_all(struct text *t, FILE *file, const char *path, struct error *e)
{
    int64_t capacity = 0;
    do {
        if (t->count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 1 << 16;
            if (!text_resize(t, capacity, e))
                return false;
        }
        t->count += (int64_t)fread(t->bytes + t->count, 1, (size_t)(capacity - t->count), file);
        if (ferror(file))
            return fail_file(e, path, strerror(errno));
    } while (!feof(file));
    return t->count > 0 || fail_file(e, path, "it is empty");
}

static bool load_file(struct text *t, const char *path, struct error *e)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return fail_file(e, path, strerror(errno));
    bool ok = read_all(t, file, path, e);
    fclose(file);
    return ok;
}

static bool load_corpus(struct text *t, struct error *e)
{
    if (!text_resize(t, CORPUS_DEFAULT_BYTES, e))
        return false;
    t->count = corpus_write(CORPUS_SEED, t->bytes, CORPUS_DEFAULT_BYTES);
    return true;
}

// One-byte tokens overwrite the text that they come from: a token never has more bytes than its
// character, so writing stays behind reading.
static bool encode_u8(struct dataset *d, struct text *t, struct error *e)
{
    unsigned char *ids = (unsigned char *)t->bytes;
    int32_t id;
    for (int64_t at = 0; at < t->count; d->count++) {
        if (!tokenizer_next(&d->tokenizer, t->bytes, t->count, &at, &id, e))
            return false;
        ids[d->count] = (unsigned char)id;
    }
    if (!text_resize(t, d->count, e))
        return false;
    d->ids = t->bytes;
    t->bytes = NULL;
    return true;
}

static bool encode_u16(struct dataset *d, const struct text *t, struct error *e)
{
    int64_t count, at = 0;
    int32_t id;
    if (!tokenizer_count(&d->tokenizer, t->bytes, t->count, &count, e))
        return false;
    d->ids = malloc((size_t)count * sizeof(uint16_t));
    if (d->ids == NULL)
        return fail_memory(e, 2 * count);
    for (uint16_t *out = d->ids; d->count < count; d->count++) {
        if (!tokenizer_next(&d->tokenizer, t->bytes, t->count, &at, &id, e))
            return false;
        out[d->count] = (uint16_t)id;
    }
    return true;
}

static bool encode(struct dataset *d, struct text *t, enum tokenizer_kind kind,
                   const struct tokenizer *fixed, struct error *e)
{
    if (fixed != NULL)
        d->tokenizer = *fixed;
    else if (!tokenizer_build(&d->tokenizer, kind, t->bytes, t->count, e))
        return false;
    d->token_bytes = d->tokenizer.vocab <= 256 ? 1 : 2;
    return d->token_bytes == 1 ? encode_u8(d, t, e) : encode_u16(d, t, e);
}

// The tokenizer's messages know offsets but not which file they are in.
static bool fail_in_file(struct error *e, const char *path)
{
    if (e == NULL)
        return false;
    struct error inner = *e;
    return refuse(e, "data '%.200s': %.700s", path, inner.text);
}

bool dataset_open(struct dataset *d, const char *path, enum tokenizer_kind kind,
                  const struct tokenizer *fixed, struct error *e)
{
    *d = (struct dataset){0};
    struct text t = {0};
    bool builtin = strcmp(path, DATASET_BUILTIN) == 0;
    bool ok = builtin ? load_corpus(&t, e) : load_file(&t, path, e);
    if (ok && !encode(d, &t, kind, fixed, e))
        ok = fail_in_file(e, path);
    free(t.bytes);
    if (!ok)
        dataset_close(d);
    d->train_count = (int64_t)((double)d->count * 0.9);
    return ok;
}

void dataset_close(struct dataset *d)
{
    free(d->ids);
    *d = (struct dataset){0};
}

void dataset_read(const struct dataset *d, int64_t first, int64_t count, int32_t *out)
{
    CHECK(first >= 0);
    CHECK(count <= d->count - first);
    const uint8_t *small = d->ids;
    const uint16_t *large = d->ids;
    if (d->token_bytes == 1)
        for (int64_t i = 0; i < count; i++)
            out[i] = small[first + i];
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = large[first + i];
}
