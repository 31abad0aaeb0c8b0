// system.h - what only the operating system knows: resident memory, time, terminals, signals.
#ifndef SRC_SYSTEM_H
#define SRC_SYSTEM_H

#include "tape/base.h"

#include <stdio.h>

int64_t system_resident_bytes(void);      // of this process now; 0 if unknown
int64_t system_peak_resident_bytes(void); // highest so far (VmHWM on Linux); 0 if unknown
// What this machine could still give this process: free memory and what the system would make free,
// or what the limits of its control groups leave. 0 if unknown.
int64_t system_available_bytes(void);

double system_seconds(void);        // monotonic
double system_thread_seconds(void); // that this thread has computed

void system_cpu_name(char *out, size_t bytes); // of the first processor; "unknown processor"

bool system_is_terminal(int fd);
int system_terminal_columns(int fd); // 80 if unknown

// Puts something that refuses to be read or written where standard input, output or error is
// closed: else the next file that is opened would get their number, and their words.
void system_hold_streams(void);

// Makes threads that wait for others spin for some microseconds and then sleep, unless the user has
// said how they should wait. Left alone they spin on, and on a machine with other work to do a step
// takes ten times as long. OpenMP reads this before main: so the program starts itself again, once,
// with it set. Call first in main.
void system_calm_threads(char *const argv[]);

// From now on Ctrl-C sets a flag instead of ending the process; a second one ends it.
void system_catch_interrupt(void);
bool system_was_interrupted(void);

// Creates a directory and what is missing above it.
bool system_make_directory(const char *path, struct error *e);

// Whether both names lead to the same place. False if one leads nowhere.
bool system_is_same_place(const char *a, const char *b);

// Whether a file could be written there, as far as opening one tells; leaves nothing behind. errno
// says why not.
bool system_can_write(const char *path);

// Ends the writing of a file (or of standard output, which stays open). False, with errno, if not
// all could be written: what there is of a file is then removed.
bool system_end_file(FILE *f, const char *path);

enum { SYSTEM_PATH_BYTES = 1024 };

// A fresh directory in $TMPDIR or /tmp. system_remove_tree removes it with all that is in it.
bool system_make_temporary(char path[SYSTEM_PATH_BYTES], struct error *e);
void system_remove_tree(const char *path);

// Where the running program lies; "" if the system does not say.
void system_program(char path[SYSTEM_PATH_BYTES]);

// Runs a program and waits for it. to_stderr: its standard output goes there. *status: its exit
// status, or 128 + the signal that ended it.
bool system_run(const char *path, char *const argv[], bool to_stderr, int *status, struct error *e);

#endif
