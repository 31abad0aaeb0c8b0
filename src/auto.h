// auto.h - --checkpoint auto: what each checkpoint segment recomputes, so that a budget holds and
// the recomputed FLOPs are least.
//
// A multiple-choice knapsack over segments x policies. What a segment keeps, what it holds while it
// runs, and the FLOPs of its replays are read from dry runs, one per policy. While segment i runs,
// the arena holds what segments before it keep and what i itself holds; while the head runs, what
// all keep and the head. So a partial choice is known by two numbers, bytes kept and FLOPs, and of
// two choices the one that is not better in either can be dropped: dynamic programming over the
// segments is exact. The answer is run dry as a whole before it is used, and if it holds more than
// the budget after all (bookkeeping grows with replays), the search is repeated with that much
// less.
#ifndef SRC_AUTO_H
#define SRC_AUTO_H

#include "src/config.h"

// Fills in c->policies and points c->model at them. Refused: a budget that even full recomputation
// exceeds; the message says by how much.
bool auto_choose(struct config *c, struct error *e);

// The policies that it chooses from. Recomputing linears and attention while keeping what norms and
// gelu made of them is left out: a replay would then strand the statistics of the kept norm.
extern const enum tape_policy auto_policies[];
extern const int auto_policy_count;

#endif
