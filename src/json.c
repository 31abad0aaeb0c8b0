#include "src/json.h"

#include "src/system.h"
#include "tape/text.h"

#include <errno.h>
#include <string.h>

bool json_is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

bool json_open(struct json *j, const char *path, struct error *e)
{
    *j = (struct json){.file = stdout};
    if (json_is_stdout(path))
        return true;
    j->file = fopen(path, "w");
    return j->file != NULL || refuse(e, "--json %s: %s", path, strerror(errno));
}

bool json_close(struct json *j, const char *path, struct error *e)
{
    fputc('\n', j->file);
    return system_end_file(j->file, path) || refuse(e, "--json %s: %s", path, strerror(errno));
}

// How many bytes a character has whose first byte this is; 0: none begins so.
static int utf8_bytes(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

// May c follow? No longer form than needed, no surrogates, nothing above U+10FFFF.
static bool utf8_follows(const char *partial, int count, unsigned char c)
{
    unsigned char first = (unsigned char)partial[0];
    unsigned char low = 0x80, high = 0xbf;
    if (count == 1) {
        low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    }
    return c >= low && c <= high;
}

static void give_up_partial(struct json *j)
{
    if (j->partial_count > 0)
        fputs("\\ufffd", j->file);
    j->partial_count = 0;
}

static void first_byte(struct json *j, unsigned char c)
{
    if (c == '"' || c == '\\')
        fprintf(j->file, "\\%c", c);
    else if (c < 0x20)
        fprintf(j->file, "\\u%04x", c);
    else if (c < 0x80)
        fputc(c, j->file);
    else if (utf8_bytes(c) == 0)
        fputs("\\ufffd", j->file);
    else
        j->partial[j->partial_count++] = (char)c;
}

void json_text_more(struct json *j, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (j->partial_count == 0 || !utf8_follows(j->partial, j->partial_count, c)) {
            give_up_partial(j);
            first_byte(j, c);
            continue;
        }
        j->partial[j->partial_count++] = (char)c;
        if (j->partial_count == utf8_bytes((unsigned char)j->partial[0])) {
            fwrite(j->partial, 1, (size_t)j->partial_count, j->file);
            j->partial_count = 0;
        }
    }
}

void json_text_end(struct json *j)
{
    give_up_partial(j);
    fputc('"', j->file);
}

static void string(struct json *j, const char *text)
{
    fputc('"', j->file);
    json_text_more(j, text, (int64_t)strlen(text));
    json_text_end(j);
}

static void indent(struct json *j)
{
    if (j->in_line)
        return;
    fputc('\n', j->file);
    for (int i = 0; i < j->depth; i++)
        fputs("  ", j->file);
}

static void begin(struct json *j, const char *key)
{
    if (j->depth > 0) {
        if (j->has_item[j->depth - 1])
            fputs(j->in_line ? ", " : ",", j->file);
        j->has_item[j->depth - 1] = true;
        indent(j);
    }
    if (key != NULL) {
        string(j, key);
        fputs(": ", j->file);
    }
}

static void enter(struct json *j, const char *key, bool is_array)
{
    begin(j, key);
    CHECK(j->depth < JSON_DEPTH_MAX);
    fputc(is_array ? '[' : '{', j->file);
    j->has_item[j->depth] = false;
    j->is_array[j->depth++] = is_array;
}

void json_object(struct json *j, const char *key)
{
    enter(j, key, false);
}

void json_array(struct json *j, const char *key)
{
    enter(j, key, true);
}

void json_end(struct json *j)
{
    CHECK(j->depth > 0);
    bool had_item = j->has_item[--j->depth];
    if (had_item)
        indent(j);
    fputc(j->is_array[j->depth] ? ']' : '}', j->file);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    begin(j, key);
    fprintf(j->file, "%lld", (long long)value);
}

void json_real(struct json *j, const char *key, double value)
{
    char number[TEXT_NUMBER_BYTES];
    begin(j, key);
    fputs(text_from_double(value, number), j->file);
}

void json_text(struct json *j, const char *key, const char *value)
{
    begin(j, key);
    string(j, value);
}

void json_bool(struct json *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", j->file);
}

void json_text_begin(struct json *j, const char *key)
{
    begin(j, key);
    fputc('"', j->file);
}

void json_null(struct json *j, const char *key)
{
    begin(j, key);
    fputs("null", j->file);
}

void json_copy(struct json *j, const char *key, FILE *from)
{
    bool has_break = false;
    begin(j, key);
    for (int c = fgetc(from); c != EOF; c = fgetc(from)) {
        if (has_break)
            indent(j); // line breaks stand between items only, never in a string
        has_break = c == '\n' && !j->in_line;
        if (c != '\n')
            fputc(c, j->file);
    }
}
