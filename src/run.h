// run.h - one run of the program: planned dry, reserved to the byte, then done.
//
// run_measure runs the same calls on memory that may not be touched. What it leaves in the ledger
// is the plan; run_open reserves exactly that.
#ifndef SRC_RUN_H
#define SRC_RUN_H

#include "src/config.h"

struct run;

// Calls that a run makes in place of a training's: dry for the plan, as they are in the run.
typedef bool run_calls_fn(struct run *r, void *user, struct error *e);

struct run {
    const struct config *config;
    enum config_use use;
    struct tape tape;
    struct gpt gpt;
    struct step step;         // CONFIG_TRAIN and CONFIG_EVAL
    struct generate generate; // while a sample is made
    struct plan plan;
    // What the arena calls if a plan was wrong, before its CHECK: for the caller of run_reserve.
    void (*on_full)(struct arena *a, const struct ledger_label *label, int64_t bytes);
    run_calls_fn *calls; // NULL: a training's
    void *calls_user;
};

// Leaves r->tape open and dry, its ledger holding the whole plan: init, a validation and a sample
// if the run will make them, and last one optimizer step, whose nodes stay on the tape.
bool run_measure(struct run *r, const struct config *c, enum config_use use, struct error *e);

// Gradients and optimizer state are a part of it.
bool run_trains(const struct run *r);

// After run_measure: reserves what it found, touches it, and fills in weights (fresh, or the
// snapshot's). False: nothing is held.
bool run_reserve(struct run *r, struct error *e);
bool run_open(struct run *r, const struct config *c, enum config_use use, struct error *e); // both
void run_close(struct run *r);

// The same for what is used in another way: the plan is of `calls`, with the model made, and its
// gradients and optimizer state if that use trains. The caller makes the calls once the run is
// open.
bool run_open_for(struct run *r, const struct config *c, enum config_use use, run_calls_fn *calls,
                  void *user, struct error *e);

// What there is now, as a snapshot.
bool run_save(const struct run *r, const char *dir, struct error *e);

// Validation loss, mean over targets: `batches` batches spread over the split, 0: all of it.
bool run_validate(struct run *r, int64_t batches, double *loss, int64_t *counted, struct error *e);

// Continues the prompt; each token's text goes to `out`, NULL if nobody is to see it.
struct run_text {
    void (*out)(void *user, const char *text, int64_t bytes);
    void *user;
};
void run_sample(struct run *r, struct run_text text);

#endif
