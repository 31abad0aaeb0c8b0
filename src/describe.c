#include "src/describe.h"

#include <stdio.h>
#include <string.h>

char *describe_needs(const struct op *o, char out[DESCRIBE_BYTES])
{
    static const char *const word[] = {"in0", "in1", "in2", "out"}; // as enum op_needs
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < COUNT_OF(word); i++)
        if ((o->needs[0] | o->needs[1] | o->needs[2]) & (1u << i))
            used += (size_t)snprintf(out + used, DESCRIBE_BYTES - used, "%s%s",
                                     used > 0 ? ", " : "", word[i]);
    if (o->saved_name != NULL)
        used += (size_t)snprintf(out + used, DESCRIBE_BYTES - used, "%s%s", used > 0 ? ", " : "",
                                 "saved");
    if (used == 0)
        snprintf(out, DESCRIBE_BYTES, "nothing");
    return out;
}

const char *describe_cost(const struct op *o)
{
    static const char *const word[] = {
        [COST_CHEAP] = "cheap", [COST_GEMM] = "gemm", [COST_ATTENTION] = "attention"};
    return word[o->cost];
}

const char *describe_takes(const struct op *o)
{
    static const char *const word[] = {[TAKES_NOTHING] = "",
                                       [TAKES_IN0_AS_OUT] = "in0 as out",
                                       [TAKES_IN1_AS_OUT] = "in1 as out",
                                       [TAKES_IN0_AS_SAVED] = "in0 as saved"};
    return word[o->takes];
}

const char *describe_gradient(const struct op *o)
{
    static const char *const word[] = {[GRAD_WRITES] = "written",
                                       [GRAD_IN_PLACE] = "in place of dy",
                                       [GRAD_PASSES] = "passed on",
                                       [GRAD_FROM_SAVED] = "in place of saved",
                                       [GRAD_IS_VIEW] = "part of its base's"};
    return o->forward_only ? "none: inference" : word[o->grad];
}

char *describe_shape(int dim_count, const int64_t *dim, char out[DESCRIBE_BYTES])
{
    size_t used = (size_t)snprintf(out, DESCRIBE_BYTES, "(");
    for (int i = 0; i < dim_count; i++)
        used += (size_t)snprintf(out + used, DESCRIBE_BYTES - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)dim[i]);
    snprintf(out + used, DESCRIBE_BYTES - used, ")");
    return out;
}

void describe_shape_json(struct json *j, const char *key, int dim_count, const int64_t *dim)
{
    bool was_in_line = j->in_line;
    json_array(j, key);
    j->in_line = true;
    for (int i = 0; i < dim_count; i++)
        json_int(j, NULL, dim[i]);
    json_end(j);
    j->in_line = was_in_line;
}
