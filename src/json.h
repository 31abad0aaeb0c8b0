// json.h - JSON out, printed as it is made: nothing is built or kept.
#ifndef SRC_JSON_H
#define SRC_JSON_H

#include "tape/base.h"

#include <stdio.h>

enum { JSON_DEPTH_MAX = 16 };

struct json {
    FILE *file;
    bool in_line; // no line breaks: one object per line
    int depth;
    bool has_item[JSON_DEPTH_MAX];
    bool is_array[JSON_DEPTH_MAX];
    char partial[4]; // the bytes so far of a character of more than one
    int partial_count;
};

bool json_is_stdout(const char *path); // "-"; false for NULL: no such output

// path: a file, or "-" for standard output.
bool json_open(struct json *j, const char *path, struct error *e);
bool json_close(struct json *j, const char *path, struct error *e); // and a final line break

// key NULL: an item of an array, or the outermost value.
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end(struct json *j);
void json_int(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value); // null if it is not finite
void json_text(struct json *j, const char *key, const char *value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
void json_copy(struct json *j, const char *key, FILE *from); // a file that holds one JSON value

// A text in pieces, which may part a character. What is no UTF-8 becomes U+FFFD.
void json_text_begin(struct json *j, const char *key);
void json_text_more(struct json *j, const char *text, int64_t bytes);
void json_text_end(struct json *j);

#endif
