// snapshot.h - a model and its optimizer on disk: always a whole one, the old or the new.
//
// A snapshot is a directory that holds two safetensors files and nothing else:
//
//   model.safetensors      weights by their parameter's name, as they are stored (F32 or BF16);
//                          metadata: format, version, step, dtype, tokenizer and struct
//                          gpt_config, but for how segments are cut, which policy each of them
//                          has, whether the loss is chunked and how activations are stored: the
//                          next run decides those anew
//   optimizer.safetensors  what it keeps, as it is stored: NAME.m and NAME.v for adamw, no tensor
//                          for sgd (nn/optimizer.c lists them all); NAME.master if weights are
//                          BF16; metadata: format, version, step, optimizer
//
// Version 1 knew F32 alone. Its snapshots are read as if they were of version 2.
//
// Of a model with adapters the first holds adapters, and biases if those are trained, and no more;
// its metadata say how they adapt, and which base: where it stands, and a hash of its weights.
//
// Writing. Invariants that hold after a kill at any instruction:
//   1. DIR is whole, or absent; once written it is never absent unless DIR.memtape-old is whole
//   2. a reader that finds no DIR looks at DIR.memtape-old
//   3. DIR.memtape-tmp may be left behind: half of a new snapshot, or an old one that was about to
//      be removed. The next write removes it
// How: snapshot_place.c.
#ifndef NN_SNAPSHOT_H
#define NN_SNAPSHOT_H

#include "nn/gpt.h"

enum {
    SNAPSHOT_PATH_BYTES = 4096,
    SNAPSHOT_OPTIMIZER_BYTES = 16,
    SNAPSHOT_TOKENIZER_BYTES = 32 << 10,
};

enum snapshot_file { SNAPSHOT_MODEL, SNAPSHOT_OPTIMIZER, SNAPSHOT_FILES };

const char *snapshot_file_name(enum snapshot_file f); // "model.safetensors"

// Where a reader looks for it: in dir, or in what a writer has moved aside. It may not be there.
bool snapshot_path(const char *dir, enum snapshot_file f, char path[SNAPSHOT_PATH_BYTES],
                   struct error *e);

// What adapters adapt.
struct snapshot_base {
    char dir[SNAPSHOT_PATH_BYTES]; // a snapshot; "": weights as training starts from, of this seed
    uint64_t seed;
    uint64_t hash; // of the snapshot's weights
};

struct snapshot_info {
    struct gpt_config model;
    enum precision weights;                   // that the file's are stored in; for a reader
    struct snapshot_base base;                // of adapters
    int64_t step;                             // optimizer steps taken
    char optimizer[SNAPSHOT_OPTIMIZER_BYTES]; // "" read from a snapshot without an optimizer file
    char tokenizer[SNAPSHOT_TOKENIZER_BYTES]; // the caller's text, UTF-8
};

// Creates the directories above dir, too. Replaces a snapshot; refuses to replace anything else: a
// file, a link, a directory that holds what is not a snapshot's. No malloc. A refusal leaves what
// was there.
bool snapshot_write(const char *dir, const struct snapshot_info *info,
                    const struct param_list *params, struct error *e);

// Reading allocates: before training. The parameters are those of info->model, in place but
// without values; a tensor that is missing, of another shape or unknown to the model is refused
// before any value is read. Weights are rounded or widened into what the parameters are stored as;
// masters then hold what the file says, until the optimizer's file says more.
bool snapshot_read_info(const char *dir, struct snapshot_info *info, struct error *e);
bool snapshot_read_weights(const char *dir, struct param_list *params, struct error *e);
// All but the adapters, from another snapshot.
bool snapshot_read_base(const char *dir, struct param_list *params, struct error *e);
// Where it stands and what it hashes to; refused if a snapshot could not name it.
bool snapshot_find_base(const char *dir, struct snapshot_base *base, struct error *e);
// Into masters and states where there are any. step, optimizer: what the model file and the caller
// say.
bool snapshot_read_optimizer(const char *dir, struct param_list *params, int64_t step,
                             const char *optimizer, struct error *e);

// Whether b has the weights of a. The message names the field that differs, a's value as the
// snapshot's and b's as the one asked for. Dropout, attention and checkpoint policy may differ.
bool snapshot_same_model(const struct gpt_config *a, const struct gpt_config *b, struct error *e);
// Whether they are the same adapters, in the same way.
bool snapshot_same_adapters(const struct lora_config *a, const struct lora_config *b,
                            struct error *e);

// All gradients by their parameter's name, as one safetensors file. No malloc.
bool snapshot_write_gradients(const char *path, const struct param_list *params, struct error *e);

#endif
