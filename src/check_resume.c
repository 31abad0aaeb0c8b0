#include "src/check.h"
#include "src/system.h"

#include <stdio.h>

// Three steps at once; then one, a snapshot, and a run that reads it and does the other two.
static bool run_parts(struct check *k, const char *dir, struct error *e)
{
    enum { STEPS = 3, FIRST = 1 };
    char snapshot[CONFIG_PATH_BYTES];
    snprintf(snapshot, sizeof(snapshot), "%s/snapshot", dir);
    const struct check_part whole = {
        .name = "3 steps", .last = STEPS, .steps = STEPS, .is_reference = true};
    const struct check_part before = {
        .name = "1 step and a snapshot", .last = FIRST, .steps = STEPS, .save_to = snapshot};
    const struct check_part after = {
        .name = "2 steps from the snapshot", .first = FIRST, .last = STEPS, .steps = STEPS};
    if (!check_run(k, &whole, e) || !check_run(k, &before, e) ||
        !snapshot_read_info(snapshot, &k->config.snapshot, e))
        return false;
    snprintf(k->config.snapshot_dir, sizeof(k->config.snapshot_dir), "%s", snapshot);
    k->config.resumes = true;
    return check_run(k, &after, e);
}

bool check_resume(struct check *k, struct error *e)
{
    char dir[SYSTEM_PATH_BYTES];
    check_report_begin(&k->report, "resume",
                       "a run that stopped and went on leaves the bits of "
                       "one that did not stop");
    check_report_variants(&k->report);
    if (!system_make_temporary(dir, e))
        return false;
    bool ok = run_parts(k, dir, e);
    system_remove_tree(dir);
    k->config = k->given;
    if (!ok)
        return false;
    check_report_variants_end(&k->report);
    check_report_end(&k->report, NULL);
    return true;
}
