// test_sealed.c - from the first step to the last, with validation, logging and saving, and through
// the sample and the reports, no code of ours asks anybody for memory.
//
// The linker sends our calls of malloc and its kin here (--wrap); calls that libraries make among
// themselves are not ours. cmd_train runs as a user runs it; its first call of step_gradients
// seals, run_close unseals.
#define _DEFAULT_SOURCE
#include "src/commands.h"
#include "tests/test.h"

#include <sys/mman.h>
#include <unistd.h>

#ifdef __APPLE__ // its linker cannot redirect calls

static void training_asks_for_no_memory(void **state)
{
    (void)state;
    skip();
}

#else

static bool sealed;
static int steps, calls_before, calls_sealed;
static const char *offender;

static void count(const char *who)
{
    calls_before += !sealed;
    calls_sealed += sealed;
    if (sealed)
        offender = who;
}

bool __real_step_gradients(struct step *s, struct tape *t, struct step_result *r, struct error *e);
bool __wrap_step_gradients(struct step *s, struct tape *t, struct step_result *r, struct error *e);
bool __wrap_step_gradients(struct step *s, struct tape *t, struct step_result *r, struct error *e)
{
    sealed = !tape_is_dry(t);
    steps += sealed;
    return __real_step_gradients(s, t, r, e);
}

void __real_run_close(struct run *r);
void __wrap_run_close(struct run *r);
void __wrap_run_close(struct run *r)
{
    sealed = false;
    __real_run_close(r);
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        count(#name);                                                                              \
        return __real_##name arguments;                                                            \
    }

WRAP(void *, malloc, (size_t n), (n))
WRAP(void *, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, realloc, (void *p, size_t n), (p, n))
WRAP(void *, mmap, (void *p, size_t n, int a, int b, int c, off_t d), (p, n, a, b, c, d))
WRAP(int, brk, (void *p), (p))
WRAP(void *, sbrk, (intptr_t n), (n))
WRAP(int, posix_memalign, (void **p, size_t a, size_t n), (p, a, n))
WRAP(void *, aligned_alloc, (size_t a, size_t n), (a, n))

static void train(const char *checkpoint, const char *attention)
{
    char dir[] = "/tmp/memtape sealed XXXXXX", out[64], json[64], gradients[80];
    assert_non_null(mkdtemp(dir));
    snprintf(out, sizeof(out), "%s/out", dir);
    snprintf(json, sizeof(json), "%s/report.json", dir);
    snprintf(gradients, sizeof(gradients), "%s/gradients", dir);
    char *argv[] = {"train",
                    "--model",
                    "tiny",
                    "--steps",
                    "4",
                    "--batch",
                    "5",
                    "--micro-batch",
                    "2",
                    "--eval-every",
                    "2",
                    "--save-every",
                    "1",
                    "--out",
                    out,
                    "--json",
                    json,
                    "--dropout",
                    "0.1",
                    "--sample-tokens",
                    "9",
                    "--top-k",
                    "5",
                    "--checkpoint",
                    (char *)checkpoint,
                    "--attention",
                    (char *)attention,
                    "--save-gradients",
                    gradients,
                    "--threads",
                    "2",
                    "--quiet"};
    steps = calls_before = calls_sealed = 0;
    offender = "nobody";
    assert_int_equal(cmd_train(COUNT_OF(argv), argv), 0);
    assert_int_equal(steps, 4);
    assert_true(calls_before > 0); // the data and the arena: the test does listen
    assert_string_equal(offender, "nobody");
    assert_int_equal(calls_sealed, 0);
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void training_asks_for_no_memory(void **state)
{
    (void)state;
    train("none", "tiled");
    train("full", "naive");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(training_asks_for_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
