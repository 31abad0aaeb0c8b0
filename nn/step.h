// step.h - ONE optimizer step: the function to read first.
//
//   gradients   for each micro-batch: forward, backward with seed 1 / counted targets of the whole
//               effective batch; then the embedding's own gradient, where it has one, joins wte's
//   update      norm, clip, rate of the schedule, optimizer; once
//
// Whatever the split into micro-batches, no bit of gradients, losses or weights changes.
#ifndef NN_STEP_H
#define NN_STEP_H

#include "nn/gpt.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"

struct step_config {
    int64_t batch;            // sequences of one optimizer step: the effective batch
    int64_t micro_batch;      // sequences of one forward; the last one may be smaller
    int64_t seq;              // T
    uint64_t seed;            // of dropout
    enum precision gradients; // of parameters
    bool is_sketch;           // dry only: of equal micro-batches one is run and counted for all
    struct optimizer_config optimizer;
    struct schedule schedule;
};

bool step_config_check(const struct step_config *c, const struct gpt_config *model,
                       struct error *e);

struct step { // what training holds besides the model
    struct step_config config;
    struct gpt *gpt;
    int32_t *tokens, *targets; // (batch, seq), filled by the caller; targets may be TARGET_IGNORED
    int32_t *slots;            // row of embedding.grad for each token; NULL: its id
    int32_t *slot_ids;         // and back
    int32_t slot_count;
    struct tensor embedding; // wte again, with a gradient of its own: see embedding_is_apart
    int64_t steps_done;
    // Told whenever gradients hold another sum so far: after each micro-batch of step_gradients,
    // and when a table's two were joined. May look, not touch. NULL: nobody asks.
    void (*on_sums)(const struct step *s, void *user);
    void *on_sums_user;
};

struct step_result {
    double loss;          // mean over counted targets
    int64_t counted;      // targets that are not ignored
    double gradient_norm; // before clipping
    double rate;
};

// Places the batch and, if the model is to be trained, gradients and optimizer state. The model's
// weights are there already.
void step_init(struct step *s, struct tape *t, struct gpt *g, const struct step_config *c,
               bool trains);

// Gradients of the batch in s->tokens and s->targets into every parameter. Refused: ids outside the
// vocabulary, or not a single counted target. (A dry run looks at neither.)
bool step_gradients(struct step *s, struct tape *t, struct step_result *r, struct error *e);
// Uses them up: norm, clip, update.
void step_update(struct step *s, struct tape *t, struct step_result *r);

// Sum of losses over the counted targets of rows of (samples, seq), and their count, added to the
// two totals; forward only, at most micro_batch samples.
bool step_evaluate(struct step *s, struct tape *t, const int32_t *tokens, const int32_t *targets,
                   int64_t samples, double *loss_sum, int64_t *counted, struct error *e);

#endif
