// sweep.h - plans (and runs) of every combination of options that were given several values.
//
// Each combination is a command line of its own, with one value in the place of each list, and
// goes through the same parsing, checking and dry run as `memtape plan`.
#ifndef SRC_SWEEP_H
#define SRC_SWEEP_H

#include "src/commands.h"
#include "src/value_list.h"

enum {
    SWEEP_AXES_MAX = 8,
    SWEEP_ROWS_MAX = 1024,
    SWEEP_ARGS_MAX = 256,
    SWEEP_STEPS_MAX = 1000, // of a measured run
    SWEEP_NAME_BYTES = 32,
    SWEEP_COMMAND_BYTES = 2048,
};

struct sweep_axis { // an option that was given several values
    char name[SWEEP_NAME_BYTES];
    enum option_kind kind;
    struct value_list list;
    char arg[SWEEP_NAME_BYTES + VALUE_LIST_BYTES + 4]; // "--seq=64": stands in the command line
};

enum sweep_amount { // what is known of each combination; bytes, then FLOPs of one optimizer step
    SWEEP_WEIGHTS,
    SWEEP_GRADIENTS,
    SWEEP_OPTIMIZER_STATE,
    SWEEP_SAVED_ACTIVATIONS, // the most that was kept for backward
    SWEEP_ACTIVATION_SIDE,   // see ledger_activation_side
    SWEEP_PEAK_BYTES,
    SWEEP_FORWARD_FLOPS,
    SWEEP_BACKWARD_FLOPS,
    SWEEP_RECOMPUTE_FLOPS,
    SWEEP_OVER_BUDGET_BYTES,   // only with a budget of the arena or the process; 0: it fits
    SWEEP_MEASURED_PEAK_BYTES, // from here on only with --run
    SWEEP_STEP_SECONDS,
    SWEEP_TOKENS_PER_SECOND,
    SWEEP_AMOUNT_COUNT,
};

enum sweep_unit { SWEEP_BYTES, SWEEP_FLOPS, SWEEP_SECONDS, SWEEP_RATE };

const char *sweep_amount_name(enum sweep_amount a); // "saved_activations"
enum sweep_unit sweep_amount_unit(enum sweep_amount a);

struct sweep_row {
    int at[SWEEP_AXES_MAX];            // which value of each axis
    int64_t count[SWEEP_STEP_SECONDS]; // the amounts that are bytes or FLOPs
    enum ledger_phase peak_phase;
    double step_seconds, tokens_per_second; // with --run; of the median step
};

double sweep_amount(const struct sweep_row *r, enum sweep_amount a);

struct sweep {
    struct settings settings; // of the latest combination
    struct sweep_axis axis[SWEEP_AXES_MAX];
    int axis_count;
    char *arg[SWEEP_ARGS_MAX];
    int arg_count;
    char command[SWEEP_COMMAND_BYTES]; // as it was typed, without what names files
    struct sweep_row row[SWEEP_ROWS_MAX];
    int row_count;
    bool has_runs, has_budget;
    struct config config; // of the combination at work
    struct run run;
};

bool sweep_knows(const struct sweep *s, enum sweep_amount a); // with these options

// Finds the lists in the command line. Refused: a bad list, too many combinations.
bool sweep_read(struct sweep *s, unsigned groups, int argc, char **argv, struct error *e);

// Puts the values of row `i` into the command line. The first axis varies slowest.
void sweep_choose(struct sweep *s, int i);

// Plans row `i`, whose settings are in s->settings; sweep_run also runs it.
bool sweep_plan(struct sweep *s, int i, struct error *e);
bool sweep_run(struct sweep *s, int i, struct error *e);

// "--attention naive --seq 32": the values of row i, of all axes but `but` (-1: all). Returns out.
char *sweep_describe(const struct sweep *s, int i, int but, char out[256]);

#endif
