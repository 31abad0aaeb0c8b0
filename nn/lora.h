// lora.h - low-rank adapters (Hu et al. 2021, arXiv 2106.09685): a linear's frozen weights W (O,I)
// work as W + alpha / r B A, and A (r,I) and B (O,r) are what is trained.
//
//   y = x W^T + b;   h = x A^T;   y += alpha / r h B^T
//
// A starts uniform in +-1/sqrt(I), B with zeros, as in loralib and PEFT: an adapted model starts as
// its base. An adapter may be of some rows of W only: q, k and v are thirds of the fused qkv.
#ifndef NN_LORA_H
#define NN_LORA_H

#include "nn/param.h"

enum lora_target {
    LORA_Q = 1, // rows of qkv
    LORA_K = 2,
    LORA_V = 4,
    LORA_QKV = 8,   // all its rows in one adapter
    LORA_PROJ = 16, // behind attention
    LORA_FC = 32,   // the MLP's first linear, and its second
    LORA_DOWN = 64,
    LORA_HEAD = 128, // may be tied: then to the table as the head reads it
    LORA_ALL = LORA_QKV | LORA_PROJ | LORA_FC | LORA_DOWN, // of the blocks
};

enum { LORA_PARTS_MAX = 3, LORA_TARGETS_BYTES = 64 };

struct lora_config {
    int64_t rank; // 0: no adapters
    double alpha;
    unsigned targets; // OR of enum lora_target
    bool trains_bias; // biases of linears and norms, too
};

// rank against `width`, the least that any target reads or makes.
bool lora_config_check(const struct lora_config *c, int64_t width, struct error *e);

// "q,v": names as above, in lower case, or "all". Refuses what is unknown, and parts beside the
// whole.
bool lora_read_targets(const char *text, unsigned *targets, struct error *e);
char *lora_write_targets(unsigned targets, char out[LORA_TARGETS_BYTES]); // and back

struct lora_part {
    struct param *a, *b;
    int64_t first;    // row of W
    const char *name; // "q"; "" if it is of all rows
};

struct lora { // of one linear
    struct lora_part part[LORA_PARTS_MAX];
    int count;
    double factor; // alpha / rank
};

// How many params those targets of c add that are among `of`, if there is one linear of each.
int64_t lora_param_count(const struct lora_config *c, unsigned of);

struct lora_linear {  // that may be adapted: W (out, in)
    const char *stem; // "h.0.attn.c_attn", as in "h.0.attn.c_attn.q.lora_A.weight"
    int64_t out, in;
    enum lora_target target; // of its first part
    int parts;               // of as many rows each
};

// Adds A and B for those parts of w whose targets are in c.
void lora_add(struct lora *l, struct tape *t, struct param_list *params,
              const struct lora_config *c, const struct lora_linear *w);

// All that is in the list so far is the base: frozen, and left out of snapshots, but for the biases
// if they are trained. Before lora_add.
void lora_freeze(struct param_list *params, const struct lora_config *c);

// y with the adapters' products added, by nodes called after `name`. l NULL: y.
struct tensor *lora_forward(struct tape *t, const struct lora *l, const char *name,
                            struct tensor *x, struct tensor *y);

// w += alpha / r B A: what a model without adapters needs to do the same.
void lora_merge(const struct lora *l, struct tensor *w);

#endif
