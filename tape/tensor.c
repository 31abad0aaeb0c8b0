#include "tape/tensor.h"

#include <string.h>

int64_t tensor_count(const struct tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->dim_count; i++)
        count *= x->dim[i];
    return count;
}

int64_t tensor_bytes(const struct tensor *x)
{
    return x->base != NULL ? 0 : tensor_count(x) * dtype_bytes(x->dtype);
}

int64_t tensor_grad_bytes(const struct tensor *x)
{
    return tensor_count(x) * dtype_bytes(x->grad_dtype);
}

bool tensor_is_contiguous(const struct tensor *x)
{
    int64_t expected = 1;
    for (int i = x->dim_count - 1; i >= 0; i--) {
        if (x->stride[i] != expected && x->dim[i] != 1)
            return false;
        expected *= x->dim[i];
    }
    return true;
}

void tensor_shape(struct tensor *x, int dim_count, const int64_t *dim)
{
    CHECK(dim_count >= 1 && dim_count <= DIM_MAX);
    x->dim_count = dim_count;
    int64_t stride = 1;
    for (int i = dim_count - 1; i >= 0; i--) {
        CHECK(dim[i] > 0 && stride <= INT64_MAX / 16 / dim[i]);
        x->dim[i] = dim[i];
        x->stride[i] = stride;
        stride *= dim[i];
    }
}

void tensor_like(struct tensor *y, const struct tensor *x)
{
    tensor_shape(y, x->dim_count, x->dim);
}

int64_t tensor_samples(const struct tensor *x)
{
    return x->dim[0];
}

int64_t tensor_rows(const struct tensor *x)
{
    int64_t rows = 1;
    for (int i = 1; i < x->dim_count - 1; i++)
        rows *= x->dim[i];
    return rows;
}

int64_t tensor_cols(const struct tensor *x)
{
    return x->dim_count > 1 ? x->dim[x->dim_count - 1] : 1;
}

static struct ledger_label label_of(const struct tensor *x, const char *suffix,
                                    enum ledger_category category, enum dtype dtype)
{
    return (struct ledger_label){.name = x->name,
                                 .suffix = suffix,
                                 .category = category,
                                 .dtype = dtype,
                                 .dim_count = x->dim_count,
                                 .dim = x->dim,
                                 .node = -1};
}

void tensor_place(struct tensor *x, struct arena *a, const char *name,
                  enum ledger_category category, enum dtype dtype, int dim_count,
                  const int64_t *dim)
{
    *x = (struct tensor){.name = name,
                         .index = -1,
                         .dtype = dtype,
                         .grad_dtype = DTYPE_REAL,
                         .is_persistent = true,
                         .holders = 1};
    tensor_shape(x, dim_count, dim);
    struct ledger_label label = label_of(x, NULL, category, dtype);
    x->data = arena_push(a, ARENA_LOW, tensor_bytes(x), &label);
}

void tensor_persistent(struct tensor *x, struct arena *a, const char *name,
                       enum ledger_category category, int dim_count, const int64_t *dim)
{
    tensor_place(x, a, name, category, DTYPE_REAL, dim_count, dim);
}

void tensor_add_grad(struct tensor *x, struct arena *a)
{
    struct ledger_label label = label_of(x, ".grad", LEDGER_GRADIENTS, x->grad_dtype);
    x->wants_grad = true;
    x->grad = arena_push(a, ARENA_LOW, tensor_grad_bytes(x), &label);
    tensor_zero_grad(a, x);
}

void tensor_zero_grad(const struct arena *a, struct tensor *x)
{
    if (!a->dry && x->grad != NULL)
        memset(x->grad, 0, (size_t)tensor_grad_bytes(x));
}
