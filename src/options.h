// options.h - the command line: one table of all options, from which parsing, --help, --config
// files and the command that a report suggests are all made.
//
// --name value, --name=value, --flag, --no-flag. A file of `name = value` lines gives the same
// options; the command line wins. A value in such a file may stand in quotes ("a # b\n").
#ifndef SRC_OPTIONS_H
#define SRC_OPTIONS_H

#include "tape/base.h"

enum option_group {     // which commands take it
    OPTIONS_COMMON = 1, // what runs a model
    OPTIONS_MODEL = 2,
    OPTIONS_DATA = 4,
    OPTIONS_TRAIN = 8,
    OPTIONS_RUN = 16, // what makes files
    OPTIONS_SAMPLE = 32,
    OPTIONS_TABLE = 64,
    OPTIONS_EVAL = 128,
    OPTIONS_REPORT = 256, // a part of OPTIONS_COMMON: what only reads
    OPTIONS_SWEEP = 512,
    OPTIONS_FIT = 1024,
    OPTIONS_PLAN = 2048,
    OPTIONS_CHECK = 4096,
    OPTIONS_BASE = 8192, // what reads a model and trains nothing
    OPTIONS_MERGE = 16384,
};

enum option_kind { OPTION_FLAG, OPTION_INT, OPTION_REAL, OPTION_TEXT };

// Everything that can be said. Unset: UNSET_INT, NAN, NULL; flags: -1. config.c knows the defaults.
#define UNSET_INT INT64_MIN

enum { SETTINGS_VALUES_BYTES = 1 << 13 };

struct settings {
    const char *model, *data, *tokenizer, *order, *optimizer, *attention, *checkpoint, *segments;
    const char *budget, *activation_budget, *budget_process;
    const char *tokens, *against;
    const char *init, *out, *resume, *save_gradients, *json, *csv, *config, *prompt, *sort;
    const char *plot, *plot_y;
    const char *allow;
    const char *loss, *precision, *grad_precision, *activation_precision;
    const char *params;
    const char *lora, *lora_targets, *lora_bias, *freeze;
    int64_t layers, heads, width, context, vocab;
    int64_t batch, micro_batch, seq, steps, warmup, decay_steps, seed, threads;
    int64_t eval_every, eval_batches, save_every, sample, top_k, top, shards, slopes;
    int64_t generate, prompt_tokens;
    double dropout, lr, min_lr, weight_decay, beta1, beta2, clip, temperature;
    double ignore, tolerance;
    int force, bias, tie, quiet, help, run, cache, explain, naive, empty_micro_batch, verbose;
    int trap_nan, kv_cache;
    const char *command;                // its name, for messages
    const char *operand;                // the argument that is no option: a snapshot
    char values[SETTINGS_VALUES_BYTES]; // of text options that a file gave
    size_t values_used;
};

void settings_clear(struct settings *s);

// argv[0] is the command's name and is skipped. `operand`: whether one argument without a name may
// stand there. Unknown options and impossible values are refused with what was expected.
bool options_parse(struct settings *s, unsigned groups, bool operand, int argc, char *const argv[],
                   struct error *e);

// Reads `name = value` lines; # begins a comment. Options outside `groups` are refused. What is set
// already stays.
bool options_read_file(struct settings *s, unsigned groups, const char *path, struct error *e);

// Writes what is set as such a file, whole or not at all. False (and e) if that fails.
bool options_write_file(const struct settings *s, unsigned groups, const char *path,
                        struct error *e);

void options_help(unsigned groups);

// What an option takes, for who reads the command line before options_parse does. A word is a
// number, a choice or a short name: no path and no text of any length.
struct option_form {
    enum option_kind kind;
    bool is_word;
};

// False if these groups have no option whose name is the first `length` bytes of `name`.
bool options_find(unsigned groups, const char *name, size_t length, struct option_form *form);

// What is set in these groups as " --name value ..." for a POSIX shell; what does not fit in
// `bytes` is cut off.
void options_command(const struct settings *s, unsigned groups, char *out, size_t bytes);

// Sets one option by its name, as the command line would.
bool options_set(struct settings *s, unsigned groups, const char *name, const char *value,
                 struct error *e);

#endif
