// param.h - the weights of a model: a list, in the order in which files and optimizers walk it.
#ifndef NN_PARAM_H
#define NN_PARAM_H

#include "tape/tape.h"

enum { PARAM_NAME_BYTES = 40, PARAM_STATES = 4 };

// How numbers are stored. Arithmetic is done in real whatever this says.
enum precision { PRECISION_REAL, PRECISION_BF16, PRECISION_COUNT };

const char *precision_name(enum precision p); // "f32" ("f64" in that build), "bf16"
enum dtype precision_dtype(enum precision p);

enum param_start { PARAM_ZEROS, PARAM_ONES, PARAM_NORMAL, PARAM_UNIFORM };

struct param {
    struct tensor tensor; // weights and gradient
    struct tensor master; // the weights as reals, if bf16 ones are trained; data NULL without
    // What the optimizer keeps, as stored: data NULL without. A state's name is what follows the
    // parameter's: ".m", ".v", ".m.absmax". Placed by optimizer_init, and so is the master.
    struct tensor state[PARAM_STATES];
    bool is_frozen;   // no gradient, no master, no state
    bool decays;      // weight decay: matrices and embeddings, not biases and norms
    bool is_adapter;  // LoRA's: the base's file has none
    bool is_left_out; // of snapshots: what adapters leave as the base's file has it
    enum param_start start;
    double deviation;            // of PARAM_NORMAL; of PARAM_UNIFORM the largest
    char name[PARAM_NAME_BYTES]; // "h.0.attn.c_attn.weight"
};

struct param_list {
    struct param *param; // bookkeeping, in the arena
    int count, cap;
    enum precision weights;   // of params added from now on ...
    enum precision gradients; // ... and of params_add_grads
};

void params_open(struct param_list *l, struct tape *t, int cap);

// Adds one and places its weights at the low end: (rows, cols), or (cols) if rows is 0. Values are
// those of params_start.
struct param *param_add(struct param_list *l, struct tape *t, int64_t rows, int64_t cols,
                        enum param_start start, double deviation, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

// The weights that training starts from: a function of (seed, place in the list, element). Masters
// that are there get them whole, and bf16 weights rounded.
void params_start(struct param_list *l, struct tape *t, uint64_t seed);
void params_start_adapters(struct param_list *l, struct tape *t, uint64_t seed); // of those alone

// Freezes what any of `patterns` fits, a list with commas of names as fnmatch(3) knows them:
// "wte.*,h.0.*". Refused: a pattern that fits none, and one that leaves nothing to train.
bool params_freeze(struct param_list *l, const char *patterns, struct error *e);

// Of all that are not frozen.
void params_add_grads(struct param_list *l, struct tape *t);
void params_zero_grads(struct param_list *l, struct tape *t);

int64_t params_count(const struct param_list *l);     // elements of all
int64_t params_trainable(const struct param_list *l); // of those that are not frozen

struct param *param_find(const struct param_list *l, const char *name); // NULL if there is none

#endif
