// check_report.h - what memtape check says, as it goes: tables for people, and JSON.
#ifndef SRC_CHECK_REPORT_H
#define SRC_CHECK_REPORT_H

#include "src/report.h"

struct check_difference {     // between the elements of a tensor and what they should be
    int64_t elements, differ; // differ: in any bit
    double largest_absolute, largest_relative; // relative: to the larger of the two
    double norm, reference_norm, error_norm;
};

void check_difference_add(struct check_difference *sum, const struct check_difference *d);
double check_difference_relative(const struct check_difference *d); // error to reference norm

struct check_variant { // what one run was
    const char *name;
    int64_t planned_bytes, peak_bytes;
    int64_t saved_bytes;            // activations kept when backward begins
    int64_t activation_side_bytes;  // at the peak: see ledger_activation_side
    int64_t resident_bytes;         // of the process; 0, here and below: not measured
    int64_t flops, recompute_flops; // of one step
    double seconds;                 // of its fastest step
    double time_ratio;              // to the reference
    double loss;                    // of its last
    bool is_reference;
    struct check_difference total;
};

struct check_report {
    FILE *file; // words go there
    bool quiet, verbose;
    const char *json_path; // NULL: no JSON
    struct json json;
    const char *name; // of the check that is open
    int64_t elements, differ;
    bool is_broken, is_any_broken; // is_broken: the check that is open
    bool has_rows;                 // a table of tensors is open
    char why[256];                 // it is broken, besides what differs
};

bool check_report_open(struct check_report *c, const struct settings *s, struct error *e);
void check_report_model(struct check_report *c, const struct config *config, const struct gpt *g);
// The last words. error: why the checks ended early; NULL: they did not.
bool check_report_close(struct check_report *c, const struct error *error, struct error *e);

// One check: first its variants, if it has any; then what else it says; then the verdict.
void check_report_begin(struct check_report *c, const char *name, const char *law);
void check_report_variants(struct check_report *c);
void check_report_variants_end(struct check_report *c);
void check_report_broken(struct check_report *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// text: the verdict if nothing is broken; NULL: how many numbers were compared.
void check_report_end(struct check_report *c, const char *text);

// A run and, row by row, the tensors in it that differ (verbose: all).
void check_report_variant(struct check_report *c, const struct check_variant *v);
void check_report_tensor(struct check_report *c, const char *name, const char *subject,
                         const struct check_difference *d, bool is_wrong);
void check_report_variant_end(struct check_report *c);

// What the mistakes of check_naive.c make of a gradient; loss: what would be printed beside it.
void check_report_mistakes(struct check_report *c, int64_t micro_batches);
void check_report_mistake(struct check_report *c, const char *name,
                          const struct check_difference *d, double loss, double our_loss);
void check_report_mistakes_end(struct check_report *c);

#endif
