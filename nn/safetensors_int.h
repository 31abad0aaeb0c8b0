// safetensors_int.h - what the reader, the header's parser and the writer of safetensors share.
#ifndef NN_SAFETENSORS_INT_H
#define NN_SAFETENSORS_INT_H

#include "nn/safetensors.h"

enum {
    SAFETENSORS_PREFIX_BYTES = 8,
    SAFETENSORS_CHUNK_BYTES = 16 << 10,   // of stack
    SAFETENSORS_TRANSFER_BYTES = 1 << 30, // in one system call; some systems take no 2 GiB
};

extern const char *const safetensors_dtype[DTYPE_COUNT]; // as files spell them: "F32"

// Bytes of the UTF-8 character at text, 0 if it is none: no surrogates, nothing overlong.
int safetensors_utf8_bytes(const char *text, int64_t left);

// Bytes of a tensor of this shape; false if they do not fit.
bool safetensors_shape_bytes(int dim_count, const int64_t *dim, int64_t element_bytes,
                             int64_t *bytes);

// Makes f->block that large; what is in it stays.
bool safetensors_grow(struct safetensors *f, int64_t bytes, struct error *e);

// Reads the header of `bytes` bytes at the start of f->block, followed by room for a zero, into
// f's tables.
bool safetensors_parse(struct safetensors *f, int64_t bytes, struct error *e);

#endif
