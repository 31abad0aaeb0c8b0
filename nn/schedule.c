#include "nn/schedule.h"

#include <math.h>

bool schedule_check(const struct schedule *s, struct error *e)
{
    if (!(s->rate > 0) || !isfinite(s->rate))
        return refuse(e, "lr %g: expected a number above 0", s->rate);
    if (!(s->min_rate >= 0 && s->min_rate <= s->rate))
        return refuse(e, "min-lr %g: expected 0 to lr %g", s->min_rate, s->rate);
    if (s->warmup_steps < 0 || s->decay_steps < 0)
        return refuse(e, "warmup %lld, decay-steps %lld: expected 0 or more",
                      (long long)s->warmup_steps, (long long)s->decay_steps);
    if (s->decay_steps > 0 && s->decay_steps < s->warmup_steps)
        return refuse(e,
                      "decay-steps %lld is less than warmup %lld: the rate would fall before it "
                      "has risen",
                      (long long)s->decay_steps, (long long)s->warmup_steps);
    return true;
}

double schedule_rate(const struct schedule *s, int64_t step)
{
    CHECK(step >= 1);
    if (step <= s->warmup_steps)
        return s->rate * (double)step / (double)s->warmup_steps;
    if (s->decay_steps == 0)
        return s->rate;
    if (step >= s->decay_steps)
        return s->min_rate;
    double done = (double)(step - s->warmup_steps) / (double)(s->decay_steps - s->warmup_steps);
    return s->min_rate + (s->rate - s->min_rate) * 0.5 * (1 + cos(3.141592653589793 * done));
}
