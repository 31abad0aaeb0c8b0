// safetensors_parse.c - the JSON header of a safetensors file, checked to the last byte before
// anything of it is believed.
#include "nn/safetensors_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS // without them closing brackets cost a scan
#include <jsmn.h>

enum {
    DEPTH_MAX = 3,             // the header, a tensor, its shape
    TOKEN_TEXT_BYTES_LEAST = 3 // of a JSON value and what separates it: "": and "",
};

static char *utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

// What reading a header keeps in hand. The text up to `at` and the tokens before `next` are
// checked; jsmn finds the tokens and is lenient about what stands between them, so that is
// checked here.
struct parser {
    struct safetensors *f;
    char *text;
    int64_t bytes, at;
    const jsmntok_t *token;
    int token_count, next;
    const char *name; // of the tensor at hand, or NULL
    bool has_metadata;
    struct error *e;
};

static bool fail_at(const struct parser *p, int64_t at, const char *expected)
{
    char path[SAFETENSORS_SHOWN_BYTES], name[SAFETENSORS_SHOWN_BYTES], got[16];
    unsigned c = at < p->bytes ? (unsigned char)p->text[at] : 0;
    snprintf(got, sizeof(got), c > 0x20 && c < 0x7f ? "'%c'" : "byte %02X", c);
    return refuse(p->e, "'%s': header byte %" PRId64 "%s%s%s: got %s, expected %s",
                  safetensors_shown(p->f->path, path), at, p->name != NULL ? ", tensor '" : "",
                  p->name != NULL ? safetensors_shown(p->name, name) : "",
                  p->name != NULL ? "'" : "", at < p->bytes ? got : "its end", expected);
}

static bool fail_tensor(const struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool fail_tensor(const struct parser *p, const char *format, ...)
{
    char path[SAFETENSORS_SHOWN_BYTES], name[SAFETENSORS_SHOWN_BYTES], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return refuse(p->e, "'%s': tensor '%s': %s", safetensors_shown(p->f->path, path),
                  safetensors_shown(p->name, name), what);
}

// Before jsmn sees it: UTF-8, no bytes that JSON never has, and no more nesting than a header
// needs, so that no text can make jsmn slow.
static bool scan_text(const struct parser *p)
{
    int depth = 0;
    bool quoted = false;
    for (int64_t at = 0; at < p->bytes;) {
        int n = safetensors_utf8_bytes(p->text + at, p->bytes - at);
        unsigned char c = (unsigned char)p->text[at];
        if (n == 0)
            return fail_at(p, at, "JSON in UTF-8");
        if (c < 0x20 && (quoted || (c != '\t' && c != '\n' && c != '\r')))
            return fail_at(p, at, "JSON, which has no such byte here");
        if (quoted && c == '\\' && at + 1 < p->bytes && (unsigned char)p->text[at + 1] < 0x80)
            n = 2;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
        if (depth > DEPTH_MAX)
            return fail_at(p, at, "nesting of at most 3 levels: header, tensor, shape");
        at += n;
    }
    return true;
}

static void space(struct parser *p)
{
    while (p->at < p->bytes && strchr(" \t\r\n", p->text[p->at]) != NULL)
        p->at++;
}

static bool punctuation(struct parser *p, char c)
{
    space(p);
    if (p->at < p->bytes && p->text[p->at] == c) {
        p->at++;
        return true;
    }
    return false;
}

static bool expect(struct parser *p, char c)
{
    const char expected[] = {'\'', c, '\'', 0};
    if (!punctuation(p, c))
        return fail_at(p, p->at, expected);
    if (c == '{' || c == '[')
        p->next++;
    return true;
}

static const jsmntok_t *take(struct parser *p, jsmntype_t type, int64_t start)
{
    if (p->next >= p->token_count)
        return NULL;
    const jsmntok_t *t = &p->token[p->next];
    if (t->type != type || t->start != start)
        return NULL;
    p->next++;
    return t;
}

static uint32_t hex4(const char *text)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t c = (unsigned char)text[i];
        v = v * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

// The escape at `at`, whose form jsmn has checked, written to *out; NULL for a zero character or
// half a surrogate pair.
static const char *unescape(const char *at, const char *end, char **out)
{
    static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
    if (at[1] != 'u') {
        *(*out)++ = to[strchr(from, at[1]) - from];
        return at + 2;
    }
    uint32_t code = hex4(at + 2);
    at += 6;
    if (code >= 0xd800 && code < 0xdc00) {
        uint32_t low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2) : 0;
        if (low < 0xdc00 || low > 0xdfff)
            return NULL;
        code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
        at += 6;
    }
    if (code == 0 || (code >= 0xdc00 && code < 0xe000))
        return NULL;
    *out = utf8_put(code, *out);
    return at;
}

// A string, unescaped where it stands: that never makes it longer, and the closing quote has room
// for the zero.
static bool string(struct parser *p, const char **text)
{
    if (!punctuation(p, '"'))
        return fail_at(p, p->at, "a string");
    const jsmntok_t *t = take(p, JSMN_STRING, p->at);
    if (t == NULL)
        return fail_at(p, p->at, "a string");
    const char *at = p->text + t->start, *end = p->text + t->end;
    char *out = p->text + t->start;
    *text = out;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        const char *rest = unescape(at, end, &out);
        if (rest == NULL)
            return fail_at(p, at - p->text, "an escape that stands for a character");
        at = rest;
    }
    *out = 0;
    p->at = t->end + 1;
    return true;
}

static bool integer(struct parser *p, int64_t *v)
{
    space(p);
    const jsmntok_t *t = take(p, JSMN_PRIMITIVE, p->at);
    if (t == NULL)
        return fail_at(p, p->at, "an integer");
    *v = 0;
    for (int64_t at = t->start; at < t->end; at++) {
        int digit = p->text[at] - '0';
        if (digit < 0 || digit > 9 || (*v == 0 && at > t->start))
            return fail_at(p, at, "an integer of at least 0");
        if (*v > (INT64_MAX - digit) / 10)
            return fail_at(p, t->start, "an integer below 2^63");
        *v = *v * 10 + digit;
    }
    p->at = t->end;
    return true;
}

// "[1, 2]"; at most `most` of them.
static bool integers(struct parser *p, int64_t *v, int most, int *count)
{
    *count = 0;
    if (!expect(p, '['))
        return false;
    if (punctuation(p, ']'))
        return true;
    do {
        if (*count == most)
            return fail_at(p, p->at, most == 2 ? "2 offsets" : "a shape of at most 8 dimensions");
        if (!integer(p, &v[(*count)++]))
            return false;
    } while (punctuation(p, ','));
    return expect(p, ']');
}

static bool dtype_field(struct parser *p, enum dtype *dtype)
{
    const char *text;
    char shown[SAFETENSORS_SHOWN_BYTES];
    if (!string(p, &text))
        return false;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        *dtype = (enum dtype)i;
        if (strcmp(text, safetensors_dtype[i]) == 0)
            return true;
    }
    return fail_tensor(p, "got dtype '%s', expected F32, F64, BF16, I32 or U8",
                       safetensors_shown(text, shown));
}

static bool offsets_field(struct parser *p, struct safetensors_tensor *t)
{
    int64_t offset[2];
    int count;
    if (!integers(p, offset, 2, &count))
        return false;
    if (count != 2)
        return fail_at(p, p->at, "2 offsets");
    t->begin = offset[0];
    t->end = offset[1];
    return true;
}

static bool tensor_fields(struct parser *p, struct safetensors_tensor *t)
{
    static const char *const field[] = {"dtype", "shape", "data_offsets"};
    int seen = 0;
    if (!expect(p, '{'))
        return false;
    do {
        const char *key;
        char shown[SAFETENSORS_SHOWN_BYTES];
        if (!string(p, &key))
            return false;
        int which = 0;
        while (which < COUNT_OF(field) && strcmp(key, field[which]) != 0)
            which++;
        if (which == COUNT_OF(field) || (seen & 1 << which) != 0)
            return fail_tensor(p, "got field '%s'%s, expected dtype, shape and data_offsets",
                               safetensors_shown(key, shown),
                               which == COUNT_OF(field) ? "" : " twice");
        seen |= 1 << which;
        if (!expect(p, ':') || !(which == 0   ? dtype_field(p, &t->dtype)
                                 : which == 1 ? integers(p, t->dim, SAFETENSORS_DIMS, &t->dim_count)
                                              : offsets_field(p, t)))
            return false;
    } while (punctuation(p, ','));
    for (int i = 0; i < COUNT_OF(field); i++)
        if ((seen & 1 << i) == 0)
            return fail_tensor(p, "no %s, expected dtype, shape and data_offsets", field[i]);
    return expect(p, '}');
}

static bool metadata_fields(struct parser *p)
{
    if (p->has_metadata)
        return fail_at(p, p->at, "__metadata__ once");
    p->has_metadata = true;
    if (!expect(p, '{'))
        return false;
    if (punctuation(p, '}'))
        return true;
    do {
        struct safetensors_pair *pair = &p->f->metadata[p->f->pair_count++];
        if (!string(p, &pair->key) || !expect(p, ':') || !string(p, &pair->value))
            return false;
    } while (punctuation(p, ','));
    return expect(p, '}');
}

static bool header_fields(struct parser *p)
{
    if (!expect(p, '{'))
        return false;
    bool empty = punctuation(p, '}');
    while (!empty) {
        const char *name;
        p->name = NULL;
        if (!string(p, &name) || !expect(p, ':'))
            return false;
        if (strcmp(name, "__metadata__") == 0) {
            if (!metadata_fields(p))
                return false;
        } else {
            struct safetensors_tensor *t = &p->f->tensor[p->f->tensor_count++];
            t->name = p->name = name;
            if (!tensor_fields(p, t))
                return false;
        }
        if (!punctuation(p, ',')) {
            p->name = NULL;
            if (!expect(p, '}'))
                return false;
            empty = true;
        }
    }
    space(p);
    return p->at == p->bytes || fail_at(p, p->at, "the end of the header");
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    int order = compare(x->begin, y->begin);
    return order != 0 ? order : compare(x->end, y->end);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b)
{
    const struct safetensors_pair *x = a, *y = b;
    return strcmp(x->key, y->key);
}

// One tensor by itself.
static bool check_span(struct parser *p, const struct safetensors_tensor *t)
{
    char shape[SAFETENSORS_SHOWN_BYTES];
    int64_t data_bytes = p->f->file_bytes - p->f->data_start, bytes;
    p->name = t->name;
    safetensors_shape_text(t->dim_count, t->dim, shape);
    if (t->begin > t->end)
        return fail_tensor(
            p, "data_offsets begin at %" PRId64 ", expected at most their end, %" PRId64, t->begin,
            t->end);
    if (t->end > data_bytes)
        return fail_tensor(p,
                           "data_offsets end at %" PRId64 ", expected at most %" PRId64
                           ", where the file's data ends: is it cut short?",
                           t->end, data_bytes);
    if (!safetensors_shape_bytes(t->dim_count, t->dim, dtype_bytes(t->dtype), &bytes))
        return fail_tensor(p, "shape %s has too many elements, expected below 2^63 bytes", shape);
    if (bytes != t->end - t->begin)
        return fail_tensor(
            p, "data_offsets span %" PRId64 " bytes, expected %" PRId64 " for shape %s of %s",
            t->end - t->begin, bytes, shape, safetensors_dtype[t->dtype]);
    return true;
}

// All together: sorted by place, each begins where the one before ends.
static bool check_places(struct parser *p)
{
    struct safetensors *f = p->f;
    int64_t end = 0;
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const struct safetensors_tensor *t = &f->tensor[i];
        char before[SAFETENSORS_SHOWN_BYTES] = "the header";
        p->name = t->name;
        if (i > 0)
            safetensors_shown(t[-1].name, before);
        if (t->begin != end)
            return fail_tensor(
                p, "data_offsets begin at %" PRId64 ", expected %" PRId64 ": %s the end of '%s'",
                t->begin, end, t->begin < end ? "it overlaps" : "a hole after", before);
        end = t->end;
    }
    p->name = NULL;
    char path[SAFETENSORS_SHOWN_BYTES];
    if (f->data_start + end == f->file_bytes)
        return true;
    return refuse(p->e,
                  "'%s': has %" PRId64 " bytes, expected %" PRId64 ", where its last tensor ends",
                  safetensors_shown(f->path, path), f->file_bytes, f->data_start + end);
}

static bool check_names(struct parser *p)
{
    struct safetensors *f = p->f;
    char path[SAFETENSORS_SHOWN_BYTES], key[SAFETENSORS_SHOWN_BYTES];
    for (int64_t i = 0; i < f->tensor_count; i++)
        f->by_name[i] = &f->tensor[i];
    qsort(f->by_name, (size_t)f->tensor_count, sizeof(f->by_name[0]), by_name);
    qsort(f->metadata, (size_t)f->pair_count, sizeof(f->metadata[0]), by_key);
    for (int64_t i = 1; i < f->tensor_count; i++) {
        p->name = f->by_name[i]->name;
        if (strcmp(f->by_name[i - 1]->name, p->name) == 0)
            return fail_tensor(p, "got the name twice, expected names that differ");
    }
    for (int64_t i = 1; i < f->pair_count; i++)
        if (strcmp(f->metadata[i - 1].key, f->metadata[i].key) == 0)
            return refuse(p->e, "'%s': got metadata '%s' twice, expected keys that differ",
                          safetensors_shown(f->path, path),
                          safetensors_shown(f->metadata[i].key, key));
    return true;
}

static bool check_tensors(struct parser *p)
{
    struct safetensors *f = p->f;
    for (int64_t i = 0; i < f->tensor_count; i++)
        if (!check_span(p, &f->tensor[i]))
            return false;
    qsort(f->tensor, (size_t)f->tensor_count, sizeof(f->tensor[0]), by_place);
    return check_names(p) && check_places(p);
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 15) & -16;
}

// A tensor takes ten tokens or more, a pair two. One each beyond: where a refused text stopped.
static bool place_tables(struct parser *p, jsmntok_t **tokens)
{
    struct safetensors *f = p->f;
    int64_t tensors = p->token_count / 10 + 1, pairs = p->token_count / 2 + 1;
    int64_t path_bytes = (int64_t)strlen(f->path) + 1;
    int64_t path_at = p->bytes + 1;
    int64_t tensor_at = aligned(path_at + path_bytes);
    int64_t by_name_at = tensor_at + aligned(tensors * (int64_t)sizeof(f->tensor[0]));
    int64_t pair_at = by_name_at + aligned(tensors * (int64_t)sizeof(f->by_name[0]));
    int64_t token_at = pair_at + aligned(pairs * (int64_t)sizeof(f->metadata[0]));
    if (!safetensors_grow(f, token_at + p->token_count * (int64_t)sizeof(jsmntok_t), p->e))
        return false;
    p->text = f->block;
    f->path = memcpy(f->block + path_at, f->path, (size_t)path_bytes);
    f->tensor = (void *)(f->block + tensor_at);
    f->by_name = (void *)(f->block + by_name_at);
    f->metadata = (void *)(f->block + pair_at);
    *tokens = (void *)(f->block + token_at);
    return true;
}

static bool tokenize(struct parser *p)
{
    jsmn_parser j;
    jsmn_init(&j);
    int count = jsmn_parse(&j, p->text, (size_t)p->bytes, NULL, 0);
    if (count >= 0 && count > p->bytes / TOKEN_TEXT_BYTES_LEAST + 1)
        return fail_at(p, 0, "a header of tensors");
    p->token_count = count < 0 ? 0 : count;
    jsmntok_t *tokens;
    if (!place_tables(p, &tokens))
        return false;
    p->token = tokens;
    if (count >= 0) {
        jsmn_init(&j);
        count = jsmn_parse(&j, p->text, (size_t)p->bytes, tokens, (unsigned)count);
    }
    if (count < 0)
        return fail_at(p, j.pos, count == JSMN_ERROR_PART ? "JSON whose end is there" : "JSON");
    return true;
}

bool safetensors_parse(struct safetensors *f, int64_t bytes, struct error *e)
{
    struct parser p = {.f = f, .text = f->block, .bytes = bytes, .e = e};
    return scan_text(&p) && tokenize(&p) && header_fields(&p) && check_tensors(&p);
}
