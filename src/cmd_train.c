// cmd_train.c - memtape train: plan, reserve, then one optimizer step after another.
#include "src/commands.h"
#include "src/hunt.h"
#include "src/outside.h"
#include "src/progress.h"
#include "src/run_log.h"
#include "src/system.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct command command = {
    .name = "train",
    .summary = "Trains a GPT on a text; ends with a sample and a table of what every byte was for.",
    .groups = OPTIONS_COMMON | OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_RUN |
              OPTIONS_SAMPLE};

struct training { // what the loop carries
    struct run run;
    struct config config;
    struct settings settings;
    struct run_log log;
    struct hunt hunt; // --trap-nan
    struct progress progress;
    struct step_result result;
    double val_loss; // latest; NaN
    double seconds;  // in steps, without validation and saving
    int64_t tokens;  // in those seconds
    char snapshot_dir[CONFIG_PATH_BYTES];
};

static bool save(struct training *t, struct error *e)
{
    return t->settings.out == NULL || run_save(&t->run, t->snapshot_dir, e);
}

// Adapters are nothing without their base: what they leave must not take its place.
static bool check_out(const struct training *t, struct error *e)
{
    const char *out = t->settings.out, *base = t->config.base.dir;
    char path[CONFIG_PATH_BYTES + 16];
    if (out == NULL || base[0] == 0)
        return true;
    snprintf(path, sizeof(path), "%s/snapshot", out);
    return (!system_is_same_place(path, base) && !system_is_same_place(out, base)) ||
           refuse(e, "--out %s holds the base of the adapters: expected a directory of its own",
                  out);
}

static bool open_out(struct training *t, struct error *e)
{
    const char *out = t->settings.out;
    char path[CONFIG_PATH_BYTES + 16];
    if (out == NULL)
        return true;
    if (!system_make_directory(out, e))
        return false;
    snprintf(path, sizeof(path), "%s/config.txt", out);
    snprintf(t->snapshot_dir, sizeof(t->snapshot_dir), "%s/snapshot", out);
    return options_write_file(&t->settings,
                              OPTIONS_MODEL | OPTIONS_DATA | OPTIONS_TRAIN | OPTIONS_SAMPLE, path,
                              e) &&
           run_log_open(&t->log, out, t->run.step.steps_done, e);
}

static bool one_step(struct training *t, struct error *e)
{
    struct run *r = &t->run;
    const struct config *c = &t->config;
    double start = system_seconds();
    batch_fill(&c->data, &c->shape, r->step.steps_done, r->step.tokens, r->step.targets);
    if (!step_gradients(&r->step, &r->tape, &t->result, e))
        return false;
    hunt_after_gradients(r);
    if (t->settings.save_gradients != NULL && r->step.steps_done == t->progress.first_step &&
        !snapshot_write_gradients(t->settings.save_gradients, &r->gpt.params, e))
        return false;
    step_update(&r->step, &r->tape, &t->result);
    hunt_after_update(r);
    double seconds = system_seconds() - start;
    if (!isfinite(t->result.loss))
        return refuse(e,
                      "step %lld: the loss is not a number any more: try a lower --lr; "
                      "--trap-nan says where it stopped being one",
                      (long long)r->step.steps_done);
    t->seconds += seconds;
    t->tokens += c->step.batch * c->step.seq;
    return true;
}

static bool after_step(struct training *t, struct error *e)
{
    struct run *r = &t->run;
    const struct config *c = &t->config;
    int64_t step = r->step.steps_done, counted;
    bool validates = c->eval_every > 0 && (step % c->eval_every == 0 || step == c->steps);
    if (validates && !run_validate(r, c->eval_batches, &t->val_loss, &counted, e))
        return false;
    double rate = (double)t->tokens / t->seconds;
    run_log_write(&t->log, step, &t->result, validates ? &t->val_loss : NULL, t->seconds, rate);
    const struct ledger_counts *counts = &r->tape.arena.ledger.counts;
    progress_show(&t->progress, &(struct progress_step){.step = step,
                                                        .loss = t->result.loss,
                                                        .tokens_per_second = rate,
                                                        .validated = validates,
                                                        .val_loss = t->val_loss,
                                                        .now_bytes = counts->total_now,
                                                        .peak_bytes = counts->total_peak});
    if (c->save_every > 0 && step % c->save_every == 0 && step < c->steps)
        return save(t, e);
    return true;
}

static bool train(struct training *t, struct error *e)
{
    struct run *r = &t->run;
    bool ok = true;
    progress_begin(&t->progress, t->settings.quiet > 0, r->step.steps_done, t->config.steps);
    while (ok && r->step.steps_done < t->config.steps && !system_was_interrupted())
        ok = one_step(t, e) && after_step(t, e);
    progress_end(&t->progress);
    return ok && save(t, e);
}

static void print_text(void *user, const char *text, int64_t bytes)
{
    fwrite(text, 1, (size_t)bytes, user);
}

static FILE *words(const struct training *t) // not where the JSON goes
{
    return json_is_stdout(t->settings.json) ? stderr : stdout;
}

// Made even if nobody is to see it, so that a quiet run is the same run.
static void sample(struct training *t)
{
    bool shows = t->settings.quiet <= 0 && t->config.sample.tokens > 0;
    if (shows)
        fprintf(words(t), "\nA sample (temperature %g):\n", t->config.sample.temperature);
    run_sample(&t->run, (struct run_text){shows ? print_text : NULL, words(t)});
    if (shows)
        fprintf(words(t), "\n");
}

static bool report(struct training *t, struct error *e)
{
    const struct settings *s = &t->settings;
    struct run *r = &t->run;
    const struct ledger_counts *counts = &r->tape.arena.ledger.counts;
    struct report_outside outside = report_measure_outside(r);
    if (s->quiet <= 0) {
        fprintf(words(t), "\n");
        report_memory_table(words(t), counts, &outside);
        if (t->config.sample.tokens > 0)
            report_cache_line(words(t), r);
    }
    if (s->json == NULL)
        return true;
    struct json j;
    if (!json_open(&j, s->json, e))
        return false;
    json_object(&j, NULL);
    report_model_json(&j, &t->config, &r->gpt);
    json_int(&j, "steps", r->step.steps_done);
    json_real(&j, "loss", t->result.loss);
    json_real(&j, "val_loss", t->val_loss);
    json_real(&j, "tokens_per_second", t->tokens > 0 ? (double)t->tokens / t->seconds : 0);
    report_flops_json(&j, &r->tape);
    report_memory_json(&j, counts, &outside);
    report_cache_json(&j, r);
    report_process_json(&j, counts->total_peak, t->config.outside_bytes);
    json_int(&j, "peak_resident_bytes", system_peak_resident_bytes());
    json_end(&j);
    return json_close(&j, s->json, e);
}

static void end_progress(void *user)
{
    struct training *t = user;
    progress_end(&t->progress);
}

static void begin_hunt(struct training *t)
{
    t->hunt = (struct hunt){.command = command.name, .before_exit = end_progress, .user = t};
    hunt_begin(&t->hunt, &t->run);
}

static int run_training(struct training *t, struct error *e)
{
    bool quiet = t->settings.quiet > 0;
    if (!open_out(t, e))
        return command_refuse(command.name, e);
    if (!quiet)
        report_model_line(stderr, &t->config, &t->run.gpt);
    if (t->settings.trap_nan > 0)
        begin_hunt(t);
    system_catch_interrupt();
    if (!train(t, e))
        return command_refuse(command.name, e);
    if (system_was_interrupted() && t->run.step.steps_done < t->config.steps) {
        fprintf(stderr, "memtape train: stopped after step %lld%s%s\n",
                (long long)t->run.step.steps_done,
                t->settings.out != NULL ? "; go on with --resume " : "",
                t->settings.out != NULL ? t->settings.out : "");
        return EXIT_INTERRUPTED;
    }
    sample(t);
    return report(t, e) ? EXIT_OK : command_refuse(command.name, e);
}

// What will be outside the arena is measured before the plan's own tables are there.
static bool open_run(struct training *t, struct error *e)
{
    struct config *c = &t->config;
    struct run *r = &t->run;
    if (!check_out(t, e) || !outside_measure(c, e) ||
        !command_measure(r, c, &t->settings, CONFIG_TRAIN, e))
        return false;
    if (t->settings.force <= 0 && !outside_check(r->plan.bytes, c->outside_bytes, e)) {
        run_close(r);
        return false;
    }
    return run_reserve(r, e);
}

int cmd_train(int argc, char **argv)
{
    static struct training t; // large: settings and tokenizer are in it
    struct error e;
    int status;
    if (!command_begin(&command, &t.settings, argc, argv, &status))
        return status;
    if (!command_config(&t.config, &t.settings, CONFIG_TRAIN, &e))
        return command_refuse(command.name, &e);
    t.val_loss = t.result.loss = NAN;
    if (!open_run(&t, &e)) {
        config_close(&t.config);
        return command_refuse(command.name, &e);
    }
    status = run_training(&t, &e);
    if (!run_log_close(&t.log, &e) && status == EXIT_OK)
        status = command_refuse(command.name, &e);
    run_close(&t.run);
    config_close(&t.config);
    return status;
}
