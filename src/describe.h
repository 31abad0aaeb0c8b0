// describe.h - ops, nodes and tensors in words, for tables and JSON.
#ifndef SRC_DESCRIBE_H
#define SRC_DESCRIBE_H

#include "src/json.h"
#include "tape/tape.h"

enum { DESCRIBE_BYTES = 128 };

// "in0, in1, out"; "nothing". Returns out.
char *describe_needs(const struct op *o, char out[DESCRIBE_BYTES]);
const char *describe_cost(const struct op *o);     // "cheap", "gemm", "attention"
const char *describe_takes(const struct op *o);    // "in1 as out", "" for nothing
const char *describe_gradient(const struct op *o); // "written", "in place", ...

// "(12,64,128)"; "()" without dims. Returns out.
char *describe_shape(int dim_count, const int64_t *dim, char out[DESCRIBE_BYTES]);
void describe_shape_json(struct json *j, const char *key, int dim_count, const int64_t *dim);

#endif
