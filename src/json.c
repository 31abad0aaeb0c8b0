#include "src/json.h"

#include "tape/text.h"

#include <errno.h>
#include <string.h>

bool json_open(struct json *j, const char *path, struct error *e)
{
    *j = (struct json){.file = stdout};
    if (strcmp(path, "-") == 0)
        return true;
    j->file = fopen(path, "w");
    j->is_ours = true;
    return j->file != NULL || refuse(e, "--json %s: %s", path, strerror(errno));
}

bool json_close(struct json *j, const char *path, struct error *e)
{
    fputc('\n', j->file);
    bool ok = fflush(j->file) == 0 && !ferror(j->file);
    if (j->is_ours)
        ok &= fclose(j->file) == 0;
    return ok || refuse(e, "--json %s: %s", path, strerror(errno));
}

static void string(struct json *j, const char *text)
{
    fputc('"', j->file);
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(j->file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(j->file, "\\u%04x", *c);
        else
            fputc(*c, j->file);
    }
    fputc('"', j->file);
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
