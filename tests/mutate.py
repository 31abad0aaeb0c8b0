# mutate.py - do the tests of tape/, and of what nn/ keeps and saves, notice a fault? Plants one at a time in a copy of the tree and
# says which test catches it. For developers; not a part of `make test`.
#
#   python3 tests/mutate.py            all faults, about 5 s each
#   python3 tests/mutate.py WORD...    those whose file or name contains one of the words
#   python3 tests/mutate.py --all ...  goes on after the first test that catches a fault
#
# A fault is a file of tape/ or, spelled from the top, of nn/, a name, and pairs of texts: each first text must occur exactly once and
# becomes the second. A fault that no test catches is a hole in the tests: close it. A fault that
# cannot be planted any more (the code has changed) fails too: plant it anew. Every test is built in
# double and run with two threads; CC, BLAS_LIBS and CMOCKA_LIBS may say how.
import os
import shutil
import subprocess
import sys

FAULTS = [
    # ---- arena ----
    ('arena.c', 'a live block is popped',
     ('!s->block[s->count - 1].live; s->count--)',
      '(!s->block[s->count - 1].live || s->count == 7); s->count--)')),
    ('arena.c', 'a slide moves no bytes', ('    if (!a->dry)\n        memmove(', '    if (0)\n        memmove(')),
    ('arena.c', 'a slide goes a block too far',
     ('        to--;\n    if (to == top)', '        to--;\n    to -= to > 0 && to < top;\n    if (to == top)')),
    ('arena.c', 'a slide forgets what was stranded',
     ('        s->bytes -= s->block[i].bytes;\n        a->stranded_bytes -= s->block[i].bytes;\n        b.offset',
      '        s->bytes -= s->block[i].bytes;\n        b.offset')),
    ('arena.c', 'the range is rounded up', ('p->bytes / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES',
                                            'round_up(p->bytes)')),
    ('arena.c', 'the last page is not touched', ('[end - 1] = 0;', '[at - page] = 0;')),
    ('arena.c', 'the ends may cross', ('    if (need <= left)\n        return;',
                                       '    if (need <= left + 64)\n        return;'),
     ('    CHECK(arena_held_bytes(a) <= a->cap_bytes);\n', '')),
    ('arena.c', 'dry memory may be touched', ('reserve(a->cap_bytes, !dry)', 'reserve(a->cap_bytes, true)')),
    ('arena.c', 'blocks lose their rows in a lap', ('.block[i].row = to;', '.block[i].row = from;')),
    ('arena.c', 'a relabel is not noted', ('    b->row = ledger_born(', '    (void)ledger_born(')),
    ('arena.c', 'what is given back is not poisoned',
     ('    poison(a, b);\n    b->live = false;', '    b->live = false;')),
    # ---- ledger ----
    ('ledger.c', 'the peak is the last of equals', ('c->total_now > c->total_peak', 'c->total_now >= c->total_peak')),
    ('ledger.c', 'entering a phase holds nothing',
     ('    l->counts.phase_peak[phase] = highest(l->counts.phase_peak[phase], l->counts.total_now);\n', '')),
    ('ledger.c', 'live rows need no room in a lap', ('l->lap_rows = l->live_row_count;', 'l->lap_rows = 0;')),
    ('ledger.c', 'a reset forgets the categories',
     ('    memcpy(c->peak, c->now, sizeof(c->peak));\n', '')),
    ('ledger.c', 'a row dies an event late', ('r->died = next_event(l);', 'r->died = next_event(l) + 1;')),
    ('ledger.c', 'categories peak too high', ('highest(c->peak[i], c->now[i])', 'highest(c->peak[i], c->now[i] + 64)')),
    ('ledger.c', 'the wrong phase has the peak', ('c->phase_peak[l->phase] = highest(c->phase_peak[l->phase]',
                                                  'c->phase_peak[0] = highest(c->phase_peak[0]')),
    # ---- tape ----
    ('tape.c', 'takes over what backward reads', (' && x->holders == 1 && x->in_scope', ' && x->in_scope')),
    ('tape.c', 'takes over from outside of the segment', ('!x->is_persistent && !outside &&', '!x->is_persistent &&')),
    ('tape.c', 'a transient outlives its scope',
     ('        if (x->is_transient)\n            tape_give_data', '        if (0)\n            tape_give_data')),
    ('tape.c', 'a plan is larger than the run', ('arena_push(&t->arena, end, tensor_bytes(y), &label)',
                                                 'arena_push(&t->arena, end, tensor_bytes(y) + 64 * t->arena.dry, &label)')),
    ('tape.c', 'a view does not hold its base', ('        n->out->base->holders++;', '        (void)n;')),
    ('tape.c', 'extras go with the data', ('    tape_give_data(t, x);\n    if (x->base != NULL)',
                                           '    tape_give_data(t, x);\n    tape_give_saved(t, x);\n    if (x->base != NULL)')),
    ('tape.c', 'what is left behind goes unnoticed', ('    check_gone(t);\n', '')),
    ('tape.c', 'backward holds nothing', ('            n->in[i]->holders++;', '            (void)n;')),
    ('tape.c', 'leaving a scope slides nothing', ('        owner->data = arena_sink(&t->arena, owner->data);',
                                                  '        (void)owner;')),
    ('tape.c', 'a walk may be repeated', ('    t->is_walked = true;\n', '')),
    # ---- segment ----
    ('segment.c', 'outside inputs are not held',
     ('                t->node[i].in[j]->holders++;', '                t->node[i].in[j]->holders += 0;'),
     ('            tape_let_go(t, x);\n', '')),
    ('segment.c', 'outside inputs are held where gradients go',
     ('for (int j = 0; s->is_replayed && j', 'for (int j = 0; t->node[i].out->wants_grad && j'),
     ('|| !s->is_replayed)', '|| !t->node[i].out->wants_grad)')),
    ('segment.c', 'a hoist copies nothing', ('    if (!t->arena.dry)\n        memcpy(to', '    if (0)\n        memcpy(to')),
    ('segment.c', 'extras are not made again',
     ('    n->out->redo |= n->out->saved_bytes > 0 && n->out->saved == NULL;\n', '')),
    ('grad.c', 'a lent gradient slides', ('x->grad != NULL && !x->grad_is_lent &&', 'x->grad != NULL &&')),
    ('grad.c', 'a gradient slides under its borrower', (' && !grad_is_borrowed_by_others(t, x))\n        x->grad = arena_sink', ')\n        x->grad = arena_sink')),
    ('grad.c', 'no gradient slides', ('        x->grad = arena_sink(&t->arena, x->grad);', '        (void)grad_is_borrowed_by_others;')),
    ('segment.c', 'a replay computes all that is gone', ('        if (m->out->redo)\n            tape_compute',
                                                         '        if (m->out->redo || (m->out->base == NULL && m->out->data == NULL && m != n && m->taken == NULL))\n            m->out->redo = true, tape_compute')),
    ('segment.c', 'a replay keeps what it made', ('if (y->redo && y->holders == 0)', 'if (y->redo && y->holders < 0)')),
    ('segment.c', 'the policy is ignored', ('return ((unsigned)policy >> cost & 1) == 0;',
                                            'return ((unsigned)policy & 1) == 0 || cost > 9;')),
    # ---- grad ----
    ('grad.c', 'adds to a lent buffer', ('    if (x->grad_is_lent)\n        own_copy(t, x);\n', ''),
     ('t->loan[i]->grad == x->grad)\n            own_copy', 't->loan[i]->grad == x->grad && t->loan[i] != x)\n            own_copy')),
    ('grad.c', 'writes under a borrower', ('        if (t->loan[i]->grad == x->grad)\n            own_copy(t, t->loan[i]);',
                                           '        (void)i;')),
    ('grad.c', 'in place on a borrowed buffer', ('may_take(y, x) && !y->grad_is_lent', 'may_take(y, x) && y != NULL')),
    ('grad.c', 'no heir', ('        if (heir < t->loan_count)\n            forget_loan', '        if (0)\n            forget_loan')),
    ('grad.c', 'a sum passes on a buffer that has changed', ('        dy = y->grad; //', '        //')),
    ('grad.c', 'the rest of a view is rubbish', ('*adds = tensor_count(x) < tensor_count(owner);', '*adds = false;')),
    ('grad.c', 'the second reader overwrites', ('        *adds = true;\n', '')),
    ('grad.c', 'a second reader of logits is forgotten', ('    if (x->wants_grad && !takes)\n', '    if (0)\n')),
    ('grad.c', 'the seed is 1', ('        *at = seed;', '        *at = seed != 0;')),
    # ---- trap ----
    ('trap.c', 'what is saved is not looked at', ('        y->saved_bytes == 0)\n        return;', '        y->saved_bytes >= 0)\n        return;')),
    ('trap.c', 'a view is looked at as if it were whole', ('return tensor_is_contiguous(v.x) ? v.count :', 'return true ? v.count :')),
    ('trap.c', 'a view has its base\'s coordinates', ('offset += index % x->dim[i] * x->stride[i];', 'offset += index % x->dim[i] * (x->stride[i] > 6 ? 6 : x->stride[i]);')),
    ('trap.c', 'a compact gradient is looked at whole', ('    v.count = rows * tensor_cols(v.x);', '    (void)rows;')),
    ('trap.c', 'a compact row is no id', ('return n->args.ids[k] * cols', 'return index / cols * cols')),
    ('trap.c', 'the first reader is blamed', ('x->is_persistent ? first_bad(view_of(x, tensor_data(x))) : -1', '-1')),
    ('trap.c', 'springs again', ('int64_t index = p->is_sprung ? -1 : first_bad(v);', 'int64_t index = first_bad(v);')),
    ('trap.c', 'a dry run is looked at', ('p->is_sprung || t->arena.dry)', 'p->is_sprung)')),
    ('trap.c', 'an overwritten input is not brought back', ('x != NULL && bring_back(t, n);', 'false && bring_back(t, n);')),
    ('trap.c', 'the output is not made again', ('    tape_bind(n);\n    n->op->forward[t->device](t, n);\n', '')),
    ('trap.c', 'a chain is repeated backwards', ('struct node *m = chain[count];', 'struct node *m = chain[0];')),
    ('tape.c', 'forward is not trapped', ('            trap_forward(t, n, phase);', '            (void)phase;')),
    ('grad.c', 'backward is not trapped', ('            trap_backward(t, n);', '            (void)n;')),
    ('grad.c', 'a sum of gradients is not trapped', ('        trap_added(t, n, x, dx);', '        (void)n;')),
    ('grad.c', 'the first reader of a seed is blamed', ('    trap_values(t, loss, dloss, ".grad", "when backward began");\n', '')),
    ('cpu/scan.c', 'infinity is a number', ('(b & exponent) == exponent', '(b & exponent) == exponent && x[i] != x[i]')),
    ('cpu/scan.c', 'the largest number is none', ('(b & exponent) == exponent', '(b & exponent) >= exponent - ((bits)1 << (sizeof(real) == 8 ? 52 : 23))')),
    ('cpu/scan.c', 'the last block is the first', ('reduction(min : first)', 'reduction(max : first)')),
    ('cpu/scan.c', 'the rest is not looked at', ('(n + BLOCK - 1) / BLOCK', 'n / BLOCK')),
    # ---- ops ----
    ('ops/ops_int.h', 'rubbish is added to', ('n->dx[i] != NULL && !n->adds[i]', 'n->dx[i] != NULL && n->work != NULL')),
    ('ops/op_dropout.c', 'the mask forgets the sample', ('n->first_sample + r / rows', 'r / rows')),
    ('ops/op_dropout.c', 'nothing is divided by 1 - rate', ('dropout_factor(n->args.rate)', '1')),
    ('ops/op_attention.c', 'delta is 1 % off', ('(ds[c] - delta)', '(ds[c] - (real)0.99 * delta)')),
    ('ops/op_attention.c', 'a new maximum rescales nothing', ('            if (from > 0)\n', '            if (from < 0)\n')),
    ('ops/op_attention.c', 'the mask forgets the sample', ('n->first_sample + task / heads', 'task / heads')),
    ('ops/op_attention.c', 'threads share scratch', ('real *s = (real *)n->work + op_thread() * forward_room(n)', 'real *s = (real *)n->work')),
    ('ops/op_attention.c', 'sees one key too many', ('c = i.from + r + 1 > j.from ? i.from + r + 1 - j.from : 0',
                                                     'c = i.from + r + 2 > j.from ? i.from + r + 2 - j.from : 0')),
    ('ops/op_embedding.c', 'positions begin at 0', ('(n->args.first + i % length) * cols + at', '(i % length) * cols + at')),
    ('ops/op_embedding.c', 'gradients of positions begin at 0', ('n->args.first + position;', 'position;')),
    ('ops/op_cached_attention.c', 'sees one key too many', ('first + i.from + r + 1 - j.from;', 'first + i.from + r + 2 - j.from;')),
    ('ops/op_cached_attention.c', 'forgets what was there before', ('seen = w->first + i.from + i.count;', 'seen = i.from + i.count;')),
    ('ops/op_cached_attention.c', 'stores at the beginning', ('(w->first + i) * w->width', 'i * w->width')),
    ('ops/op_cached_attention.c', 'keys are values', ('store(&w, w.values, 2)', 'store(&w, w.values, 1)')),
    ('ops/op_cached_attention.c', 'a new maximum rescales nothing', ('            vec_scale(y + r * y_stride, shrink, w->size);\n', '')),
    ('ops/op_cached_attention.c', 'threads share scratch', ('op_thread() * work_reals(n)', '0 * op_thread()')),
    ('ops/op_cached_attention.c', 'queries and keys share a room', ('.kv_room = work + TILE + 2 * QUERIES * size', '.kv_room = work + TILE')),
    ('ops/op_cached_attention.c', 'scratch grows with the text', ('t->threads * work_reals(n) * (int64_t)sizeof(real);\n    int64_t pairs', 't->threads * (work_reals(n) + seen) * (int64_t)sizeof(real);\n    int64_t pairs'),
     ('    CHECK(n->forward_work_bytes == t->threads * work_reals(n) * (int64_t)sizeof(real));\n', '')),
    ('ops/op_cached_attention.c', 'a cache may be too small', ('cache->dim[0] >= seen', 'cache->dim[0] + 1 >= seen')),
    ('tape.c', 'what has no backward may want a gradient', ('    CHECK(!op->forward_only || !n->out->wants_grad);\n', '')),
    ('ops/op_cross_entropy.c', 'ignored targets have gradients',
     ('        memset(p, 0, (size_t)cols * sizeof(real));\n', '        (void)p;\n')),
    ('ops/op_cross_entropy.c', 'a loss of log(0)', ('log((double)sum) - above', '-log(exp(above) / (double)sum)')),
    ('ops/op_cross_entropy.c', 'targets are not checked', ('targets[i] < cols)', 'targets[i] < cols + 1)')),
    ('ops/op_layernorm.c', 'another epsilon', ('eps = 1e-5', 'eps = 1e-6')),
    ('ops/op_layernorm.c', 'the mean of g h is dropped', (' - (x[j] - m) * r * mean_gh', '')),
    ('ops/op_layernorm.c', 'the scale is not normed', ('dy[j] * ((x[j] - m) * r)', 'dy[j] * (x[j] * r)')),
    ('ops/product.c', 'dw of one sample', ('i < p->samples * tiles; i++', 'i < tiles; i++')),
    ('ops/product.c', 'dx is never added to', ('p->adds || o > 0 ? 1 : 0, dx', 'o > 0 ? 1 : 0, dx')),
    ('ops/product.c', 'the bias of one sample', ('i < p->samples * p->rows; i++', 'i < p->rows; i++')),
    ('ops/product.c', 'three threads lose a row', ('struct tile r = tile_at(i % tiles, p->rows, ROW_TILE);',
     'struct tile r = tile_at(i % tiles, p->rows - (p->threads == 3 && p->rows > 1), ROW_TILE);')),
    ('ops/product.c', 'every part of a sum reads the first weights', ('array_from(w, k), p->in', 'w, p->in')),
    ('ops/product.c', 'a second panel is the first', ('(first + s, p->out', '(s, p->out')),
    ('ops/product.c', 'a panel of columns is not apart', ('p->work + s * c->slice * p->out + rows', 'p->work + rows')),
    ('ops/op_attention.c', 'a room is shared', ('op_part(room, i * part)', 'op_part(room, 0 * i * part)')),
    ('ops/op_layernorm.c', 'threads share rooms', ('(2 + op_thread() * rows)', '2')),
    ('ops/op_linear.c', 'samples are joined if there are threads', ('    return p;\n',
     '    if (t->threads > 1) {\n        p.rows *= p.samples;\n        p.samples = 1;\n    }\n    return p;\n')),
    ('ops/op_linear_cross_entropy.c', 'a chunk is no multiple of a row tile',
     ('CHUNK / cols / PRODUCT_ROWS * PRODUCT_ROWS,', 'CHUNK / cols,')),
    ('ops/op_linear_cross_entropy.c', 'the loss of another sample',
     ('n->dy[(c.first + i) / rows]', 'n->dy[i / rows]')),
    ('ops/op_lora.c', 'db of one sample', ('i < s->samples * s->row_tiles; i++)', 'i < s->row_tiles; i++)')),
    ('ops/op_lora.c', 'dh of the last slice', ('i > 0 || n->adds[1] ? 1 : 0', 'n->adds[1] ? 1 : 0')),
    ('ops/op_lora.c', 'adds from the first column on', ('r.from * s.cols + s.first + o.from;', 'r.from * s.cols + o.from;')),
    ('ops/op_lora.c', 'the base of a parameter is overwritten', ('    if (base.at != y.at)\n        carry', '    if (base.at == y.at)\n        carry')),
    ('ops/op_lora.c', 'dbase is not passed on', ('n->dx[0] != NULL && n->dx[0] != n->dy)', 'n->dx[0] == n->dy && n->dx[0] != n->dy)')),
    ('ops/op_lora.c', 'rows of samples run together', ('    r.from += task / s->row_tiles * s->rows;', '    r.from += task / s->row_tiles * ROW_TILE;')),
    ('ops/dropout_int.h', 'a mask from a running state',
     ('    return rng_key(rng_key(key, (uint64_t)sample), (uint64_t)row);', '    static uint64_t calls;\n    return rng_key(rng_key(key, (uint64_t)sample), (uint64_t)row + 7919 * calls++);')),
    ('ops/op_embedding.c', 'a late position is stored early', ('array_close(op_dx(n, 1), row * cols', 'array_close(op_dx(n, 1), position * cols')),
    ('array.c', 'what is added overwrites', ('adds ? y[i] + x[i] : x[i]', 'x[i]')),
    ('ops/op_embedding.c', 'every position is the first', ('array_open(op_dx(n, 1), row * cols', 'array_open(op_dx(n, 1), row / length * cols')),
    ('ops/op_embedding.c', 'slots are ignored', ('n->args.slots != NULL ? n->args.slots : n->args.ids', 'n->args.ids')),
    ('ops/op_matmul.c', 'db is never added to', ('keep_b = n->adds[1] ? 1 : 0', 'keep_b = 0')),
    ('ops/op_gelu.c', 'a slope without its 3', ('1 + 3 * a * x[i] * x[i]', '1 + a * x[i] * x[i]')),
    ('ops/op_relu.c', 'leaks', ('    y[i] = x[i] > 0 ? x[i] : 0', '    y[i] = x[i] > 0 ? x[i] : (real)1e-3 * x[i]')),
    ('ops/op_causal_softmax.c', 'sees one too many', ('int64_t count = r % time + 1;', 'int64_t count = r % time + 1 + (r % time + 1 < time);')),
    ('ops/op_rows.c', 'the other rows are rubbish', ('    op_start_sum(n, 0);\n', '')),
    ('ops/op_sub.c', 'a sign is lost', ('which == 0 ? 1 : -1', '1')),
    ('ops/op_sum_squares.c', 'half the slope', ('2 * x[i] * dy[b]', 'x[i] * dy[b]')),
    ('ops/op_split_heads.c', 'keys are values', ('n->args.part * width;', '(n->args.part == 1 ? 2 : n->args.part) * width;')),
    ('ops/op_merge_heads.c', 'forgets where the view begins', ('n->out->base_offset = x->base_offset;', 'n->out->base_offset = x->base_offset + 1;')),
    ('ops/op_scale.c', 'backward scales twice', ('factor * dy[i]', 'factor * factor * dy[i]')),
    ('ops/op_tanh.c', 'overwrites what others wrote', ('(adds ? dx[i] : 0)', '(adds && !adds ? dx[i] : 0)')),
    # ---- ops on bf16 ----
    ('ops/op_tanh.c', 'every piece reads the first of y', ('array_read(ys, at, ', 'array_read(ys, 0, ')),
    ('ops/op_gelu.c', 'a bf16 gradient is not put back', ('        array_close(dxs, at, length, dx);\n', '')),
    ('ops/op_log.c', 'what others wrote in bf16 is not read', ('length, adds, room', 'length, false, room')),
    ('ops/op_mul.c', 'the other input shares the room of dy', ('others, at, length, room[1]', 'others, at, length, room[0]')),
    ('ops/op_rows.c', 'every piece comes from the first', ('xs, b * in->stride[0] + from + at', 'xs, b * in->stride[0] + from')),
    ('ops/op_sum_squares.c', 'each piece is a sum of its own',
     ('            vec_dot_part(lane, x, x, length);', '            lane[0] += vec_dot(x, x, length);')),
    ('ops/op_dropout.c', 'every piece has the first mask', ('real m = draw(row, at + i);\n                // forward', 'real m = draw(row, i);\n                // forward')),
    ('ops/op_causal_softmax.c', 'threads share scratch of bf16', ('row_room(n, 0, 1)', 'n->work')),
    ('ops/op_causal_softmax.c', 'a bf16 row without scratch', ('        n->backward_work_bytes = 3', '        n->backward_work_bytes = 2')),
    ('ops/op_causal_softmax.c', 'reals have scratch too', ('    if (x->dtype != DTYPE_REAL || y->dtype != DTYPE_REAL)\n', '')),
    # ---- updates ----
    ('cpu/update.c', 'sgd does not clip', ('step = (real)(u->rate * u->gradient_scale);', 'step = (real)u->rate;')),
    ('cpu/update.c', 'momentum is dampened', ('m[i] = b * m[i] + scale * g[i];', 'm[i] = b * m[i] + (1 - b) * scale * g[i];')),
    ('cpu/update.c', 'v is not corrected', ('vec_sqrt(v[i]) * inverse + eps', 'vec_sqrt(v[i]) + eps')),
    ('cpu/update.c', 'lion mixes with the wrong beta', ('c = b1 * m[i] + rest1 * gi', 'c = b2 * m[i] + rest2 * gi')),
    ('cpu/update.c', 'eight bits decay first', ('(w[i] - step * (m[i] / (vec_sqrt(v[i]) + eps))) * keep',
                                               'w[i] * keep - step * (m[i] / (vec_sqrt(v[i]) + eps))')),
    ('cpu/update.c', 'eight bits update from codes',
     ('        adamw8bit_weights(u, w + i, m, v, g + i, count);\n', ''),
     ('v, count, u->unsigned_map, *v_max);\n    }',
      'v, count, u->unsigned_map, *v_max);\n        code8_unpack(m, m_code, count, u->signed_map, *m_max);\n'
      '        adamw8bit_weights(u, w + i, m, v, g + i, count);\n    }')),
    ('cpu/update.c', 'every piece has the first blocks', ('block = (at + i) / CODE8_BLOCK', 'block = i / CODE8_BLOCK')),
    ('cpu/update.c', 'a weight without a gradient decays', ('is_usable(scale * g[i]) ? moved : w[i]', 'is_usable(scale * g[i]) ? moved : w[i] * keep')),
    ('cpu/update.c', 'a master is not rounded into weights', ('array_close(u->weights, at, n, w);', 'array_close(to, at, n, w);')),
    ('cpu/update.c', 'a sum begins at the thread count', ('sum += partial[t];', 'sum += partial[(t + omp_get_max_threads()) % tiles];')),
    ('cpu/code8.c', 'a sign is lost', ('        at = at < 1 ? 1 : at;\n', '')),
    ('cpu/code8.c', 'minus zero is negative', ('- (x[i] < 0);', '- (x[i] < 0 || (x[i] == 0 && 1 / x[i] < 0));')),
    ('cpu/code8.c', 'midpoints go up', ('(a == high) & is_other', 'a == high'), ('(a == low) & is_other', '0')),
    ('cpu/code8.c', 'a decade is missing', ('1e-3, 1e-2,', '1e-2, 1e-2,')),
    ('cpu/adafactor.c', 'updates of any size', ('rate / fmax(1, size)', 'rate')),
    ('cpu/adafactor.c', 'steps do not follow the weights', ('fmax(eps2, sqrt(', 'fmax(1, sqrt(')),
    ('cpu/adafactor.c', 'only the first columns', ('&col[from + i]', '&col[i]')),
    ('nn/optimizer.c', 'small tensors have codes', ('tensor_count(x) < OPTIMIZER_SMALL', 'tensor_count(x) < 1')),
    ('nn/optimizer.c', 'the master is left behind', ('u.master = p->master.data;', 'u.master = NULL;')),
    ('nn/optimizer.c', 'a plan forgets the maps', ('if (c->kind == OPTIMIZER_ADAMW8BIT)', 'if (c->kind == OPTIMIZER_ADAMW8BIT && !tape_is_dry(t))')),
    ('nn/optimizer.c', 'the frozen have states', ('if (p->tensor.grad != NULL && s->suffix', 'if (s->suffix')),
    ('nn/param.c', 'a master starts from nothing', ('has_master ? array_of(p->master.data, DTYPE_REAL) : weights', 'weights')),
    ('nn/snapshot.c', 'a master starts from nothing, too', ('for (int i = 0; ok && i < params->count; i++) {', 'for (int i = 0; ok && i < 0; i++) {')),
    ('nn/snapshot.c', 'masters are not saved', ('k == 0 ? &p->master : &p->state[k - 1]', 'k == 0 ? &p->state[3] : &p->state[k - 1]')),
    ('nn/snapshot.c', 'any dtype will do', ('return got == expected || (', 'return true || (')),
    ('nn/safetensors.c', 'bf16 is not rounded to nearest', ('array_close(out, first, n, to);', 'for (int64_t i = 0; i < n && out.dtype == DTYPE_BF16; i++)\n            to[i] *= (real)0.998;\n        array_close(out, first, n, to);')),
    ('nn/safetensors_write.c', 'gradients are not widened', ('x.widens ? ', '0 ? ')),
    # ---- printers for debuggers ----
    ('debug_check.c', 'writes to the real output',
     ('    s->out.data = y->data;', '    s->out.data = n->out->data != NULL && n->out->dtype == DTYPE_REAL ? n->out->data : y->data;')),
    ('debug_check.c', 'everything agrees', ('<= tolerance * (sum > 0', '<= 1e9 * (sum > 0')),
    ('debug_check.c', 'x + x counts once', ('s->node.adds[i] = first < i ||', 's->node.adds[i] =')),
    ('debug.c', 'bf16 is read as reals', ('(double)array_get(values, debug', '(double)array_get(array_of(values.at, DTYPE_REAL), debug')),
    # ---- the check itself ----
    ('gradcheck.c', 'everything passes', ('return c->count > 0 && ', 'return c->count > 0 || ')),
    ('gradcheck.c', 'a slope of one side', ('(8 * near - far)', '(8 * near)')),
]

TESTS = ['arena', 'ledger', 'stream', 'tape', 'ops', 'bf16_ops', 'bf16_products', 'ops_grad',
         'chunked', 'trap', 'optimizer', 'states', 'cached_attention', 'debug']
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
work = os.path.join(root, 'build', 'mutate')
tree, objects = os.path.join(work, 'tree'), os.path.join(work, 'objects')
cc = os.environ.get('CC', 'cc').split()
flags = ['-std=c11', '-I.', '-O1', '-g', '-w', '-fopenmp', '-ffp-contract=off', '-DTAPE_POISON',
         '-DTAPE_LAW', '-DTAPE_F64']
libs = (os.environ.get('CMOCKA_LIBS', '-lcmocka') + ' ' +
        os.environ.get('BLAS_LIBS', '-lopenblas') + ' -lm').split()


def sources():
    found = []
    for folder in ('tape', 'tape/ops', 'tape/cpu', 'nn'):
        for name in sorted(os.listdir(os.path.join(tree, folder))):
            if name.endswith('.c') and name not in ('blas_builtin.c', 'blas_loops.c'):
                found.append(os.path.join(folder, name))
    return found


def object_of(source):
    return os.path.join(objects, source.replace('/', '_') + '.o')


def run(commands):  # all at once; the first that fails is the answer
    running = [subprocess.Popen(c, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True) for c in commands]
    outputs = [(p.communicate()[0], p.returncode) for p in running]
    return next((out for out, code in outputs if code != 0), None)


def compile_all(names):
    for i in range(0, len(names), 4):
        error = run([cc + flags + ['-c', s, '-o', object_of(s)] for s in names[i:i + 4]])
        if error is not None:
            return error
    return None


def link(test):
    return cc + flags + [object_of(s) for s in sources()] + \
        [object_of('tests/test_%s.c' % test)] + libs + ['-o', os.path.join(work, 'test_' + test)]


def fails(test):
    environment = dict(os.environ, OMP_WAIT_POLICY='passive', OMP_NUM_THREADS='2')
    try:
        done = subprocess.run([os.path.join(work, 'test_' + test)], cwd=tree, env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def caught_by(go_on):
    catchers = []
    for test in TESTS:
        error = run([link(test)])
        if error is not None:
            return error
        if fails(test):
            catchers.append(test)
            if not go_on:
                break
    return catchers


def plant(path, pairs):
    text = open(path).read()
    for old, new in pairs:
        if text.count(old) != 1:
            return False
        text = text.replace(old, new)
    open(path, 'w').write(text)
    return True


def try_fault(file, pairs, go_on):
    file = file if file.startswith('nn/') else 'tape/' + file
    path = os.path.join(tree, file)
    saved = open(path).read()
    try:
        if not plant(path, pairs):
            return 'CAN NOT BE PLANTED'
        names = sources() if file.endswith('.h') else [file]
        error = compile_all(names)
        found = error if error is not None else caught_by(go_on)
    finally:
        open(path, 'w').write(saved)
    compile_all(names)
    if isinstance(found, str):
        return 'DOES NOT BUILD\n' + found[-500:]
    return 'caught by ' + ', '.join(found) if found else 'SURVIVED'


def main():
    words = [w for w in sys.argv[1:] if w != '--all']
    go_on = '--all' in sys.argv
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(objects)
    for folder in ('tape', 'nn', 'tests'):
        shutil.copytree(os.path.join(root, folder), os.path.join(tree, folder))
    error = compile_all(sources() + ['tests/test_%s.c' % t for t in TESTS])
    if error is not None:
        sys.exit(error)
    healthy = caught_by(True)
    if healthy:
        sys.exit('without a fault: %s' % healthy)
    tried = missed = 0
    for file, name, *pairs in FAULTS:
        if words and not any(w in file + ' ' + name for w in words):
            continue
        result = try_fault(file, pairs, go_on)
        tried += 1
        missed += not result.startswith('caught')
        print('%-22s %-46s %s' % (file, name, result), flush=True)
    print('%d faults, %d not caught' % (tried, missed))
    sys.exit(1 if missed or not tried else 0)


main()
