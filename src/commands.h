// commands.h - the subcommands. Each parses its own options, says what went wrong on standard
// error, and returns the exit status.
#ifndef SRC_COMMANDS_H
#define SRC_COMMANDS_H

#include "src/report.h"

int cmd_train(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_ledger(int argc, char **argv);
int cmd_tape(int argc, char **argv);
int cmd_ops(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_ladder(int argc, char **argv);
int cmd_fit(int argc, char **argv);
int cmd_merge(int argc, char **argv);

enum { EXIT_OK = 0, EXIT_REFUSED = 1, EXIT_INTERRUPTED = 130 };

// Prints "memtape COMMAND: text" on standard error, nothing if the text is empty; returns
// EXIT_REFUSED.
int command_refuse(const char *command, const struct error *e);

// Config c measured, and held to its --budget. False: e says why not, or all has been said and e is
// empty (command_refuse then adds nothing). The first leaves the dry run open, the second the real
// one. Refused runs hold nothing.
bool command_measure(struct run *r, struct config *c, const struct settings *s, enum config_use use,
                     struct error *e);
bool command_open(struct run *r, struct config *c, const struct settings *s, enum config_use use,
                  struct error *e);

struct command {
    const char *name, *summary, *operand; // operand: "DIR", or NULL
    unsigned groups;
};

// Clears s, parses, and answers --help. True to go on; else *status is the exit status.
bool command_begin(const struct command *c, struct settings *s, int argc, char **argv, int *status);

// config_build, and --checkpoint auto made concrete.
bool command_config(struct config *c, struct settings *s, enum config_use use, struct error *e);

#endif
