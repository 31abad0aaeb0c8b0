// cmd_tape.c - memtape tape: the nodes of a training step's last micro-batch, in order, and what
// each one's backward needs.
//
// What happens to those bytes is read from the ledger: the dry run has been through backward, and
// wrote down in which category each tensor was placed.
#include "src/commands.h"
#include "src/describe.h"

#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "tape",
    .summary = "Takes train's options and lists the nodes of one training step in order, without\n"
               "training: what each op reads and makes, and what is kept for its backward and why.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE};

enum fate {
    FATE_PERSISTENT, // a parameter: there anyway
    FATE_KEPT,
    FATE_RECOMPUTED, // given back by forward, made again for backward
};

static const char *const fate_names[] = {"parameter", "kept", "recomputed"};

struct kept {
    const char *role; // "in0", "out", "saved"
    const char *name, *suffix;
    const char *view; // the tensor that is read, if it is a view of the one that is kept
    int64_t bytes;
    enum fate fate;
};

enum { KEPT_MAX = NODE_IN_MAX + 2 };

static const struct tensor *owner(const struct tensor *x)
{
    return x->base != NULL ? owner(x->base) : x;
}

// A segment's result that was copied to the low end is a row without a node.
static bool is_of(const struct ledger_row *r, const struct node *n, const char *suffix)
{
    size_t length = strlen(n->name);
    return (r->node == n->index || (r->node < 0 && r->op[0] == 0)) &&
           strncmp(r->name, n->name, length) == 0 && strcmp(r->name + length, suffix) == 0;
}

static enum fate fate_of(const struct tape *t, const struct node *made_by, const char *suffix)
{
    const struct ledger *l = &t->arena.ledger;
    for (int64_t i = l->row_count - 1; i >= 0 && l->row[i].born >= l->lap_first_event; i--)
        if (l->row[i].category == LEDGER_SAVED_ACTIVATIONS && is_of(&l->row[i], made_by, suffix))
            return FATE_KEPT;
    return FATE_RECOMPUTED;
}

static struct kept kept_tensor(const struct tape *t, const char *role, const struct tensor *x)
{
    const struct tensor *o = owner(x);
    struct kept k = {.role = role,
                     .name = o->name,
                     .suffix = "",
                     .view = o != x ? x->name : NULL,
                     .bytes = tensor_bytes(o)};
    k.fate = o->is_persistent ? FATE_PERSISTENT : fate_of(t, &t->node[tape_maker(t, o)], "");
    return k;
}

// What backward of n reads besides the gradient. Returns how many.
static int kept_by(const struct tape *t, const struct node *n, struct kept k[KEPT_MAX])
{
    static const char *const role[NODE_IN_MAX] = {"in0", "in1", "in2"};
    int count = 0;
    if (!n->out->wants_grad)
        return 0;
    for (int i = 0; i < n->in_count; i++)
        if (n->needs & (1u << i))
            k[count++] = kept_tensor(t, role[i], n->in[i]);
    if (n->needs & NEEDS_OUT)
        k[count++] = kept_tensor(t, "out", n->out);
    if (n->out->saved_bytes > 0)
        k[count++] = (struct kept){.role = n->op->saved_name,
                                   .name = n->name,
                                   .suffix = ".saved",
                                   .bytes = n->out->saved_bytes,
                                   .fate = fate_of(t, n, ".saved")};
    return count;
}

static int segment_of(const struct tape *t, const struct node *n)
{
    for (int i = 0; i < t->segment_count; i++)
        if (n->index >= t->segment[i].first_node && n->index < t->segment[i].end_node)
            return i;
    return -1;
}

static const char *takes_words(const struct node *n)
{
    return n->op->takes == TAKES_IN0_AS_SAVED ? "saved" : "output";
}

// ---- for people ------------------------------------------------------------------------

static void output_line(const struct node *n)
{
    char shape[DESCRIBE_BYTES];
    const struct tensor *y = n->out;
    printf("      out   %s %lld bytes", describe_shape(y->dim_count, y->dim, shape),
           (long long)tensor_bytes(y));
    if (n->taken != NULL)
        printf(", %s in the buffer of %s", takes_words(n), n->taken->name);
    if (y->base != NULL)
        printf(", a view of %s", y->base->name);
    printf("\n");
}

static void node_lines(const struct tape *t, const struct node *n)
{
    struct kept k[KEPT_MAX];
    int count = kept_by(t, n, k), segment = segment_of(t, n);
    printf("%4d  %s: %s", n->index, n->name, n->op->formula);
    if (segment >= 0)
        printf("  [segment %d, %s]", segment, tape_policy_name(t->segment[segment].policy));
    printf("\n      in    ");
    for (int i = 0; i < n->in_count; i++)
        printf("%s%s", i > 0 ? ", " : "", n->in[i]->name);
    printf("\n");
    output_line(n);
    printf("      keeps %s\n",
           n->out->wants_grad ? n->op->keeps : "nothing: no gradient goes here");
    for (int i = 0; i < count; i++)
        printf("            %-10s %s = %s%s%s%s, %lld bytes\n", fate_names[k[i].fate], k[i].role,
               k[i].view != NULL ? k[i].view : "", k[i].view != NULL ? " in " : "", k[i].name,
               k[i].suffix, (long long)k[i].bytes);
}

static void table(const struct run *r)
{
    const struct tape *t = &r->tape;
    report_model_line(stdout, r->config, &r->gpt);
    for (int i = 0; i < t->node_count; i++)
        node_lines(t, &t->node[i]);
    printf("%d nodes, %d segments: the last micro-batch of a step, %lld of %lld sequences\n",
           t->node_count, t->segment_count, (long long)(r->config->step.batch - t->first_sample),
           (long long)r->config->step.batch);
}

// ---- for programs ----------------------------------------------------------------------

static void text_or_null(struct json *j, const char *key, const char *text)
{
    if (text != NULL)
        json_text(j, key, text);
    else
        json_null(j, key);
}

static void kept_json(struct json *j, const struct kept *k)
{
    char name[NODE_NAME_BYTES + 16];
    snprintf(name, sizeof(name), "%s%s", k->name, k->suffix);
    json_object(j, NULL);
    json_text(j, "role", k->role);
    json_text(j, "name", name);
    text_or_null(j, "view", k->view);
    json_int(j, "bytes", k->bytes);
    json_text(j, "fate", fate_names[k->fate]);
    json_end(j);
}

static void output_json(struct json *j, const struct node *n)
{
    const struct tensor *y = n->out;
    json_object(j, "output");
    json_text(j, "name", y->name);
    describe_shape_json(j, "shape", y->dim_count, y->dim);
    json_int(j, "bytes", tensor_bytes(y));
    text_or_null(j, "view_of", y->base != NULL ? y->base->name : NULL);
    json_end(j);
}

static void segment_json(struct json *j, const struct tape *t, const struct node *n)
{
    int segment = segment_of(t, n);
    if (segment < 0) {
        json_null(j, "segment");
        return;
    }
    json_object(j, "segment");
    json_int(j, "index", segment);
    json_text(j, "policy", tape_policy_name(t->segment[segment].policy));
    json_end(j);
}

static void node_json(struct json *j, const struct tape *t, const struct node *n)
{
    struct kept k[KEPT_MAX];
    int count = kept_by(t, n, k);
    json_object(j, NULL);
    json_int(j, "index", n->index);
    json_text(j, "name", n->name);
    json_text(j, "op", n->op->name);
    json_text(j, "formula", n->op->formula);
    json_array(j, "inputs");
    for (int i = 0; i < n->in_count; i++)
        json_text(j, NULL, n->in[i]->name);
    json_end(j);
    output_json(j, n);
    text_or_null(j, "takes_over", n->taken != NULL ? n->taken->name : NULL);
    text_or_null(j, "takes_over_as", n->taken != NULL ? takes_words(n) : NULL);
    segment_json(j, t, n);
    json_array(j, "kept");
    for (int i = 0; i < count; i++)
        kept_json(j, &k[i]);
    json_end(j);
    json_text(j, "why", n->op->keeps);
    json_text(j, "file", n->file);
    json_int(j, "line", n->line);
    json_end(j);
}

static bool write_json(const struct run *r, const char *path, struct error *e)
{
    const struct tape *t = &r->tape;
    struct json j;
    if (!json_open(&j, path, e))
        return false;
    json_object(&j, NULL);
    report_model_json(&j, r->config, &r->gpt);
    json_int(&j, "node_count", t->node_count);
    json_int(&j, "first_sample", t->first_sample);
    json_array(&j, "nodes");
    for (int i = 0; i < t->node_count; i++)
        node_json(&j, t, &t->node[i]);
    json_end(&j);
    json_end(&j);
    return json_close(&j, path, e);
}

// ---- the command -----------------------------------------------------------------------

static bool report(const struct run *r, const struct settings *s, struct error *e)
{
    if (s->quiet <= 0 && !json_is_stdout(s->json))
        table(r);
    return s->json == NULL || write_json(r, s->json, e);
}

int cmd_tape(int argc, char **argv)
{
    static struct settings s;
    static struct config c;
    static struct run r;
    struct error e;
    int status;
    if (!command_begin(&command, &s, argc, argv, &status))
        return status;
    if (!command_config(&c, &s, CONFIG_PLAN, &e))
        return command_refuse(command.name, &e);
    if (!command_measure(&r, &c, &s, CONFIG_PLAN, &e)) {
        config_close(&c);
        return command_refuse(command.name, &e);
    }
    status = report(&r, &s, &e) ? EXIT_OK : command_refuse(command.name, &e);
    run_close(&r);
    config_close(&c);
    return status;
}
