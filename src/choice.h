// choice.h - one way to run a training: what fit searches and what a full budget suggests.
//
// A choice is tried on a copy of a configuration; what differs is then spelled as options, and
// these options are what a report prints and what its last dry run is given.
#ifndef SRC_CHOICE_H
#define SRC_CHOICE_H

#include "src/config.h"

enum choice_checkpoint {
    CHECKPOINT_NONE,
    CHECKPOINT_LEAN,
    CHECKPOINT_SELECTIVE,
    CHECKPOINT_FULL,
    CHECKPOINT_AUTO,
    CHECKPOINT_COUNT,
};

const char *choice_checkpoint_name(enum choice_checkpoint c); // as --checkpoint takes it

struct choice {
    int64_t batch, micro_batch, seq, layers;
    int64_t tokens; // of the sample
    enum choice_checkpoint checkpoint;
    bool half;    // segments
    bool chunked; // loss
    enum gpt_attention attention;
    enum optimizer_kind optimizer;
    bool bf16;         // weights and activations, and gradients as config_choose_gradients says
    int64_t lora_rank; // 0: no adapters
};

struct cost {
    int64_t peak_bytes, init_bytes; // init: weights, gradients, optimizer state and batch
    int64_t flops[COST_COUNT];      // of forward, backward and replays
    int64_t recompute_flops, total_flops;
    int64_t passes; // forwards of an optimizer step
    int64_t calls;  // of ops, in all passes; replays are left out
    int64_t params, trained;
};

struct choice choice_of(const struct config *c);

// Dry-runs c as the choice would have it, limit_bytes in place of its --budget (auto obeys it; 0:
// none). False: auto finds nothing, or the configuration cannot be built.
bool choice_measure(const struct config *c, const struct choice *choice, enum config_use use,
                    int64_t limit_bytes, struct cost *cost);

enum { CHOICE_OPTIONS_MAX = 13, CHOICE_TEXT_BYTES = 320 };

struct choice_option {
    const char *name;
    char value[32];
};

// The options that lead from what was said (s, and the choice it stands for) to another choice.
int choice_options(const struct settings *s, enum config_use use, const struct choice *from,
                   const struct choice *to, struct choice_option option[CHOICE_OPTIONS_MAX]);
char *choice_text(const struct choice_option *option, int count, char out[CHOICE_TEXT_BYTES]);

// s with these options. They live as long as `option` does.
bool choice_set(struct settings *s, const struct choice_option *option, int count, struct error *e);

// Builds the configuration anew from s and these options, and dry-runs that. c is what s alone
// stands for: its vocabulary and prompt are taken from there, so no text is read again, and so is
// what --budget-process leaves for the arena.
bool choice_verify(const struct settings *s, const struct config *c, enum config_use use,
                   const struct choice_option *option, int count, struct cost *cost);

// The micro-batches worth trying, largest first: for each number of passes, the smallest that needs
// no more. All of them up to MICRO_BATCHES_MAX, then thinner and down to 1.
enum { MICRO_BATCHES_MAX = 128 };
int choice_micro_batches(int64_t batch, int64_t size[MICRO_BATCHES_MAX]);

// Which of them halving tries next, of [low, high): a larger one needs more. But the whole batch
// may have gradients of bf16 where several micro-batches have f32, and is then tried before all
// others.
int choice_middle(const struct config *c, int low, int high);

// The same mathematics, and other last bits: of attention, or of how gradients are stored.
bool choice_rounds_differently(const struct config *c, const struct choice *a,
                               const struct choice *b);

#endif
