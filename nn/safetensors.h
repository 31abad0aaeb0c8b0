// safetensors.h - tensors in a file that many programs read: written without allocating, read
// without trusting a byte.
//
// The format (github.com/huggingface/safetensors): 8 bytes, the header's length, little-endian;
// the header, JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
// offsets counted from the header's end; the data, row-major, without holes. "__metadata__" maps
// strings to strings.
//
// A reader refuses, in one line that names the file, the tensor, what it got and what it expected,
// whatever breaks that, and what it cannot hold: dtypes other than F32, F64, BF16, I32 and U8, more
// than SAFETENSORS_DIMS dimensions, a header above SAFETENSORS_HEADER_BYTES. It allocates in
// proportion to a header that is really there, never to a number that a file claims.
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H

#include "tape/array.h"

enum {
    SAFETENSORS_DIMS = 8,
    SAFETENSORS_HEADER_BYTES = 64 << 20,
    SAFETENSORS_SHOWN_BYTES = 256,
};

struct safetensors_pair {
    const char *key, *value;
};

// ---- writing: no malloc, a few KiB of stack ----

struct safetensors_entry {
    const char *name, *suffix; // joined; suffix may be NULL. name NULL: nothing to write for this i
    enum dtype dtype;
    int dim_count;      // 0: one element
    const int64_t *dim; // a 0 among them: no elements
    const void *data;
    bool widens; // data are bf16, dtype is that of reals: as which they are written
};

// Entry i of a file, the same every time it is asked: once to measure the header, once to write
// it, once for the data. Names differ; readers that want aligned data get wide dtypes first.
typedef struct safetensors_entry safetensors_entry_fn(const void *user, int64_t i);

// Writes and syncs `path` itself. A failed write (a full disk) removes what it began.
bool safetensors_write(const char *path, safetensors_entry_fn *entry, const void *user,
                       int64_t count, const struct safetensors_pair *metadata, int pair_count,
                       struct error *e);

// ---- reading: before training, since it allocates ----

struct safetensors_tensor {
    const char *name;
    enum dtype dtype;
    int dim_count;
    int64_t dim[SAFETENSORS_DIMS];
    int64_t begin, end; // bytes, from the header's end
};

struct safetensors {
    struct safetensors_tensor *tensor; // in the order of their data
    int64_t tensor_count;
    struct safetensors_pair *metadata; // by key
    int64_t pair_count;
    struct safetensors_tensor **by_name;
    const char *path;     // for messages
    const uint8_t *bytes; // the whole file, or NULL: it is behind fd
    int fd;               // -1 without
    int64_t file_bytes, data_start;
    char *block; // owned: header, path and the tables above
};

// Checks all that the header says. The data is read later, by the functions below.
bool safetensors_open(struct safetensors *f, const char *path, struct error *e);
// The same of a file that is in memory and stays there; path is for messages.
bool safetensors_open_memory(struct safetensors *f, const char *path, const void *bytes,
                             int64_t count, struct error *e);
void safetensors_close(struct safetensors *f); // also after a refusal; twice does no harm

// NULL if there is none.
const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name);
const char *safetensors_metadata(const struct safetensors *f, const char *key);

int64_t safetensors_count(const struct safetensors_tensor *t); // elements

// All elements, as they are, into end - begin bytes.
bool safetensors_read_bytes(const struct safetensors *f, const struct safetensors_tensor *t,
                            void *out, struct error *e);
// F32, F64 and BF16 alike, rounded to nearest if `out` holds less; other dtypes are refused. As
// reals, or as `out` stores them.
bool safetensors_read(const struct safetensors *f, const struct safetensors_tensor *t, real *out,
                      struct error *e);
bool safetensors_read_array(const struct safetensors *f, const struct safetensors_tensor *t,
                            struct array out, struct error *e);

// 64 bits of all data, header aside: enough to tell files apart by accident, not by intent.
bool safetensors_hash(const struct safetensors *f, uint64_t *hash, struct error *e);

// ---- words for messages ----

// A text from a file as a message can hold it: no control characters, and not for ever. Returns
// out.
char *safetensors_shown(const char *text, char out[SAFETENSORS_SHOWN_BYTES]);
// "[2, 3]"; returns out.
char *safetensors_shape_text(int dim_count, const int64_t *dim, char out[SAFETENSORS_SHOWN_BYTES]);

#endif
