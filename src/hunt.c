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

static void look_at_values(struct run *r, const char *when)
{
    struct param_list *l = &r->gpt.params;
    for (int i = 0; i < l->count; i++) {
        const struct param *p = &l->param[i];
        trap_values(&r->tape, &p->tensor, array_of(p->tensor.data, p->tensor.dtype), "", when);
        if (p->m.data != NULL)
            trap_values(&r->tape, &p->m, array_of(p->m.data, p->m.dtype), ".m", when);
        if (p->v.data != NULL)
            trap_values(&r->tape, &p->v, array_of(p->v.data, p->v.dtype), ".v", when);
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
    if (r->tape.trap != NULL && r->gpt.config.tie)
        trap_values(&r->tape, wte, array_of(wte->grad, wte->grad_dtype), ".grad",
                    "once the gradients of its two uses were added");
}

void hunt_after_update(struct run *r)
{
    char when[64];
    snprintf(when, sizeof(when), "after the update of step %lld", (long long)r->step.steps_done);
    if (r->tape.trap != NULL)
        look_at_values(r, when);
}
