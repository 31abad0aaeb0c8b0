#include "src/options.h"

#include "tape/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct option {
    const char *name;
    enum option_kind kind;
    size_t offset; // in struct settings
    unsigned group;
    const char *value; // how --help calls it; for OPTION_TEXT with choices: "a|b|c"
    double low, high;  // of numbers
    const char *help;
    bool is_choice;
};

#define AT(field) offsetof(struct settings, field)
#define INT(name, field, group, low, high, help)                                                   \
    {                                                                                              \
        name, OPTION_INT, AT(field), OPTIONS_##group, "N", low, high, help, false                  \
    }
#define REAL(name, field, group, low, high, help)                                                  \
    {                                                                                              \
        name, OPTION_REAL, AT(field), OPTIONS_##group, "X", low, high, help, false                 \
    }
#define TEXT(name, field, group, value, help)                                                      \
    {                                                                                              \
        name, OPTION_TEXT, AT(field), OPTIONS_##group, value, 0, 0, help, false                    \
    }
#define CHOICE(name, field, group, value, help)                                                    \
    {                                                                                              \
        name, OPTION_TEXT, AT(field), OPTIONS_##group, value, 0, 0, help, true                     \
    }
#define FLAG(name, field, group, help)                                                             \
    {                                                                                              \
        name, OPTION_FLAG, AT(field), OPTIONS_##group, NULL, 0, 0, help, false                     \
    }

static const struct option options[] = {
    TEXT("model", model, MODEL, "NAME",
         "tiny, nano (default), baby, gpt2[-medium|-large|-xl], gpt3[-small|...|-13b]"),
    INT("layers", layers, MODEL, 1, 1000, "blocks"),
    INT("heads", heads, MODEL, 1, 1 << 20, "attention heads; must divide width"),
    INT("width", width, MODEL, 1, 1 << 24, "of the residual stream"),
    INT("context", context, MODEL, 1, 1 << 24, "positions that the model can tell apart"),
    INT("vocab", vocab, MODEL, 1, 1 << 24, "tokens (default: the tokenizer's)"),
    FLAG("bias", bias, MODEL, "biases in linears and norms (default yes)"),
    FLAG("tie", tie, MODEL, "the head is the token embedding (default yes)"),
    REAL("dropout", dropout, MODEL, 0, 0.999999, "rate (default 0)"),
    CHOICE("attention", attention, MODEL, "naive|tiled",
           "small ops that show every tensor, or no T x T matrix (default tiled)"),
    CHOICE(
        "loss", loss, MODEL | OPTIONS_EVAL, "plain|chunked",
        "chunked: the logits never exist whole, for one more product of the head (default plain)"),
    CHOICE("precision", precision, MODEL | OPTIONS_BASE, "f32|bf16",
           "how weights are stored; bf16: trained ones have f32 masters (default f32, of a "
           "snapshot: as it has them)"),
    CHOICE("activation-precision", activation_precision, MODEL | OPTIONS_BASE, "f32|bf16",
           "how what ops make is stored (default: as --precision)"),
    CHOICE("grad-precision", grad_precision, TRAIN, "f32|bf16",
           "of parameters (default: as --precision, but f32 if a batch has several micro-batches)"),
    CHOICE("checkpoint", checkpoint, MODEL, "none|lean|selective|full|auto",
           "what blocks recompute in backward (default none)"),
    CHOICE("segments", segments, MODEL, "block|half",
           "what a checkpoint segment is: a block, or its attention and its MLP (default block)"),
    TEXT("lora", lora, MODEL, "R[:ALPHA]",
         "train adapters of rank R and scale ALPHA / R alone (default ALPHA: R); 0: none"),
    TEXT("lora-targets", lora_targets, MODEL, "LIST",
         "what they adapt: q, k, v, qkv, proj, fc, down, head, all (default qkv)"),
    CHOICE("lora-bias", lora_bias, MODEL, "none|all", "biases trained beside them (default none)"),
    TEXT("activation-budget", activation_budget, MODEL, "BYTES",
         "for --checkpoint auto: most that activations, their gradients and scratch may hold"),
    TEXT("budget", budget, MODEL | OPTIONS_COMMON, "BYTES",
         "most that the arena may hold at all, as 800MB or 2GiB"),
    TEXT("budget-process", budget_process, TRAIN, "BYTES",
         "most that the whole process may hold resident: the arena and what is outside it"),
    FLAG("force", force, TRAIN, "run even if the machine would swap"),
    TEXT("data", data, DATA | OPTIONS_EVAL, "FILE", "text to learn, or builtin (default)"),
    CHOICE("tokenizer", tokenizer, DATA, "byte|char", "(default char)"),
    CHOICE("sample", order, DATA, "random|sequential",
           "which windows a batch takes (default random)"),
    INT("batch", batch, TRAIN, 1, 1 << 24, "sequences per optimizer step (default 12)"),
    INT("micro-batch", micro_batch, TRAIN | OPTIONS_EVAL, 1, 1 << 24,
        "sequences per forward (default batch); need not divide batch"),
    INT("seq", seq, TRAIN | OPTIONS_EVAL, 1, 1 << 24, "tokens per sequence (default context)"),
    INT("steps", steps, TRAIN, 1, INT32_MAX, "optimizer steps (default 200)"),
    REAL("lr", lr, TRAIN, 1e-30, 1e6, "highest learning rate (default 1e-3)"),
    REAL("min-lr", min_lr, TRAIN, 0, 1e6, "lowest, after decay (default lr / 10)"),
    INT("warmup", warmup, TRAIN, 0, INT32_MAX, "steps of linear warm-up (default 0)"),
    INT("decay-steps", decay_steps, TRAIN, 0, INT32_MAX,
        "step at which the cosine ends (default: steps; 0: constant rate)"),
    REAL("weight-decay", weight_decay, TRAIN, 0, 1e6, "of matrices and embeddings (default 0.1)"),
    REAL("beta1", beta1, TRAIN, 0, 0.9999999999, "(default 0.9)"),
    REAL("beta2", beta2, TRAIN, 0, 0.9999999999, "(default 0.99)"),
    REAL("clip", clip, TRAIN, 0, 1e30, "largest norm of the gradient; 0: no limit (default 1)"),
    CHOICE("optimizer", optimizer, TRAIN, "sgd|momentum|adamw|adamw8bit|lion|adafactor",
           "(default adamw)"),
    TEXT("freeze", freeze, TRAIN, "PATTERNS",
         "what is not trained: names as in wte.*,h.0.*, of the shell's kind"),
    INT("seed", seed, TRAIN | OPTIONS_SAMPLE, 0, INT64_C(1) << 53,
        "of all that is random (default 1)"),
    INT("eval-every", eval_every, TRAIN, 0, INT32_MAX,
        "steps between validations; 0: none (default 0)"),
    INT("eval-batches", eval_batches, TRAIN, 0, INT32_MAX,
        "batches of one validation; 0: the whole split (default 20)"),
    INT("sample-tokens", sample, SAMPLE, 0, INT32_MAX, "length of the sample (default 200)"),
    TEXT("prompt", prompt, SAMPLE, "TEXT", "what the sample continues (default: a line break)"),
    REAL("temperature", temperature, SAMPLE, 0, 1e6,
         "of the sample; 0: the likeliest token (default 0.8)"),
    INT("top-k", top_k, SAMPLE, 0, 1 << 24,
        "only among the k likeliest tokens; 0: all (default 0)"),
    FLAG("kv-cache", kv_cache, SAMPLE,
         "the sample keeps keys and values of earlier tokens (default yes)"),
    INT("save-every", save_every, RUN, 0, INT32_MAX,
        "steps between snapshots; 0: at the end only (default 0)"),
    TEXT("init", init, RUN | OPTIONS_CHECK | OPTIONS_BASE, "DIR",
         "start from these weights; for adapters, their base (default: where it was)"),
    TEXT("save-gradients", save_gradients, RUN, "FILE", "of the first step, as safetensors"),
    TEXT("out", out, RUN | OPTIONS_MERGE, "DIR", "where snapshot and log go (default: nowhere)"),
    FLAG("trap-nan", trap_nan, RUN | OPTIONS_EVAL,
         "stop where the first NaN or infinity is made, and say by which op from what"),
    TEXT("resume", resume, RUN, "DIR", "go on where this run stopped, with its options"),
    CHOICE("sort", sort, TABLE, "tape|bytes", "order of the rows (default tape)"),
    INT("top", top, TABLE, 0, INT32_MAX, "only so many rows; 0: all (default 0)"),
    FLAG("run", run, SWEEP, "also do --steps steps (default 3) of each: measured peak and time"),
    TEXT("plot", plot, SWEEP, "FILE", "a plot as SVG; - for one of characters on standard output"),
    TEXT("plot-y", plot_y, SWEEP, "NAME", "what is plotted (default saved_activations)"),
    TEXT("csv", csv, TABLE | OPTIONS_SWEEP, "FILE",
         "rows as comma-separated values; - for standard output"),
    FLAG("explain", explain, PLAN, "textbook formulas beside the exact bytes, and why they differ"),
    INT("generate", generate, PLAN, 1, INT32_MAX,
        "no training: what generating so many tokens would hold"),
    INT("prompt-tokens", prompt_tokens, PLAN, 1, 1 << 16,
        "for --generate: length of the prompt (default 1, or --prompt's)"),
    TEXT("params", params, PLAN, "COUNT",
         "no model: the states of 1B, 350M or 7.5e9 parameters, by the rule of thumb"),
    INT("shards", shards, PLAN, 1, 1 << 20,
        "devices of ZeRO's formulas, for --params and --explain (there default 64)"),
    TEXT("allow", allow, FIT, "LIST",
         "what may change the training: bf16, lora, optimizers; as bf16,adamw8bit"),
    FLAG("cache", cache, FIT, "keep and use this machine's measured rates (default yes)"),
    REAL("ignore", ignore, CHECK, 0, 1,
         "part of the targets, drawn at random, that do not count (default 0)"),
    FLAG("empty-micro-batch", empty_micro_batch, CHECK, "no target of the last micro-batch counts"),
    FLAG("naive", naive, CHECK,
         "accumulate: beside ours, what the classic mistakes would have given"),
    INT("slopes", slopes, CHECK, 1, 1 << 20,
        "gradients: elements of each tensor whose slope is measured (default 3)"),
    TEXT("tokens", tokens, CHECK, "FILE",
         "a batch in place of the data's: safetensors with int32 tokens and targets (B,T)"),
    TEXT("against", against, CHECK, "FILE",
         "gradients of another program, to compare with ours: safetensors"),
    REAL("tolerance", tolerance, CHECK, 0, 1,
         "for --against, relative to each tensor's norm (default 1e-5)"),
    FLAG("verbose", verbose, CHECK, "a row for every tensor, not only for those that differ"),
    INT("threads", threads, COMMON, 1, 1024, "(default: what the machine offers)"),
    TEXT("config", config, COMMON | OPTIONS_REPORT, "FILE",
         "lines of `name = value`; the command line wins"),
    TEXT("json", json, COMMON | OPTIONS_REPORT, "FILE",
         "the report as JSON; - for standard output"),
    FLAG("quiet", quiet, COMMON | OPTIONS_REPORT, "say nothing but errors and what was asked for"),
    FLAG("help", help, COMMON | OPTIONS_REPORT, "this"),
};

void settings_clear(struct settings *s)
{
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < COUNT_OF(options); i++) {
        char *at = (char *)s + options[i].offset;
        switch (options[i].kind) {
        case OPTION_FLAG: *(int *)(void *)at = -1; break;
        case OPTION_INT: *(int64_t *)(void *)at = UNSET_INT; break;
        case OPTION_REAL: *(double *)(void *)at = NAN; break;
        case OPTION_TEXT: *(const char **)(void *)at = NULL; break;
        }
    }
}

static bool is_set(const struct settings *s, const struct option *o)
{
    const char *at = (const char *)s + o->offset;
    switch (o->kind) {
    case OPTION_FLAG: return *(const int *)(const void *)at >= 0;
    case OPTION_INT: return *(const int64_t *)(const void *)at != UNSET_INT;
    case OPTION_REAL: return !isnan(*(const double *)(const void *)at);
    default: return *(const char *const *)(const void *)at != NULL;
    }
}

static const struct option *find(unsigned groups, const char *name, size_t length)
{
    for (int i = 0; i < COUNT_OF(options); i++)
        if ((options[i].group & groups) && strlen(options[i].name) == length &&
            memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

bool options_find(unsigned groups, const char *name, size_t length, struct option_form *form)
{
    const struct option *o = find(groups, name, length);
    if (o == NULL)
        return false;
    bool is_long = o->kind == OPTION_TEXT && !o->is_choice && strcmp(o->value, "NAME") != 0 &&
                   strcmp(o->value, "BYTES") != 0 && strcmp(o->value, "R[:ALPHA]") != 0;
    *form = (struct option_form){.kind = o->kind, .is_word = !is_long};
    return true;
}

// ---- values ----------------------------------------------------------------------------

static bool is_one_of(const char *choices, const char *value)
{
    size_t length = strchr(value, '|') == NULL ? strlen(value) : 0;
    for (const char *at = choices; length > 0; at = strchr(at, '|') + 1) {
        if (strncmp(at, value, length) == 0 && (at[length] == '|' || at[length] == 0))
            return true;
        if (strchr(at, '|') == NULL)
            break;
    }
    return false;
}

static const char *several(const char *value)
{
    bool is_list = strchr(value, ',') != NULL || strstr(value, "..") != NULL;
    return is_list ? "; several values are for memtape sweep" : "";
}

static bool set_number(const struct option *o, char *at, const char *value, struct error *e)
{
    char low[TEXT_NUMBER_BYTES], high[TEXT_NUMBER_BYTES];
    int64_t whole = 0;
    double number = 0;
    bool is_int = o->kind == OPTION_INT;
    bool ok = is_int ? text_to_int64(value, &whole) : text_to_double(value, &number);
    if (is_int)
        number = (double)whole;
    if (!ok || number < o->low || number > o->high)
        return refuse(e, "--%s %s: expected a %s from %s to %s%s", o->name, value,
                      is_int ? "whole number" : "number", text_from_double(o->low, low),
                      text_from_double(o->high, high), several(value));
    if (is_int)
        *(int64_t *)(void *)at = whole;
    else
        *(double *)(void *)at = number;
    return true;
}

static bool set_flag(const struct option *o, char *at, const char *value, struct error *e)
{
    static const struct {
        const char *text;
        int value;
    } word[] = {{"yes", 1}, {"true", 1}, {"1", 1}, {"no", 0}, {"false", 0}, {"0", 0}};
    for (int i = 0; i < COUNT_OF(word); i++)
        if (strcmp(word[i].text, value) == 0) {
            *(int *)(void *)at = word[i].value;
            return true;
        }
    return refuse(e, "--%s %s: expected yes or no", o->name, value);
}

static bool set(struct settings *s, const struct option *o, const char *value, struct error *e)
{
    char *at = (char *)s + o->offset;
    if (o->kind == OPTION_FLAG)
        return set_flag(o, at, value, e);
    if (o->kind != OPTION_TEXT)
        return set_number(o, at, value, e);
    if (o->is_choice && !is_one_of(o->value, value))
        return refuse(e, "--%s %s: expected %s%s", o->name, value, o->value, several(value));
    if (value[0] == 0 && strcmp(o->name, "prompt") != 0)
        return refuse(e, "--%s is empty: expected %s", o->name, o->value);
    *(const char **)(void *)at = value;
    return true;
}

static bool refuse_unknown(unsigned groups, const char *name, size_t length, struct error *e)
{
    const char *nearest = NULL;
    int best = 3;
    for (int i = 0; i < COUNT_OF(options); i++) {
        int d = options[i].group & groups ? text_distance(name, length, options[i].name) : 99;
        if (d < best) {
            best = d;
            nearest = options[i].name;
        }
    }
    if (nearest != NULL)
        return refuse(e, "unknown option --%.*s: did you mean --%s? (--help lists all)",
                      (int)length, name, nearest);
    return refuse(e, "unknown option --%.*s: --help lists what there is", (int)length, name);
}

bool options_set(struct settings *s, unsigned groups, const char *name, const char *value,
                 struct error *e)
{
    const struct option *o = find(groups, name, strlen(name));
    return o != NULL ? set(s, o, value, e) : refuse_unknown(groups, name, strlen(name), e);
}

// ---- the command line ------------------------------------------------------------------

// One argument "--name..." at argv[*i]; moves *i on when the next one is its value.
static bool parse_one(struct settings *s, unsigned groups, int argc, char *const argv[], int *i,
                      struct error *e)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct option *o = find(groups, name, length);
    if (o == NULL && length > 3 && strncmp(name, "no-", 3) == 0) {
        o = find(groups, name + 3, length - 3);
        if (o != NULL && o->kind == OPTION_FLAG && equals == NULL)
            return set(s, o, "no", e);
        o = NULL;
    }
    if (o == NULL)
        return refuse_unknown(groups, name, length, e);
    if (equals != NULL)
        return set(s, o, equals + 1, e);
    if (o->kind == OPTION_FLAG)
        return set(s, o, "yes", e);
    if (*i + 1 >= argc)
        return refuse(e, "--%s needs a value: expected %s", o->name, o->value);
    return set(s, o, argv[++*i], e);
}

bool options_parse(struct settings *s, unsigned groups, bool operand, int argc, char *const argv[],
                   struct error *e)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0) {
            s->help = 1;
        } else if (strncmp(argv[i], "--", 2) == 0 && argv[i][2] != 0) {
            if (!parse_one(s, groups, argc, argv, &i, e))
                return false;
        } else if (operand && s->operand == NULL && argv[i][0] != '-') {
            s->operand = argv[i];
        } else {
            return refuse(e, "unexpected argument %s: options are written --name value", argv[i]);
        }
    }
    if (s->config != NULL && !options_read_file(s, groups, s->config, e))
        return false;
    return true;
}

// ---- files -----------------------------------------------------------------------------

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

// Text options point at their value, so a file's values live as long as the settings: in them.
static const char *keep(struct settings *s, const char *value)
{
    size_t length = strlen(value) + 1;
    if (s->values_used + length > sizeof(s->values))
        return NULL;
    char *at = memcpy(s->values + s->values_used, value, length);
    s->values_used += length;
    return at;
}

// Written: what would not survive as it is (line breaks, #, blanks at an end) stands in quotes.
static bool needs_quotes(const char *value)
{
    size_t length = strlen(value);
    return length == 0 || strpbrk(value, "#\"\n\r\t") != NULL || isspace((unsigned char)value[0]) ||
           isspace((unsigned char)value[length - 1]);
}

static void write_text(FILE *f, const char *value)
{
    if (!needs_quotes(value)) {
        fputs(value, f);
        return;
    }
    fputc('"', f);
    for (; *value != 0; value++)
        switch (*value) {
        case '\n': fputs("\\n", f); break;
        case '\r': fputs("\\r", f); break;
        case '\t': fputs("\\t", f); break;
        case '"': fputs("\\\"", f); break;
        case '\\': fputs("\\\\", f); break;
        default: fputc(*value, f);
        }
    fputc('"', f);
}

// The text between quotes, in place; NULL if the second one is missing.
static char *unquoted(char *text)
{
    char *to = text;
    for (char *at = text + 1; *at != 0; at++) {
        if (*at == '"') {
            *to = 0;
            return text;
        }
        if (*at == '\\' && at[1] != 0) {
            at++;
            *to++ = (char)(*at == 'n' ? '\n' : *at == 'r' ? '\r' : *at == 't' ? '\t' : *at);
        } else {
            *to++ = *at;
        }
    }
    return NULL;
}

static char *value_of(char *text)
{
    text = trimmed(text);
    if (text[0] == '"')
        return unquoted(text);
    text[strcspn(text, "#")] = 0;
    return trimmed(text);
}

static bool read_line(struct settings *s, unsigned groups, char *line, struct error *e)
{
    char *name = trimmed(line), *equals = strpbrk(name, "=#");
    if (name[0] == 0 || name[0] == '#')
        return true;
    if (equals == NULL || *equals == '#')
        return refuse(e, "'%.60s': expected name = value", name);
    *equals = 0;
    name = trimmed(name);
    const struct option *o = find(groups, name, strlen(name));
    if (o == NULL)
        return refuse_unknown(groups, name, strlen(name), e);
    if (is_set(s, o))
        return true; // the command line wins
    char *value = value_of(equals + 1);
    if (value == NULL)
        return refuse(e, "%s: expected a second \" at the end of its value", name);
    const char *kept = keep(s, value);
    return kept != NULL ? set(s, o, kept, e)
                        : refuse(e, "more than %d bytes of values", (int)sizeof(s->values));
}

bool options_read_file(struct settings *s, unsigned groups, const char *path, struct error *e)
{
    char line[SETTINGS_VALUES_BYTES];
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return refuse(e, "--config %s: %s", path, strerror(errno));
    bool ok = true;
    for (int number = 1; ok && fgets(line, sizeof(line), f) != NULL; number++) {
        struct error inner;
        ok = strchr(line, '\n') != NULL || feof(f)
                 ? read_line(s, groups, line, &inner)
                 : refuse(&inner, "a line of more than %d bytes", (int)sizeof(line) - 2);
        if (!ok)
            refuse(e, "--config %.200s, line %d: %.700s", path, number, inner.text);
    }
    if (ok && ferror(f))
        ok = refuse(e, "--config %s: %s", path, strerror(errno));
    fclose(f);
    return ok;
}

static void write_lines(const struct settings *s, unsigned groups, FILE *f)
{
    char number[TEXT_NUMBER_BYTES];
    for (int i = 0; i < COUNT_OF(options); i++) {
        const struct option *o = &options[i];
        const char *at = (const char *)s + o->offset;
        if (!(o->group & groups) || !is_set(s, o))
            continue;
        fprintf(f, "%s = ", o->name);
        switch (o->kind) {
        case OPTION_FLAG: fputs(*(const int *)(const void *)at ? "yes" : "no", f); break;
        case OPTION_INT: fprintf(f, "%lld", (long long)*(const int64_t *)(const void *)at); break;
        case OPTION_REAL:
            fputs(text_from_double(*(const double *)(const void *)at, number), f);
            break;
        case OPTION_TEXT: write_text(f, *(const char *const *)(const void *)at); break;
        }
        fputc('\n', f);
    }
}

bool options_write_file(const struct settings *s, unsigned groups, const char *path,
                        struct error *e)
{
    char fresh[4096 + 32];
    if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
        return refuse(e, "%.200s...: its path is too long", path);
    FILE *f = fopen(fresh, "w");
    if (f == NULL)
        return refuse(e, "%s: %s", path, strerror(errno));
    write_lines(s, groups, f);
    bool ok = !ferror(f);
    ok &= fclose(f) == 0;
    ok = ok && rename(fresh, path) == 0;
    if (ok)
        return true;
    refuse(e, "%s: %s", path, strerror(errno));
    remove(fresh);
    return false;
}

// Bare, or in single quotes if a shell would read it otherwise.
static void shell_word(const char *value, char *out, size_t bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:,+@%-";
    if (value[0] != 0 && value[strspn(value, plain)] == 0) {
        snprintf(out, bytes, "%s", value);
        return;
    }
    size_t used = (size_t)snprintf(out, bytes, "'");
    for (; *value != 0 && used + 6 < bytes; value++)
        used += (size_t)snprintf(out + used, bytes - used, *value == '\'' ? "'\\''" : "%c", *value);
    snprintf(out + used, bytes - used, "'");
}

static void option_word(const struct settings *s, const struct option *o, char *out, size_t bytes)
{
    const char *at = (const char *)s + o->offset;
    char number[TEXT_NUMBER_BYTES], value[SETTINGS_VALUES_BYTES] = "";
    switch (o->kind) {
    case OPTION_FLAG:
        snprintf(out, bytes, " --%s%s", *(const int *)(const void *)at ? "" : "no-", o->name);
        return;
    case OPTION_INT:
        snprintf(number, sizeof(number), "%lld", (long long)*(const int64_t *)(const void *)at);
        break;
    case OPTION_REAL: text_from_double(*(const double *)(const void *)at, number); break;
    case OPTION_TEXT:
        shell_word(*(const char *const *)(const void *)at, value, sizeof(value));
        break;
    }
    snprintf(out, bytes, " --%s %s", o->name, o->kind == OPTION_TEXT ? value : number);
}

void options_command(const struct settings *s, unsigned groups, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < COUNT_OF(options) && used < bytes; i++) {
        if (!(options[i].group & groups) || !is_set(s, &options[i]))
            continue;
        option_word(s, &options[i], out + used, bytes - used);
        used += strlen(out + used);
    }
}

void options_help(unsigned groups)
{
    for (int i = 0; i < COUNT_OF(options); i++) {
        const struct option *o = &options[i];
        char left[48];
        if (!(o->group & groups))
            continue;
        if (o->kind == OPTION_FLAG)
            snprintf(left, sizeof(left), "--[no-]%s", o->name);
        else
            snprintf(left, sizeof(left), "--%s %s", o->name, o->value);
        printf("  %-30s %s\n", left, o->help);
    }
}
