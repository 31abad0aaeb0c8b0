// cmd_generate.c - memtape generate DIR: a prompt and its continuation, as the model of a snapshot
// would write it.
#include "src/commands.h"
#include "src/system.h"
#include "tape/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "generate",
    .summary = "Continues a prompt with the model of a snapshot (DIR of train --out, or in it).",
    .operand = "DIR",
    .groups = OPTIONS_COMMON | OPTIONS_BASE | OPTIONS_SAMPLE};

struct generating {
    struct settings settings;
    struct config config;
    struct run run;
    bool shows;        // the text goes to standard output
    struct json *json; // and there, or NULL
    double seconds;
};

static void put(void *user, const char *text, int64_t bytes)
{
    struct generating *g = user;
    if (g->json != NULL)
        json_text_more(g->json, text, bytes);
    if (!g->shows)
        return;
    fwrite(text, 1, (size_t)bytes, stdout);
    fflush(stdout);
}

static void generate(struct generating *g)
{
    const struct config *c = &g->config;
    const struct tokenizer *k = &c->data.tokenizer;
    char bytes[TOKENIZER_TOKEN_BYTES];
    for (int64_t i = 0; i < c->prompt_count; i++)
        put(g, bytes, tokenizer_decode(k, c->prompt[i], bytes));
    double start = system_seconds();
    run_sample(&g->run, (struct run_text){put, g});
    g->seconds = system_seconds() - start;
}

static double rate(const struct generating *g)
{
    return g->seconds > 0 ? (double)g->config.sample.tokens / g->seconds : 0;
}

static bool generate_json(struct generating *g, struct error *e)
{
    struct json j;
    const char *path = g->settings.json;
    if (!json_open(&j, path, e))
        return false;
    g->json = &j;
    json_object(&j, NULL);
    json_text_begin(&j, "text");
    generate(g);
    json_text_end(&j);
    json_int(&j, "tokens", g->config.sample.tokens);
    json_real(&j, "tokens_per_second", rate(g));
    report_cache_json(&j, &g->run);
    report_model_json(&j, &g->config, &g->run.gpt);
    struct report_outside outside = report_measure_outside(&g->run);
    report_memory_json(&j, &g->run.tape.arena.ledger.counts, &outside);
    json_end(&j);
    return json_close(&j, path, e);
}

static int run_generate(struct generating *g, struct error *e)
{
    char peak[TEXT_NUMBER_BYTES];
    bool tells = g->settings.quiet <= 0 && g->config.sample.tokens > 0;
    if (g->settings.json == NULL)
        generate(g);
    else if (!generate_json(g, e))
        return command_refuse(command.name, e);
    if (g->shows)
        fputc('\n', stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        refuse(e, "cannot write to standard output: %s", strerror(errno));
        return command_refuse(command.name, e);
    }
    if (g->settings.quiet <= 0)
        fprintf(stderr, "%lld tokens, %.0f tokens/s, memory at most %s\n",
                (long long)g->config.sample.tokens, rate(g),
                text_from_bytes(ledger_peak(&g->run.tape.arena.ledger), peak));
    if (tells)
        report_cache_line(stderr, &g->run);
    return EXIT_OK;
}

int cmd_generate(int argc, char **argv)
{
    static struct generating g;
    struct error e;
    int status;
    if (!command_begin(&command, &g.settings, argc, argv, &status))
        return status;
    if (!config_build(&g.config, &g.settings, CONFIG_GENERATE, &e))
        return command_refuse(command.name, &e);
    g.shows = !json_is_stdout(g.settings.json);
    if (command_open(&g.run, &g.config, &g.settings, CONFIG_GENERATE, &e)) {
        status = run_generate(&g, &e);
        run_close(&g.run);
    } else {
        status = command_refuse(command.name, &e);
    }
    config_close(&g.config);
    return status;
}
