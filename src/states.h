// states.h - what weights, gradients and optimizer state of so many parameters take by the rule of
// thumb, without a model: formulas of src/rules.h, labelled as such. GB are 1e9 bytes.
#ifndef SRC_STATES_H
#define SRC_STATES_H

#include "src/json.h"

// "1B", "350M", "7.5e9", "124439808": 1 to 1e15 parameters. k, M, B and T are powers of 1000.
bool states_parse(const char *text, int64_t *params, struct error *e);

// shards: devices that share (ZeRO); 0: nobody asked.
void states_table(FILE *f, int64_t params, int64_t shards);
void states_json(struct json *j, int64_t params, int64_t shards);

#endif
