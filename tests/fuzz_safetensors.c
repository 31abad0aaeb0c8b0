// fuzz_safetensors.c - whatever the bytes, a file is refused in one line or read whole: for
// libFuzzer,
//
//   clang -std=c11 -I. -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz_safetensors.c
//       nn/safetensors.c tape/base.c -o build/fuzz_safetensors && build/fuzz_safetensors
//       -max_len=400
#include "nn/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void read_whole(const struct safetensors *f)
{
    real values[256];
    uint8_t raw[sizeof(values)];
    int64_t end = 0;
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const struct safetensors_tensor *t = &f->tensor[i];
        CHECK(safetensors_find(f, t->name) == t);
        CHECK(t->begin == end && t->end >= t->begin);
        end = t->end;
        if (t->end - t->begin > (int64_t)sizeof(raw) || safetensors_count(t) > COUNT_OF(values))
            continue;
        CHECK(safetensors_read_bytes(f, t, raw, NULL));
        bool is_real = t->dtype == DTYPE_F32 || t->dtype == DTYPE_F64;
        CHECK(safetensors_read(f, t, values, NULL) == is_real);
    }
    CHECK(f->data_start + end == f->file_bytes);
    for (int64_t i = 0; i < f->pair_count; i++)
        CHECK(safetensors_metadata(f, f->metadata[i].key) == f->metadata[i].value);
    CHECK(safetensors_find(f, "__metadata__") == NULL);
}

static void try_file(const uint8_t *bytes, int64_t count)
{
    struct safetensors f;
    struct error e = {""};
    if (safetensors_open_memory(&f, "fuzz", bytes, count, &e))
        read_whole(&f);
    else
        CHECK(strncmp(e.text, "'fuzz': ", 8) == 0 && strchr(e.text, '\n') == NULL);
    safetensors_close(&f);
}

// As it is; and with a header's length that fits, so that mutations of the header get past it: the
// last bytes are data, as many as the first byte says.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    try_file(bytes, (int64_t)count);
    if (count < 8)
        return 0;
    uint8_t *fitting = malloc(count);
    CHECK(fitting != NULL);
    memcpy(fitting, bytes, count);
    uint64_t data = bytes[0] & 31, rest = count - 8;
    uint64_t length = data < rest ? rest - data : rest;
    memcpy(fitting, &length, 8);
    try_file(fitting, (int64_t)count);
    free(fitting);
    return 0;
}
