// outside.h - the bytes of the process that are not ours: code, libc, the text, thread stacks, the
// BLAS's buffers. Measured, once and before anything is reserved, on the machine that will run.
#ifndef SRC_OUTSIDE_H
#define SRC_OUTSIDE_H

#include "src/config.h"

// Makes this process touch what a run of c will touch beside its arena (threads, products of the
// model's sizes), and reads its resident bytes into c->outside_bytes: 10 ms. 0 where the system
// does not tell. What a budget of the process has had measured stays.
bool outside_measure(struct config *c, struct error *e);

// Refuses a run whose arena and outside together are more than the machine has available now: it
// would swap, or be killed. Silent where the system does not tell.
bool outside_check(int64_t arena_bytes, int64_t outside_bytes, struct error *e);

#endif
