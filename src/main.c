// main.c - `memtape COMMAND ...`: finds the command and runs it.
#include "src/commands.h"
#include "src/system.h"

#include "tape/blas.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"train", cmd_train, "train a GPT; ends with a sample and the memory table"},
    {"plan", cmd_plan, "what train would hold, without training"},
    {"sweep", cmd_sweep, "plans for several values of options, as table and plot"},
    {"ladder", cmd_ladder, "what each way to store less does to one model"},
    {"fit", cmd_fit, "how to train within a number of bytes, fastest first"},
    {"generate", cmd_generate, "text from a snapshot"},
    {"eval", cmd_eval, "loss of a snapshot over the whole validation split"},
    {"ledger", cmd_ledger, "every tensor of one training step"},
    {"tape", cmd_tape, "the nodes of one training step, in order"},
    {"ops", cmd_ops, "all ops: formula, what backward needs, what is kept"},
    {"info", cmd_info, "what a snapshot holds"},
    {"merge", cmd_merge, "adapters and their base as one model"},
    {"check", cmd_check, "the laws of exactness, on a configuration of yours"},
    {"bench", cmd_bench, "training rate against the BLAS's own"},
};

static void usage(FILE *f)
{
    fprintf(f, "memtape: training memory, accounted for to the byte\n\nusage: memtape COMMAND "
               "[--option value ...]\n\n");
    for (int i = 0; i < COUNT_OF(commands); i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(f, "\n`memtape COMMAND --help` lists a command's options.\n");
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return EXIT_REFUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("memtape 0.1 (%s, %s)\n", dtype_name(DTYPE_REAL), blas_name());
        return EXIT_OK;
    }
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    struct error e;
    refuse(&e, "no such command: `memtape --help` lists what there is");
    return command_refuse(argv[1], &e);
}

// A command that could not say what it had to say has failed, whatever it returned.
int main(int argc, char **argv)
{
    struct error e;
    system_hold_streams();
    system_calm_threads(argv);
    int status = run(argc, argv);
    bool said = fflush(stdout) == 0 && !ferror(stdout);
    if (said || status != EXIT_OK)
        return status;
    refuse(&e, "cannot write to standard output: %s", strerror(errno));
    return command_refuse(argv[1], &e);
}
