// cmd_info.c - memtape info DIR: what a snapshot holds, from its files alone.
#include "src/commands.h"
#include "nn/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct command command = {
    .name = "info",
    .summary =
        "Says what a snapshot holds (DIR of train --out, or in it): model, step, optimizer,\n"
        "tokenizer, and its files.",
    .operand = "DIR",
    .groups = OPTIONS_REPORT};

struct found {
    char dir[CONFIG_PATH_BYTES];
    struct snapshot_info info;
    struct tokenizer tokenizer;
    bool has_tokenizer;
    int64_t parameters; // elements of the model's file
    struct {
        bool exists;
        int64_t bytes, tensors;
    } file[SNAPSHOT_FILES];
};

static bool look_at_file(struct found *f, enum snapshot_file i, struct error *e)
{
    char path[SNAPSHOT_PATH_BYTES];
    struct stat s;
    struct safetensors t;
    if (!snapshot_path(f->dir, i, path, e))
        return false;
    if (i == SNAPSHOT_OPTIMIZER && stat(path, &s) != 0 && errno == ENOENT)
        return true; // a model without its optimizer is still a model
    if (!safetensors_open(&t, path, e))
        return false;
    f->file[i].exists = true;
    f->file[i].bytes = t.file_bytes;
    f->file[i].tensors = t.tensor_count;
    for (int64_t k = 0; i == SNAPSHOT_MODEL && k < t.tensor_count; k++)
        f->parameters += safetensors_count(&t.tensor[k]);
    safetensors_close(&t);
    return true;
}

static bool look(struct found *f, const char *dir, struct error *e)
{
    if (!config_find_snapshot(dir, f->dir, e) || !snapshot_read_info(f->dir, &f->info, e))
        return false;
    f->info.model.weights = f->info.weights;
    f->has_tokenizer = f->info.tokenizer[0] != 0;
    if (f->has_tokenizer && !tokenizer_from_text(&f->tokenizer, f->info.tokenizer, e))
        return false;
    for (int i = 0; i < SNAPSHOT_FILES; i++)
        if (!look_at_file(f, (enum snapshot_file)i, e))
            return false;
    return true;
}

static const char *optimizer_words(const struct found *f)
{
    return f->info.optimizer[0] != 0 ? f->info.optimizer : "none";
}

static const char *tokenizer_words(const struct found *f)
{
    if (!f->has_tokenizer)
        return "none";
    return f->tokenizer.kind == TOKENIZER_BYTE ? "byte" : "char";
}

// The file's numbers are then the adapters', and trained biases.
static void adapter_lines(const struct found *f)
{
    const struct lora_config *l = &f->info.model.lora;
    const struct snapshot_base *base = &f->info.base;
    char targets[LORA_TARGETS_BYTES];
    if (l->rank == 0)
        return;
    printf("  adapters    rank %lld, alpha %g, of %s; biases %s\n", (long long)l->rank, l->alpha,
           lora_write_targets(l->targets, targets), l->trains_bias ? "trained" : "the base's");
    if (base->dir[0] != 0)
        printf("  base        %s, of hash %016llx\n", base->dir, (unsigned long long)base->hash);
    else
        printf("  base        fresh weights of seed %llu\n", (unsigned long long)base->seed);
}

static void table(const struct found *f)
{
    const struct gpt_config *m = &f->info.model;
    printf("%s\n", f->dir);
    printf(
        "  model       %lld parameters%s in %s; %lld layers, %lld heads, width %lld, context %lld, "
        "vocabulary %lld\n",
        (long long)f->parameters, m->lora.rank > 0 ? " of adapters" : "",
        precision_name(m->weights), (long long)m->layers, (long long)m->heads, (long long)m->width,
        (long long)m->context, (long long)m->vocab);
    printf("              head %s, %s biases, dropout %g\n", m->tie ? "tied" : "untied",
           m->bias ? "with" : "without", m->dropout);
    adapter_lines(f);
    printf("  step        %lld\n", (long long)f->info.step);
    printf("  optimizer   %s\n", optimizer_words(f));
    printf("  tokenizer   %s, %d tokens\n", tokenizer_words(f), f->tokenizer.vocab);
    for (int i = 0; i < SNAPSHOT_FILES; i++)
        if (f->file[i].exists)
            printf("  %-22s %12lld bytes, %lld tensors\n",
                   snapshot_file_name((enum snapshot_file)i), (long long)f->file[i].bytes,
                   (long long)f->file[i].tensors);
}

static bool write_json(const struct found *f, const char *path, struct error *e)
{
    struct json j;
    if (!json_open(&j, path, e))
        return false;
    json_object(&j, NULL);
    json_text(&j, "dir", f->dir);
    report_gpt_json(&j, NULL, &f->info.model, f->parameters, -1);
    if (f->info.model.lora.rank > 0)
        json_text(&j, "base", f->info.base.dir);
    json_int(&j, "step", f->info.step);
    json_text(&j, "optimizer", optimizer_words(f));
    json_object(&j, "tokenizer");
    json_text(&j, "kind", tokenizer_words(f));
    json_int(&j, "vocab", f->tokenizer.vocab);
    json_end(&j);
    json_array(&j, "files");
    for (int i = 0; i < SNAPSHOT_FILES; i++) {
        if (!f->file[i].exists)
            continue;
        json_object(&j, NULL);
        json_text(&j, "name", snapshot_file_name((enum snapshot_file)i));
        json_int(&j, "bytes", f->file[i].bytes);
        json_int(&j, "tensors", f->file[i].tensors);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    return json_close(&j, path, e);
}

int cmd_info(int argc, char **argv)
{
    static struct settings s;
    static struct found f;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    if (!look(&f, s.operand, &e))
        return command_refuse(command.name, &e);
    if (s.quiet <= 0 && !json_is_stdout(s.json))
        table(&f);
    return s.json == NULL || write_json(&f, s.json, &e) ? EXIT_OK
                                                        : command_refuse(command.name, &e);
}
