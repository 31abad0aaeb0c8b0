// gradcheck.h - are the gradients right? Compares them with slopes measured by finite differences.
//
// A caller gives a function that builds its loss from persistent tensors. gradcheck_run leaves the
// analytic gradients in them; gradcheck_compare nudges the elements of one of them and measures how
// the loss moves. Nothing is allocated: the gradient stays where training puts it.
//
//   numeric = (8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / (12 h)      error h^4 f^(5) / 30
//
// In double the two agree to about 1e-10 where f is smooth; in float to about 1e-3, which is for
// running the code, not for judging it.
#ifndef TAPE_GRADCHECK_H
#define TAPE_GRADCHECK_H

#include "tape/tape.h"

// What passes in each build, relative to the norm of the gradient.
#ifdef TAPE_F64
#define GRADCHECK_TOLERANCE 1e-7
#else
#define GRADCHECK_TOLERANCE 5e-3
#endif

// Builds the loss on an empty tape, in an open scope; what counts is the sum of its elements. Must
// do the same each time: dropout with the same key, the same batch.
typedef struct tensor *gradcheck_fn(struct tape *t, void *user);

struct gradcheck { // of one tensor, over the elements that were compared
    int64_t count;
    double analytic_norm, numeric_norm, error_norm; // 2-norms; error: analytic - numeric
    int64_t worst;                                  // the element with the largest error,
    double worst_analytic, worst_numeric;           // and its two slopes
};

// Adds the gradients of the loss to every parameter: clear them first. Returns the loss.
double gradcheck_run(struct tape *t, gradcheck_fn *loss, void *user);

// Compares x->grad with numeric slopes, for at most count_max elements spread evenly over x. Leaves
// data and gradients as they were. 4 forwards and 4 backwards (of zeros) per element.
struct gradcheck gradcheck_compare(struct tape *t, gradcheck_fn *loss, void *user, struct tensor *x,
                                   int64_t count_max);

// ||analytic - numeric|| <= tolerance ||analytic||; absolutely, if the analytic one is exactly 0.
bool gradcheck_passes(const struct gradcheck *c, double tolerance);

#endif
