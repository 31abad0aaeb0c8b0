#include "src/check_report.h"

#include "tape/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

// ---- differences -----------------------------------------------------------------------

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

void check_difference_add(struct check_difference *sum, const struct check_difference *d)
{
    sum->elements += d->elements;
    sum->differ += d->differ;
    sum->largest_absolute = larger(d->largest_absolute, sum->largest_absolute);
    sum->largest_relative = larger(d->largest_relative, sum->largest_relative);
    sum->norm = hypot(sum->norm, d->norm);
    sum->reference_norm = hypot(sum->reference_norm, d->reference_norm);
    sum->error_norm = hypot(sum->error_norm, d->error_norm);
}

double check_difference_relative(const struct check_difference *d)
{
    return d->error_norm == 0 ? 0 : d->error_norm / d->reference_norm;
}

static void difference_json(struct json *j, const struct check_difference *d)
{
    json_int(j, "elements", d->elements);
    json_int(j, "differ", d->differ);
    json_real(j, "largest_absolute", d->largest_absolute);
    json_real(j, "largest_relative", d->largest_relative);
    json_real(j, "norm", d->norm);
    json_real(j, "reference_norm", d->reference_norm);
    json_real(j, "error_norm", d->error_norm);
}

// ---- the whole -------------------------------------------------------------------------

bool check_report_open(struct check_report *c, const struct settings *s, struct error *e)
{
    bool json_on_stdout = json_is_stdout(s->json);
    *c = (struct check_report){.file = json_on_stdout ? stderr : stdout,
                               .quiet = s->quiet > 0,
                               .verbose = s->verbose > 0,
                               .json_path = s->json};
    if (s->json == NULL)
        return true;
    if (!json_open(&c->json, s->json, e))
        return false;
    json_object(&c->json, NULL);
    return true;
}

void check_report_model(struct check_report *c, const struct config *config, const struct gpt *g)
{
    if (!c->quiet)
        report_model_line(c->file, config, g);
    if (c->json_path == NULL)
        return;
    json_text(&c->json, "dtype", dtype_name(DTYPE_REAL));
    report_model_json(&c->json, config, g);
    json_array(&c->json, "checks");
}

bool check_report_close(struct check_report *c, const struct error *error, struct error *e)
{
    if (c->json_path == NULL)
        return true;
    while (c->json.depth > 1)
        json_end(&c->json);
    if (error != NULL)
        json_text(&c->json, "error", error->text);
    json_bool(&c->json, "ok", error == NULL && !c->is_any_broken);
    json_end(&c->json);
    return json_close(&c->json, c->json_path, e);
}

// ---- one check -------------------------------------------------------------------------

void check_report_begin(struct check_report *c, const char *name, const char *law)
{
    c->name = name;
    c->elements = c->differ = 0;
    c->is_broken = false;
    c->why[0] = 0;
    if (!c->quiet)
        fprintf(c->file, "\n%s: %s\n", name, law);
    if (c->json_path == NULL)
        return;
    json_object(&c->json, NULL);
    json_text(&c->json, "name", name);
    json_text(&c->json, "law", law);
}

void check_report_variants(struct check_report *c)
{
    if (!c->quiet)
        fprintf(c->file, "  %-38s %12s %12s %12s %9s %8s %8s %6s %10s %8s\n", "", "saved",
                "activations", "peak", "resident", "replay", "ms/step", "ratio", "compared",
                "differ");
    if (c->json_path != NULL)
        json_array(&c->json, "variants");
}

void check_report_variants_end(struct check_report *c)
{
    if (c->json_path != NULL)
        json_end(&c->json);
}

void check_report_broken(struct check_report *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (c->why[0] == 0)
        vsnprintf(c->why, sizeof(c->why), format, args);
    va_end(args);
    c->is_broken = c->is_any_broken = true;
}

void check_report_end(struct check_report *c, const char *text)
{
    char counted[128];
    snprintf(counted, sizeof(counted), "%lld of %lld numbers differ in a bit", (long long)c->differ,
             (long long)c->elements);
    const char *verdict = c->is_broken && c->why[0] != 0 ? c->why : text != NULL ? text : counted;
    fprintf(c->file, "%s%s%s: %s\n", c->quiet ? c->name : "", c->quiet ? ": " : "  ",
            c->is_broken ? "BROKEN" : "ok", verdict);
    fflush(c->file);
    if (c->json_path == NULL)
        return;
    json_bool(&c->json, "ok", !c->is_broken);
    json_text(&c->json, "verdict", verdict);
    json_end(&c->json);
}

// ---- runs ------------------------------------------------------------------------------

// What was not measured is 0 in a variant: "-" here, and null in JSON.
static void print_cell(FILE *f, int width, bool is_measured, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void print_cell(FILE *f, int width, bool is_measured, const char *format, ...)
{
    char text[64] = "-";
    va_list args;
    va_start(args, format);
    if (is_measured)
        vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(f, " %*s", width, text);
}

static void print_variant(FILE *f, const struct check_variant *v)
{
    char resident[TEXT_NUMBER_BYTES];
    fprintf(f, "  %-38s %12lld", v->name, (long long)v->saved_bytes);
    print_cell(f, 12, v->activation_side_bytes > 0, "%lld", (long long)v->activation_side_bytes);
    fprintf(f, " %12lld", (long long)v->peak_bytes);
    print_cell(f, 9, v->resident_bytes > 0, "%s", text_from_bytes(v->resident_bytes, resident));
    print_cell(f, 8, v->flops > 0, "%.2f%%", 100 * (double)v->recompute_flops / (double)v->flops);
    fprintf(f, " %8.2f", 1e3 * v->seconds);
    print_cell(f, 6, v->time_ratio > 0, "%.3f", v->time_ratio);
    if (v->is_reference)
        fprintf(f, " %10s %8s\n", "reference", "");
    else
        fprintf(f, " %10lld %8lld\n", (long long)v->total.elements, (long long)v->total.differ);
}

static void json_int_if(struct json *j, const char *key, bool is_measured, int64_t value)
{
    if (is_measured)
        json_int(j, key, value);
    else
        json_null(j, key);
}

static void variant_json(struct check_report *c, const struct check_variant *v)
{
    struct json *j = &c->json;
    json_object(j, NULL);
    json_text(j, "name", v->name);
    json_bool(j, "is_reference", v->is_reference);
    json_int(j, "planned_bytes", v->planned_bytes);
    json_int(j, "peak_bytes", v->peak_bytes);
    json_int(j, "saved_for_backward", v->saved_bytes);
    json_int_if(j, "activation_side", v->activation_side_bytes > 0, v->activation_side_bytes);
    json_int_if(j, "resident_bytes", v->resident_bytes > 0, v->resident_bytes);
    json_int_if(j, "flops", v->flops > 0, v->flops);
    json_int_if(j, "recompute_flops", v->flops > 0, v->recompute_flops);
    json_real(j, "time_ratio", v->time_ratio > 0 ? v->time_ratio : NAN);
    json_real(j, "seconds_per_step", v->seconds);
    json_real(j, "loss", v->loss);
    if (!v->is_reference)
        difference_json(j, &v->total);
    json_array(j, "tensors");
}

void check_report_variant(struct check_report *c, const struct check_variant *v)
{
    c->has_rows = false;
    c->elements += v->total.elements;
    c->differ += v->total.differ;
    if (!c->quiet)
        print_variant(c->file, v);
    if (c->json_path != NULL)
        variant_json(c, v);
    if (v->peak_bytes != v->planned_bytes)
        check_report_broken(c, "%s held %lld bytes, planned %lld", v->name,
                            (long long)v->peak_bytes, (long long)v->planned_bytes);
}

static void tensor_row(struct check_report *c, const char *name, const char *subject,
                       const struct check_difference *d)
{
    if (!c->has_rows)
        fprintf(c->file, "      %-30s %-8s %9s %9s %10s %10s %10s %12s %12s\n", "tensor", "",
                "elements", "differ", "largest", "relative", "of norm", "norm", "reference");
    c->has_rows = true;
    fprintf(c->file, "      %-30s %-8s %9lld %9lld %10.3g %10.3g %10.3g %12.6g %12.6g\n", name,
            subject, (long long)d->elements, (long long)d->differ, d->largest_absolute,
            d->largest_relative, check_difference_relative(d), d->norm, d->reference_norm);
}

void check_report_tensor(struct check_report *c, const char *name, const char *subject,
                         const struct check_difference *d, bool is_wrong)
{
    if (is_wrong ? !c->is_broken || !c->quiet : c->verbose && !c->quiet)
        tensor_row(c, name, subject, d);
    if (is_wrong)
        c->is_broken = c->is_any_broken = true;
    if (c->json_path == NULL)
        return;
    json_object(&c->json, NULL);
    json_text(&c->json, "name", name);
    json_text(&c->json, "subject", subject);
    difference_json(&c->json, d);
    json_end(&c->json);
}

void check_report_variant_end(struct check_report *c)
{
    if (c->json_path == NULL)
        return;
    json_end(&c->json);
    json_end(&c->json);
}

// ---- mistakes --------------------------------------------------------------------------

// Zero by zero has a sign that says nothing.
static double without_sign(double x)
{
    return isnan(x) ? NAN : x;
}

void check_report_mistakes(struct check_report *c, int64_t micro_batches)
{
    if (!c->quiet)
        fprintf(c->file,
                "  The classic mistakes on the first of these batches, in %lld micro-batches:\n"
                "  %-22s %14s %14s %14s %10s %s\n",
                (long long)micro_batches, "", "gradient norm", "wrong, of norm", "largest, rel.",
                "loss", " seen in the loss");
    if (c->json_path != NULL)
        json_array(&c->json, "mistakes");
}

void check_report_mistake(struct check_report *c, const char *name,
                          const struct check_difference *d, double loss, double our_loss)
{
    static const double seen = 0.01; // a part of the loss that nobody overlooks
    bool is_seen = !(fabs(loss - our_loss) <= seen * our_loss);
    double wrong = check_difference_relative(d);
    if (!c->quiet)
        fprintf(c->file, "  %-22s %14.6g", name, without_sign(d->norm));
    if (!c->quiet && d->differ == 0)
        fprintf(c->file, " %14s %14s %10.5f\n", "", "", loss);
    else if (!c->quiet)
        fprintf(c->file, " %13.4g%% %13.4g%% %10.5f  %s\n", 100 * without_sign(wrong),
                100 * without_sign(d->largest_relative), without_sign(loss),
                is_seen ? "yes" : "no");
    if (c->json_path == NULL)
        return;
    json_object(&c->json, NULL);
    json_text(&c->json, "name", name);
    json_real(&c->json, "gradient_norm", d->norm);
    json_real(&c->json, "relative", wrong);
    json_real(&c->json, "largest_relative", d->largest_relative);
    json_real(&c->json, "loss", loss);
    json_bool(&c->json, "seen_in_loss", is_seen);
    json_end(&c->json);
}

void check_report_mistakes_end(struct check_report *c)
{
    if (c->json_path != NULL)
        json_end(&c->json);
}
