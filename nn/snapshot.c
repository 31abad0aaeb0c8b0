#define _DEFAULT_SOURCE
#include "nn/snapshot_int.h"

#include "nn/safetensors_int.h"
#include "tape/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = SNAPSHOT_PATH_BYTES };

static const char format_name[] = "memtape";
static const char format_version[] = "2";

// ---- what the files hold ---------------------------------------------------------------

static struct safetensors_entry entry_of(const struct param *p, const char *suffix,
                                         const struct tensor *x, const real *data, enum dtype dtype)
{
    CHECK(data == NULL || tensor_is_contiguous(x));
    return (struct safetensors_entry){.name = data != NULL ? p->name : NULL,
                                      .suffix = suffix,
                                      .dtype = dtype,
                                      .dim_count = x->dim_count,
                                      .dim = x->dim,
                                      .data = data};
}

static struct safetensors_entry weight_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i];
    return entry_of(p, NULL, &p->tensor, p->is_left_out ? NULL : p->tensor.data, p->tensor.dtype);
}

static struct safetensors_entry base_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i];
    return entry_of(p, NULL, &p->tensor, p->is_adapter ? NULL : p->tensor.data, p->tensor.dtype);
}

static struct safetensors_entry gradient_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i];
    struct safetensors_entry x = entry_of(p, NULL, &p->tensor, p->tensor.grad, DTYPE_REAL);
    x.widens = p->tensor.grad_dtype == DTYPE_BF16;
    return x;
}

enum { STATE_ENTRIES = PARAM_STATES + 1 }; // of a parameter: its master and its states

static struct safetensors_entry state_entry(const void *user, int64_t i)
{
    const struct param *p = &((const struct param_list *)user)->param[i / STATE_ENTRIES];
    int64_t k = i % STATE_ENTRIES;
    const struct tensor *x = k == 0 ? &p->master : &p->state[k - 1];
    return entry_of(p, x->name, x, x->data, x->dtype);
}

static const struct {
    const char *name;
    size_t offset;
} sizes[] = {
    {"layers", offsetof(struct gpt_config, layers)},
    {"heads", offsetof(struct gpt_config, heads)},
    {"width", offsetof(struct gpt_config, width)},
    {"context", offsetof(struct gpt_config, context)},
    {"vocab", offsetof(struct gpt_config, vocab)},
};

static int64_t *size_field(struct gpt_config *c, int i)
{
    return (int64_t *)((char *)c + sizes[i].offset);
}

static int64_t size_value(const struct gpt_config *c, int i)
{
    return *(const int64_t *)((const char *)c + sizes[i].offset);
}

static const char *yes_no(bool b)
{
    return b ? "true" : "false";
}

// ---- adapters --------------------------------------------------------------------------

enum { ADAPTER_PAIRS = 7 };

struct adapter_texts {
    char rank[TEXT_NUMBER_BYTES], alpha[TEXT_NUMBER_BYTES], targets[LORA_TARGETS_BYTES];
    char seed[TEXT_NUMBER_BYTES], hash[TEXT_NUMBER_BYTES];
};

// Returns how many pairs it fills in: none without adapters.
static int adapter_pairs(struct safetensors_pair *pair, struct adapter_texts *text,
                         const struct snapshot_info *info)
{
    const struct lora_config *c = &info->model.lora;
    if (c->rank == 0)
        return 0;
    snprintf(text->rank, sizeof(text->rank), "%" PRId64, c->rank);
    snprintf(text->seed, sizeof(text->seed), "%" PRIu64, info->base.seed);
    snprintf(text->hash, sizeof(text->hash), "%016" PRIx64, info->base.hash);
    const struct safetensors_pair all[ADAPTER_PAIRS] = {
        {"lora_rank", text->rank},
        {"lora_alpha", text_from_double(c->alpha, text->alpha)},
        {"lora_targets", lora_write_targets(c->targets, text->targets)},
        {"lora_bias", c->trains_bias ? "all" : "none"},
        {"base", info->base.dir},
        {"base_seed", text->seed},
        {"base_hash", text->hash},
    };
    memcpy(pair, all, sizeof(all));
    return ADAPTER_PAIRS;
}

static bool write_model(const char *path, const struct snapshot_info *info,
                        const struct param_list *params, struct error *e)
{
    char step[TEXT_NUMBER_BYTES], dropout[TEXT_NUMBER_BYTES];
    char size[COUNT_OF(sizes)][TEXT_NUMBER_BYTES];
    const struct gpt_config *c = &info->model;
    snprintf(step, sizeof(step), "%" PRId64, info->step);
    struct adapter_texts adapters;
    enum { PLAIN = 10, ALL = PLAIN + COUNT_OF(sizes) };
    struct safetensors_pair pair[ALL + ADAPTER_PAIRS] = {
        {"format", format_name},
        {"version", format_version},
        {"step", step},
        {"dtype", precision_name(params->weights)},
        {"bias", yes_no(c->bias)},
        {"tie", yes_no(c->tie)},
        {"dropout", text_from_double(c->dropout, dropout)},
        {"attention", gpt_attention_name(c->attention)},
        {"checkpoint", tape_policy_name(c->checkpoint)},
        {"tokenizer", info->tokenizer},
    };
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        snprintf(size[i], sizeof(size[i]), "%" PRId64, size_value(c, i));
        pair[PLAIN + i] = (struct safetensors_pair){sizes[i].name, size[i]};
    }
    int count = ALL + adapter_pairs(pair + ALL, &adapters, info);
    return safetensors_write(path, weight_entry, params, params->count, pair, count, e);
}

static bool write_optimizer(const char *path, const struct snapshot_info *info,
                            const struct param_list *params, struct error *e)
{
    char step[TEXT_NUMBER_BYTES];
    snprintf(step, sizeof(step), "%" PRId64, info->step);
    const struct safetensors_pair pair[] = {
        {"format", format_name},
        {"version", format_version},
        {"step", step},
        {"optimizer", info->optimizer},
    };
    return safetensors_write(path, state_entry, params, STATE_ENTRIES * (int64_t)params->count,
                             pair, COUNT_OF(pair), e);
}

bool snapshot_write_gradients(const char *path, const struct param_list *params, struct error *e)
{
    const struct safetensors_pair pair[] = {{"format", format_name}, {"holds", "gradients"}};
    return safetensors_write(path, gradient_entry, params, params->count, pair, COUNT_OF(pair), e);
}

struct contents {
    const struct snapshot_info *info;
    const struct param_list *params;
};

static bool write_file(enum snapshot_file f, const char *path, const void *user, struct error *e)
{
    const struct contents *c = user;
    return f == SNAPSHOT_MODEL ? write_model(path, c->info, c->params, e)
                               : write_optimizer(path, c->info, c->params, e);
}

bool snapshot_write(const char *dir, const struct snapshot_info *info,
                    const struct param_list *params, struct error *e)
{
    return snapshot_replace(dir, write_file, &(struct contents){info, params}, e);
}

// ---- reading ---------------------------------------------------------------------------

static bool fail_value(const struct safetensors *f, const char *key, const char *value,
                       const char *expected, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], shown[SAFETENSORS_SHOWN_BYTES];
    return refuse(e, "'%s': metadata %s: got %s%s%s, expected %s", safetensors_shown(f->path, path),
                  key, value != NULL ? "'" : "",
                  value != NULL ? safetensors_shown(value, shown) : "none",
                  value != NULL ? "'" : "", expected);
}

static bool get_int(const struct safetensors *f, const char *key, int64_t *v, struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    if (value != NULL && text_to_int64(value, v) && *v >= 0)
        return true;
    return fail_value(f, key, value, "a whole number of at least 0", e);
}

static bool get_bool(const struct safetensors *f, const char *key, bool *v, struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    *v = value != NULL && strcmp(value, "true") == 0;
    if (*v || (value != NULL && strcmp(value, "false") == 0))
        return true;
    return fail_value(f, key, value, "true or false", e);
}

static bool get_text(const struct safetensors *f, const char *key, char *out, size_t bytes,
                     struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    if (value == NULL || strlen(value) >= bytes)
        return fail_value(f, key, value, "a text that is not longer than ours", e);
    memcpy(out, value, strlen(value) + 1);
    return true;
}

static enum precision precision_of(const struct safetensors *f)
{
    const char *value = safetensors_metadata(f, "dtype");
    bool is_bf16 = value != NULL && strcmp(value, precision_name(PRECISION_BF16)) == 0;
    return is_bf16 ? PRECISION_BF16 : PRECISION_REAL;
}

static bool get_config(const struct safetensors *f, struct gpt_config *c, struct error *e)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (!get_int(f, sizes[i].name, size_field(c, i), e))
            return false;
    if (!get_bool(f, "bias", &c->bias, e) || !get_bool(f, "tie", &c->tie, e))
        return false;
    const char *value = safetensors_metadata(f, "dropout");
    if (value == NULL || !text_to_double(value, &c->dropout))
        return fail_value(f, "dropout", value, "a number", e);
    int a = 0, p = 0;
    value = safetensors_metadata(f, "attention");
    while (a < GPT_ATTENTION_COUNT && value != NULL &&
           strcmp(value, gpt_attention_name((enum gpt_attention)a)) != 0)
        a++;
    if (value == NULL || a == GPT_ATTENTION_COUNT)
        return fail_value(f, "attention", value, "naive or tiled", e);
    value = safetensors_metadata(f, "checkpoint");
    while (p < POLICY_COUNT && value != NULL &&
           strcmp(value, tape_policy_name((enum tape_policy)p)) != 0)
        p++;
    if (value == NULL || p == POLICY_COUNT)
        return fail_value(f, "checkpoint", value, "the name of a policy", e);
    c->attention = (enum gpt_attention)a;
    c->checkpoint = (enum tape_policy)p;
    return true;
}

static bool get_uint64(const struct safetensors *f, const char *key, int base, uint64_t *v,
                       struct error *e)
{
    const char *value = safetensors_metadata(f, key);
    char *end = NULL;
    errno = 0;
    *v = value != NULL && isxdigit((unsigned char)value[0]) ? strtoull(value, &end, base) : 0;
    if (end != NULL && *end == 0 && errno == 0)
        return true;
    return fail_value(f, key, value, base == 16 ? "16 hexadecimal digits" : "a whole number", e);
}

static bool get_adapters(const struct safetensors *f, struct snapshot_info *info, struct error *e)
{
    struct lora_config *c = &info->model.lora;
    struct error inner;
    if (safetensors_metadata(f, "lora_rank") == NULL)
        return true;
    if (!get_int(f, "lora_rank", &c->rank, e))
        return false;
    const char *alpha = safetensors_metadata(f, "lora_alpha");
    const char *targets = safetensors_metadata(f, "lora_targets");
    const char *bias = safetensors_metadata(f, "lora_bias");
    if (alpha == NULL || !text_to_double(alpha, &c->alpha))
        return fail_value(f, "lora_alpha", alpha, "a number", e);
    if (targets == NULL || !lora_read_targets(targets, &c->targets, &inner))
        return fail_value(f, "lora_targets", targets, "names of linears", e);
    c->trains_bias = bias != NULL && strcmp(bias, "all") == 0;
    if (!c->trains_bias && (bias == NULL || strcmp(bias, "none") != 0))
        return fail_value(f, "lora_bias", bias, "none or all", e);
    return get_text(f, "base", info->base.dir, sizeof(info->base.dir), e) &&
           get_uint64(f, "base_seed", 10, &info->base.seed, e) &&
           get_uint64(f, "base_hash", 16, &info->base.hash, e);
}

static bool check_config(const struct safetensors *f, const struct gpt_config *c, struct error *e)
{
    struct error inner;
    char path[SAFETENSORS_SHOWN_BYTES];
    if (gpt_config_check(c, &inner))
        return true;
    return refuse(e, "'%s': %.600s", safetensors_shown(f->path, path), inner.text);
}

// 1: all weights and states are reals, and so read as what they are now.
static bool is_known_version(const char *version)
{
    return strcmp(version, "1") == 0 || strcmp(version, format_version) == 0;
}

static bool open_part(struct safetensors *f, const char *dir, enum snapshot_file file,
                      struct error *e)
{
    char path[PATH_BYTES];
    if (!snapshot_path(dir, file, path, e) || !safetensors_open(f, path, e))
        return false;
    const char *format = safetensors_metadata(f, "format");
    const char *version = safetensors_metadata(f, "version");
    bool ok = true;
    if (format == NULL || strcmp(format, format_name) != 0)
        ok = fail_value(f, "format", format, "memtape", e);
    else if (version == NULL || !is_known_version(version))
        ok = fail_value(f, "version", version, "1 or 2: try a newer memtape", e);
    if (!ok)
        safetensors_close(f);
    return ok;
}

static bool check_step(const struct safetensors *f, int64_t expected, struct error *e)
{
    int64_t step;
    char path[SAFETENSORS_SHOWN_BYTES];
    if (!get_int(f, "step", &step, e))
        return false;
    if (step == expected)
        return true;
    return refuse(e, "'%s': is of step %" PRId64 ", expected %" PRId64 ", the model's",
                  safetensors_shown(f->path, path), step, expected);
}

static bool read_optimizer_info(const char *dir, struct snapshot_info *info, struct error *e)
{
    struct safetensors f;
    char path[PATH_BYTES];
    struct stat status;
    if (!snapshot_path(dir, SNAPSHOT_OPTIMIZER, path, e))
        return false;
    if (stat(path, &status) != 0 && errno == ENOENT)
        return true;
    if (!open_part(&f, dir, SNAPSHOT_OPTIMIZER, e))
        return false;
    bool ok = check_step(&f, info->step, e) &&
              get_text(&f, "optimizer", info->optimizer, sizeof(info->optimizer), e);
    safetensors_close(&f);
    return ok;
}

bool snapshot_read_info(const char *dir, struct snapshot_info *info, struct error *e)
{
    struct safetensors f;
    *info = (struct snapshot_info){.step = 0};
    if (!open_part(&f, dir, SNAPSHOT_MODEL, e))
        return false;
    info->weights = precision_of(&f);
    bool ok = get_int(&f, "step", &info->step, e) && get_config(&f, &info->model, e) &&
              get_adapters(&f, info, e) && check_config(&f, &info->model, e) &&
              get_text(&f, "tokenizer", info->tokenizer, sizeof(info->tokenizer), e);
    safetensors_close(&f);
    return ok && read_optimizer_info(dir, info, e);
}

// ---- tensors ---------------------------------------------------------------------------

// Weights are rounded or widened. Reals may be of another build; what else an optimizer keeps has
// one meaning in its own dtype alone.
static bool fits(enum dtype got, enum dtype expected, bool is_weight)
{
    bool is_real = got == DTYPE_F32 || got == DTYPE_F64;
    if (is_weight)
        return is_real || got == DTYPE_BF16;
    return got == expected || (is_real && expected == DTYPE_REAL);
}

static bool check_tensor(const struct safetensors *f, const struct safetensors_entry *x,
                         const struct safetensors_tensor **found, struct error *e)
{
    bool is_weight = x->suffix == NULL;
    char path[SAFETENSORS_SHOWN_BYTES], got[SAFETENSORS_SHOWN_BYTES], want[SAFETENSORS_SHOWN_BYTES];
    char name[PARAM_NAME_BYTES + 16];
    snprintf(name, sizeof(name), "%s%s", x->name, x->suffix != NULL ? x->suffix : "");
    const struct safetensors_tensor *t = *found = safetensors_find(f, name);
    safetensors_shown(f->path, path);
    safetensors_shape_text(x->dim_count, x->dim, want);
    if (t == NULL)
        return refuse(e, "'%s': tensor '%s': got none, expected shape %s", path, name, want);
    bool same = t->dim_count == x->dim_count;
    for (int i = 0; same && i < x->dim_count; i++)
        same = t->dim[i] == x->dim[i];
    if (!same)
        return refuse(e, "'%s': tensor '%s': got shape %s, expected %s", path, name,
                      safetensors_shape_text(t->dim_count, t->dim, got), want);
    if (fits(t->dtype, x->dtype, is_weight))
        return true;
    return refuse(e, "'%s': tensor '%s': got dtype %s, expected %s", path, name,
                  dtype_name(t->dtype),
                  is_weight                ? "f32, f64 or bf16"
                  : x->dtype == DTYPE_REAL ? "f32 or f64"
                                           : dtype_name(x->dtype));
}

static bool is_expected(const char *name, safetensors_entry_fn *entry, const void *user,
                        int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        const char *suffix = x.suffix != NULL ? x.suffix : "";
        if (x.name == NULL || strncmp(name, x.name, strlen(x.name)) != 0)
            continue;
        if (strcmp(name + strlen(x.name), suffix) == 0)
            return true;
    }
    return false;
}

// More tensors than the model has: name one.
static bool fail_unknown(const struct safetensors *f, safetensors_entry_fn *entry, const void *user,
                         int64_t count, struct error *e)
{
    char path[SAFETENSORS_SHOWN_BYTES], name[SAFETENSORS_SHOWN_BYTES];
    int64_t i = 0;
    while (i + 1 < f->tensor_count && is_expected(f->tensor[i].name, entry, user, count))
        i++;
    return refuse(e, "'%s': tensor '%s': got one, expected none in this model",
                  safetensors_shown(f->path, path), safetensors_shown(f->tensor[i].name, name));
}

static bool read_tensor(const struct safetensors *f, const struct safetensors_tensor *t,
                        const struct safetensors_entry *x, struct error *e)
{
    void *out = (void *)(uintptr_t)x->data; // the caller's params are not const
    if (x->dtype == DTYPE_U8)
        return safetensors_read_bytes(f, t, out, e);
    return safetensors_read_array(f, t, array_of(out, x->dtype), e);
}

// Every tensor is checked before the first is read.
static bool read_tensors(const struct safetensors *f, safetensors_entry_fn *entry, const void *user,
                         int64_t count, struct error *e)
{
    const struct safetensors_tensor *t;
    int64_t expected = 0;
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        if (x.name != NULL && !check_tensor(f, &x, &t, e))
            return false;
        expected += x.name != NULL;
    }
    if (expected != f->tensor_count)
        return fail_unknown(f, entry, user, count, e);
    for (int64_t i = 0; i < count; i++) {
        struct safetensors_entry x = entry(user, i);
        if (x.name != NULL && (!check_tensor(f, &x, &t, e) || !read_tensor(f, t, &x, e)))
            return false;
    }
    return true;
}

// A master gets all that the file says.
static bool read_weights(const char *dir, safetensors_entry_fn *entry, struct param_list *params,
                         struct error *e)
{
    struct safetensors f;
    if (!open_part(&f, dir, SNAPSHOT_MODEL, e))
        return false;
    bool ok = read_tensors(&f, entry, params, params->count, e);
    for (int i = 0; ok && i < params->count; i++) {
        struct param *p = &params->param[i];
        if (p->master.data != NULL && entry(params, i).name != NULL)
            ok = safetensors_read(&f, safetensors_find(&f, p->name), p->master.data, e);
    }
    safetensors_close(&f);
    return ok;
}

bool snapshot_read_weights(const char *dir, struct param_list *params, struct error *e)
{
    return read_weights(dir, weight_entry, params, e);
}

bool snapshot_read_base(const char *dir, struct param_list *params, struct error *e)
{
    return read_weights(dir, base_entry, params, e);
}

static bool is_utf8(const char *text)
{
    int64_t left = (int64_t)strlen(text);
    for (int n; left > 0; left -= n, text += n)
        if ((n = safetensors_utf8_bytes(text, left)) == 0)
            return false;
    return true;
}

bool snapshot_find_base(const char *dir, struct snapshot_base *base, struct error *e)
{
    struct safetensors f;
    char whole[PATH_MAX], shown[SAFETENSORS_SHOWN_BYTES];
    const char *found = realpath(dir, whole) != NULL ? whole : dir;
    if (!open_part(&f, dir, SNAPSHOT_MODEL, e))
        return false;
    bool ok = safetensors_hash(&f, &base->hash, e);
    safetensors_close(&f);
    if (ok && (!is_utf8(found) || strlen(found) >= sizeof(base->dir)))
        return refuse(e, "'%s': got a path that adapters cannot name, expected UTF-8 of at most %d",
                      safetensors_shown(dir, shown), (int)sizeof(base->dir) - 1);
    snprintf(base->dir, sizeof(base->dir), "%s", found);
    return ok;
}

bool snapshot_read_optimizer(const char *dir, struct param_list *params, int64_t step,
                             const char *optimizer, struct error *e)
{
    struct safetensors f;
    if (!open_part(&f, dir, SNAPSHOT_OPTIMIZER, e))
        return false;
    const char *name = safetensors_metadata(&f, "optimizer");
    bool ok = check_step(&f, step, e);
    if (ok && (name == NULL || strcmp(name, optimizer) != 0))
        ok = fail_value(&f, "optimizer", name, optimizer, e);
    ok = ok && read_tensors(&f, state_entry, params, STATE_ENTRIES * (int64_t)params->count, e);
    safetensors_close(&f);
    return ok;
}

bool snapshot_same_model(const struct gpt_config *a, const struct gpt_config *b, struct error *e)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (size_value(a, i) != size_value(b, i))
            return refuse(e,
                          "%s: got %" PRId64 " in the snapshot, expected %" PRId64 " as asked for",
                          sizes[i].name, size_value(a, i), size_value(b, i));
    if (a->bias != b->bias)
        return refuse(e, "bias: got %s in the snapshot, expected %s as asked for", yes_no(a->bias),
                      yes_no(b->bias));
    if (a->tie != b->tie)
        return refuse(e, "tie: got %s in the snapshot, expected %s as asked for", yes_no(a->tie),
                      yes_no(b->tie));
    return true;
}

bool snapshot_same_adapters(const struct lora_config *a, const struct lora_config *b,
                            struct error *e)
{
    char ours[LORA_TARGETS_BYTES], theirs[LORA_TARGETS_BYTES];
    if (a->rank != b->rank)
        return refuse(e, "lora rank: got %lld in the snapshot, expected %lld as asked for",
                      (long long)a->rank, (long long)b->rank);
    if (a->alpha != b->alpha)
        return refuse(e, "lora alpha: got %g in the snapshot, expected %g as asked for", a->alpha,
                      b->alpha);
    if (a->targets != b->targets)
        return refuse(e, "lora targets: got %s in the snapshot, expected %s as asked for",
                      lora_write_targets(a->targets, theirs), lora_write_targets(b->targets, ours));
    return a->trains_bias == b->trains_bias ||
           refuse(e, "lora bias: got %s in the snapshot, expected %s as asked for",
                  a->trains_bias ? "all" : "none", b->trains_bias ? "all" : "none");
}
