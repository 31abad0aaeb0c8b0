#include "src/hunt.h"

#include "src/commands.h"

#include <stdio.h>
#include <stdlib.h>

static void stop(struct trap *trap, void *user)
{
    const struct hunt *h = user;
    enum ledger_phase phase = trap->first.phase;
    long long done = (long long)h->run->step.steps_done;
    if (h->before_exit != NULL)
        h->before_exit(h->user);
    fprintf(stderr, "memtape %s: ", h->command);
    if (trap->first.op != NULL && run_trains(h->run)) {
        if (phase == PHASE_EVAL || phase == PHASE_GENERATE)
            fprintf(stderr, "after step %lld: ", done);
        else
            fprintf(stderr, "step %lld: ", done + 1);
    }
    fprintf(stderr, "%s\n", trap->text);
    exit(EXIT_REFUSED);
}

// Codes are not numbers: what they mean is their block's largest value times something below 1.
static void look_at(struct run *r, const struct param *p, const struct tensor *x,
                    const char *suffix, const char *when)
{
    struct tensor named = *x; // a state is called by what follows its parameter's name
    named.name = p->name;
    if (x->data != NULL && x->dtype != DTYPE_U8)
        trap_values(&r->tape, &named, tensor_data(x), suffix, when);
}

static void look_at_values(struct run *r, const char *when)
{
    struct param_list *l = &r->gpt.params;
    for (int i = 0; i < l->count; i++) {
        const struct param *p = &l->param[i];
        look_at(r, p, &p->tensor, "", when);
        look_at(r, p, &p->master, ".master", when);
        for (int k = 0; k < PARAM_STATES; k++)
            look_at(r, p, &p->state[k], p->state[k].name, when);
    }
}

void hunt_begin(struct hunt *h, struct run *r)
{
    h->run = r;
    h->trap = (struct trap){.on_found = stop, .user = h};
    r->tape.trap = &h->trap;
    look_at_values(r, "before the first op");
}

void hunt_after_gradients(struct run *r)
{
    const struct tensor *wte = &r->gpt.wte->tensor;
    if (wte->grad != NULL)
        trap_values(&r->tape, wte, tensor_grad(wte), ".grad",
                    "once all that adds to it had done so");
}

void hunt_after_update(struct run *r)
{
    char when[64];
    snprintf(when, sizeof(when), "after the update of step %lld", (long long)r->step.steps_done);
    if (r->tape.trap != NULL)
        look_at_values(r, when);
}
