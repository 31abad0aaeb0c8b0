// hunt.h - --trap-nan: a run that ends where the first NaN or infinity is made, and says by whom.
#ifndef SRC_HUNT_H
#define SRC_HUNT_H

#include "src/run.h"

#include "tape/trap.h"

struct hunt {
    struct trap trap;
    const struct run *run;
    const char *command;             // for the message
    void (*before_exit)(void *user); // NULL, or what must be done before anything is printed
    void *user;
};

// From here on every op of the run is watched, and what the model holds now is looked at. A finding
// is reported on standard error and ends the program with EXIT_REFUSED: nothing is written then,
// and what is on disk is whole. The caller has set command, before_exit and user.
void hunt_begin(struct hunt *h, struct run *r);

// What no op makes. Without hunt_begin these do nothing.
void hunt_after_gradients(struct run *r); // the token table's, where step.c joins two into one
void hunt_after_update(struct run *r);    // weights and optimizer state

#endif
