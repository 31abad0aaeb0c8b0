// check.h - memtape check: the laws of exactness, tried on a user's own configuration.
//
// A check runs variants of a few optimizer steps, one after the other, each planned and then run
// in exactly the bytes of its plan. The first one is the reference: what it leaves is kept in an
// arena of its own (as reals, for AdamW four per weight; every number that is stored in less has a
// real of its own), and what the others leave is compared with that.
#ifndef SRC_CHECK_H
#define SRC_CHECK_H

#include "src/check_report.h"
#include "tape/array.h"

enum check_subject { // what is compared, of every parameter
    CHECK_GRADIENT,  // after the first step
    CHECK_WEIGHT,    // after the last
    CHECK_MASTER,
    CHECK_STATE, // the optimizer's first, and so on
    CHECK_SUBJECTS = CHECK_STATE + PARAM_STATES,
};

enum { CHECK_STEPS = 2, CHECK_STEPS_MAX = 64 };

struct check {
    struct settings settings;
    int argc; // of the command
    char **argv;
    struct config given;  // what the user said
    struct config config; // of the variant that is next or runs
    struct run run;
    int64_t budget_bytes; // of --budget; `given` has none: a reference may need more
    int64_t split; // sequences of a micro-batch, fewer than the batch if it has more than one
    struct check_report report;
    struct tape store; // an arena of its own: all that the pointers below lead to
    int64_t param_count, element_count;
    real *kept[CHECK_SUBJECTS];          // of each what there is, in the order of the parameters
    real *spare[2];                      // element_count each, for --naive
    struct check_difference *difference; // a row of CHECK_SUBJECTS for each parameter
    int32_t *tokens, *targets;           // of a file; NULL: the data's
    char verdict[256];                   // of a check that does not count bits
    bool rounds;          // gradients are stored as bf16: no bits are compared, but with a bound
    double *sum_norms[2]; // of each parameter's sums so far: the reference's, the variant's
    double worst_relative, worst_share; // error to norm, and to the bound
    int64_t steps;                      // that each variant takes: --steps, or CHECK_STEPS
    double reference_seconds;           // of the reference's fastest step
    double kept_loss[CHECK_STEPS_MAX], kept_norm[CHECK_STEPS_MAX];
};

// Steps [first, last) of `steps`. Gradients of step 0 are compared, and what the last one leaves.
struct check_part {
    const char *name;
    int64_t first, last, steps;
    bool is_reference;   // kept, not compared
    const char *save_to; // a snapshot of what it leaves; NULL: none
};

// Plans and runs it as k->config says, and reports it. False: it could not be run.
bool check_run(struct check *k, const struct check_part *p, struct error *e);

// The batch of r's next step, with the targets that are to be ignored.
void check_fill(const struct check *k, struct run *r);

// What is compared, and kept: a gradient for every weight, of the others what there is. count: its
// elements; at NULL: there is none.
struct array check_subject(const struct param *p, enum check_subject s, int64_t *count);

// x is real, bf16 or, of a state, codes of 8 bits.
struct check_difference check_compare(struct array x, const real *reference, int64_t n);
void check_compare_number(struct check_difference *d, double x, double reference); // one more
double check_norm(const real *x, int64_t n);

// The checks. False (and e): one could not be done. What is broken is in the report.
bool check_accumulate(struct check *k, struct error *e);
bool check_checkpoint(struct check *k, struct error *e);
bool check_threads(struct check *k, struct error *e);
bool check_resume(struct check *k, struct error *e);
bool check_gradients(struct check *k, struct error *e); // in double: here, or by the f64 program
bool check_against(struct check *k, struct error *e);   // --against FILE

// What the classic mistakes would have made of the first step: a part of check_accumulate.
bool check_naive(struct check *k, struct error *e);

// --tokens, or --against if that file holds tokens too. First their shape, into --batch and --seq,
// before the configuration is built; then themselves, into k->tokens and k->targets.
bool check_tokens_shape(struct check *k, struct error *e);
bool check_tokens_read(struct check *k, struct error *e);

#endif
