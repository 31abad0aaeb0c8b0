// snapshot_int.h - what a snapshot holds (snapshot.c) meets where it stands (snapshot_place.c).
#ifndef NN_SNAPSHOT_INT_H
#define NN_SNAPSHOT_INT_H

#include "nn/snapshot.h"

// Writes one of the files, at this path, whole and synced.
typedef bool snapshot_write_fn(enum snapshot_file f, const char *path, const void *user,
                               struct error *e);

// Makes a new snapshot beside dir, each of its files by `write`, and puts it in dir's place.
bool snapshot_replace(const char *dir, snapshot_write_fn *write, const void *user, struct error *e);

#endif
