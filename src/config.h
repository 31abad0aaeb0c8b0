// config.h - from what was said (struct settings) to what will run, checked and complete.
#ifndef SRC_CONFIG_H
#define SRC_CONFIG_H

#include "data/batch.h"
#include "nn/generate.h"
#include "nn/snapshot.h"
#include "nn/step.h"
#include "src/options.h"

enum { CONFIG_PATH_BYTES = 4096, CONFIG_PROMPT_MAX = 1024, CONFIG_SEGMENTS_MAX = 2000 };

struct config {
    char model_name[32]; // of the preset, or "custom" from a snapshot
    struct gpt_config model;
    struct step_config step;
    struct batch_shape shape; // of training batches
    struct generate_config sample;
    int64_t steps, eval_every, eval_batches, save_every;
    int threads;
    bool auto_checkpoint;            // choose policies[] so that a budget holds
    int64_t process_budget_bytes;    // of arena and outside together; 0: none
    int64_t outside_bytes;           // of the process beside the arena; 0: not measured
    int64_t budget_bytes;            // of the arena's peak; 0: none
    int64_t activation_budget_bytes; // of the peak without what stays; 0: none
    bool says_gradients;             // --grad-precision: they follow no rule
    bool lists_all;                  // dry: every micro-batch, not one for all that are alike
    unsigned char policies[CONFIG_SEGMENTS_MAX];
    bool has_data; // data is open
    struct dataset data;
    int32_t prompt[CONFIG_PROMPT_MAX];
    int64_t prompt_count;
    char snapshot_dir[CONFIG_PATH_BYTES]; // weights come from there; "" for a fresh start
    struct snapshot_info snapshot;        // of that; of the base for new adapters
    struct snapshot_base base;            // of adapters
    const char *freeze;                   // patterns; NULL: none
    bool resumes;                         // and so do optimizer state and step
};

enum config_use { CONFIG_TRAIN, CONFIG_PLAN, CONFIG_EVAL, CONFIG_GENERATE, CONFIG_MERGE };

// Reads the snapshot and opens the data where the use needs them. May fill in s (a run that is
// resumed brings its options). On success config_close gives back what is held.
bool config_build(struct config *c, struct settings *s, enum config_use use, struct error *e);
void config_close(struct config *c);

// How gradients are stored, if that was not said. Whoever changes batch or micro-batch asks again.
void config_choose_gradients(struct config *c);

// dir itself if it is a snapshot, or dir/snapshot of a run's directory.
bool config_find_snapshot(const char *dir, char found[CONFIG_PATH_BYTES], struct error *e);

#endif
