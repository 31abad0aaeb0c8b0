#define _DEFAULT_SOURCE
#include "src/run_log.h"

#include "src/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// Where the lines up to steps_done end. Each line begins {"step": N.
static long end_of_kept(FILE *f, int64_t steps_done)
{
    char line[1024];
    long kept = 0;
    rewind(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        long long step = 0;
        if (sscanf(line, "{\"step\": %lld", &step) != 1 || step > steps_done ||
            strchr(line, '\n') == NULL)
            break;
        kept = ftell(f);
    }
    return kept;
}

bool run_log_open(struct run_log *l, const char *dir, int64_t steps_done, struct error *e)
{
    char path[4096 + 16];
    l->file = NULL;
    if (dir == NULL)
        return true;
    snprintf(path, sizeof(path), "%s/log.jsonl", dir);
    l->file = fopen(path, steps_done > 0 ? "r+" : "w");
    if (l->file == NULL && errno == ENOENT)
        l->file = fopen(path, "w+"); // a resumed run may go on elsewhere
    if (l->file == NULL)
        return refuse(e, "%s: %s", path, strerror(errno));
    if (steps_done == 0)
        return true;
    long kept = end_of_kept(l->file, steps_done);
    if (fseek(l->file, kept, SEEK_SET) != 0 || ftruncate(fileno(l->file), kept) != 0)
        return refuse(e, "%s: %s", path, strerror(errno));
    return true;
}

void run_log_write(struct run_log *l, int64_t step, const struct step_result *r,
                   const double *val_loss, double seconds, double tokens_per_second)
{
    if (l->file == NULL)
        return;
    struct json j = {.file = l->file, .in_line = true};
    json_object(&j, NULL);
    json_int(&j, "step", step);
    json_real(&j, "loss", r->loss);
    if (val_loss != NULL)
        json_real(&j, "val_loss", *val_loss);
    json_real(&j, "lr", r->rate);
    json_real(&j, "gradient_norm", r->gradient_norm);
    json_int(&j, "targets", r->counted);
    json_real(&j, "seconds", seconds);
    json_real(&j, "tokens_per_second", tokens_per_second);
    json_end(&j);
    fputc('\n', l->file);
    fflush(l->file);
}

bool run_log_close(struct run_log *l, struct error *e)
{
    if (l->file == NULL)
        return true;
    bool ok = !ferror(l->file);
    ok &= fclose(l->file) == 0;
    l->file = NULL;
    return ok || refuse(e, "the log could not be written: %s", strerror(errno));
}
