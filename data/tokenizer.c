#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char char_prefix[] = "char:";

// Bytes of the UTF-8 character at s, or 0 if there is none: cut off, overlong, a surrogate,
// above U+10FFFF, or a zero byte.
static int utf8_read(const char *s, int64_t bytes, int32_t *code_point)
{
    static const int32_t least[] = {0, 1, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)s[0];
    int length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || length > bytes || lead >= 0xf8)
        return 0;
    int32_t c = length == 1 ? lead : lead & (0xff >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *code_point = c;
    return length;
}

static int utf8_write(int32_t c, char out[TOKENIZER_TOKEN_BYTES])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(lead[length] | c);
    return length;
}

static bool fail_binary(struct error *e, const char *text, int64_t at)
{
    return refuse(e,
                  "byte 0x%02x at offset %" PRId64 " is not UTF-8 text, expected by the char "
                  "tokenizer; try --tokenizer byte, or convert the text to UTF-8",
                  (unsigned)(unsigned char)text[at], at);
}

// Shows the character itself only where that keeps the message one readable line.
static bool fail_unknown(struct error *e, const struct tokenizer *k, int32_t c, int64_t at)
{
    char shown[TOKENIZER_TOKEN_BYTES + 1] = {0};
    bool printable = c >= 0x20 && !(c >= 0x7f && c < 0xa0);
    if (printable)
        utf8_write(c, shown);
    const char *quote = printable ? "'" : "";
    return refuse(e,
                  "character %s%s%s%sU+%04" PRIX32 "%s at offset %" PRId64 " is none of the "
                  "tokenizer's %" PRId32 " characters; try a text without it, or train with "
                  "--tokenizer byte, which knows every text",
                  quote, shown, quote, printable ? " (" : "", (uint32_t)c, printable ? ")" : "", at,
                  k->vocab);
}

// The first place in the table whose code point is not below c. Written so that the compiler
// needs no branch: a guess would miss every second time.
static int32_t lower_bound(const struct tokenizer *k, int32_t c)
{
    const int32_t *base = k->code_point;
    int32_t count = k->vocab;
    if (count == 0)
        return 0;
    while (count > 1) {
        int32_t half = count / 2;
        base = base[half - 1] < c ? base + half : base;
        count -= half;
    }
    return (int32_t)(base - k->code_point) + (*base < c);
}

static bool has_at(const struct tokenizer *k, int32_t place, int32_t c)
{
    return place < k->vocab && k->code_point[place] == c;
}

static bool fail_vocab(struct error *e)
{
    return refuse(e,
                  "more than %d different characters, the most that the char tokenizer holds; "
                  "try --tokenizer byte",
                  TOKENIZER_VOCAB_MAX);
}

static bool add_char(struct tokenizer *k, int32_t c, struct error *e)
{
    int32_t place = lower_bound(k, c);
    if (has_at(k, place, c))
        return true;
    if (k->vocab == TOKENIZER_VOCAB_MAX)
        return fail_vocab(e);
    memmove(k->code_point + place + 1, k->code_point + place,
            (size_t)(k->vocab - place) * sizeof(k->code_point[0]));
    k->code_point[place] = c;
    k->vocab++;
    return true;
}

static void make_byte(struct tokenizer *k)
{
    *k = (struct tokenizer){.kind = TOKENIZER_BYTE, .vocab = 256};
}

bool tokenizer_build(struct tokenizer *k, enum tokenizer_kind kind, const char *text, int64_t bytes,
                     struct error *e)
{
    make_byte(k);
    if (kind == TOKENIZER_BYTE)
        return true;
    *k = (struct tokenizer){.kind = TOKENIZER_CHAR};
    int length;
    for (int64_t at = 0; at < bytes; at += length) {
        int32_t c;
        length = utf8_read(text + at, bytes - at, &c);
        if (length == 0)
            return fail_binary(e, text, at);
        if (!add_char(k, c, e))
            return false;
    }
    return true;
}

bool tokenizer_next(const struct tokenizer *k, const char *text, int64_t bytes, int64_t *at,
                    int32_t *id, struct error *e)
{
    CHECK(*at >= 0);
    CHECK(*at < bytes);
    if (k->kind == TOKENIZER_BYTE) {
        *id = (unsigned char)text[(*at)++];
        return true;
    }
    int32_t c;
    int length = utf8_read(text + *at, bytes - *at, &c);
    if (length == 0)
        return fail_binary(e, text, *at);
    *id = lower_bound(k, c);
    if (!has_at(k, *id, c))
        return fail_unknown(e, k, c, *at);
    *at += length;
    return true;
}

bool tokenizer_count(const struct tokenizer *k, const char *text, int64_t bytes, int64_t *count,
                     struct error *e)
{
    int32_t id;
    *count = 0;
    for (int64_t at = 0; at < bytes; (*count)++)
        if (!tokenizer_next(k, text, bytes, &at, &id, e))
            return false;
    return true;
}

bool tokenizer_encode(const struct tokenizer *k, const char *text, int64_t bytes, int32_t *ids,
                      struct error *e)
{
    for (int64_t at = 0; at < bytes; ids++)
        if (!tokenizer_next(k, text, bytes, &at, ids, e))
            return false;
    return true;
}

int64_t tokenizer_decode(const struct tokenizer *k, int32_t id, char out[TOKENIZER_TOKEN_BYTES])
{
    CHECK(id >= 0);
    CHECK(id < k->vocab);
    if (k->kind == TOKENIZER_CHAR)
        return utf8_write(k->code_point[id], out);
    out[0] = (char)id;
    return 1;
}

static bool needs_escape(int32_t c)
{
    return c < 0x20 || c == 0x7f || c == '"' || c == '\\' || c == '%';
}

int64_t tokenizer_to_text(const struct tokenizer *k, char out[TOKENIZER_TEXT_BYTES])
{
    static const char hex[] = "0123456789ABCDEF";
    if (k->kind == TOKENIZER_BYTE)
        return (int64_t)strlen(strcpy(out, "byte"));
    char *end = out + strlen(strcpy(out, char_prefix));
    for (int32_t i = 0; i < k->vocab; i++) {
        int32_t c = k->code_point[i];
        if (needs_escape(c)) {
            *end++ = '%';
            *end++ = hex[c >> 4];
            *end++ = hex[c & 15];
        } else {
            end += utf8_write(c, end);
        }
    }
    *end = '\0';
    return end - out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Bytes of the character or escape at text, or 0 if it is neither.
static int read_escaped(const char *text, int64_t bytes, int32_t *c)
{
    if (text[0] != '%')
        return utf8_read(text, bytes, c);
    if (bytes < 3 || hex_digit(text[1]) < 0 || hex_digit(text[2]) < 0)
        return 0;
    *c = hex_digit(text[1]) * 16 + hex_digit(text[2]);
    return *c > 0 && needs_escape(*c) ? 3 : 0;
}

static bool read_chars(struct tokenizer *k, const char *text, struct error *e)
{
    int64_t bytes = (int64_t)strlen(text);
    int length;
    for (int64_t at = 0; at < bytes; at += length) {
        int32_t c;
        length = read_escaped(text + at, bytes - at, &c);
        if (length == 0)
            return refuse(e,
                          "tokenizer 'char:...': offset %" PRId64 " of its characters is neither "
                          "UTF-8 nor an escape like %%0A; try the snapshot as memtape wrote it",
                          at);
        if (k->vocab == TOKENIZER_VOCAB_MAX)
            return fail_vocab(e);
        if (k->vocab > 0 && c <= k->code_point[k->vocab - 1])
            return refuse(e,
                          "tokenizer 'char:...': U+%04" PRIX32 " at offset %" PRId64 " of its "
                          "characters is not above the one before, expected ascending order; try "
                          "the snapshot as memtape wrote it",
                          (uint32_t)c, at);
        k->code_point[k->vocab++] = c;
    }
    return k->vocab > 0 || refuse(e, "tokenizer 'char:' has no characters, expected at least one; "
                                     "try the snapshot as memtape wrote it");
}

bool tokenizer_from_text(struct tokenizer *k, const char *text, struct error *e)
{
    make_byte(k);
    if (strcmp(text, "byte") == 0)
        return true;
    size_t prefix = sizeof(char_prefix) - 1;
    if (strncmp(text, char_prefix, prefix) != 0)
        return refuse(
            e,
            "tokenizer '%.40s' is unknown, expected 'byte' or 'char:' and its characters; "
            "try a snapshot that memtape wrote",
            text);
    *k = (struct tokenizer){.kind = TOKENIZER_CHAR};
    return read_chars(k, text + prefix, e);
}
