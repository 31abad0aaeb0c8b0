#!/usr/bin/env python3
# golden.py - writes this folder's files: what PyTorch computes for a 2-layer GPT-2, in float64.
#
# Needs PyTorch 1.12 or newer; tests/test_golden.c needs only the files. Format safetensors:
#
#   weights.safetensors    the weights that every case starts from (float32, and exactly so: they
#                          are multiples of 1/2048), with all biases and a head; a case uses what
#                          it has
#   CASE.safetensors       tied, untied, plain (tied and without biases)
#     tokens, targets      (STEPS, B, T) int32; -100 is a target that does not count
#     loss, norm, rate     (STEPS) of each step: mean over counted targets; norm of all gradients
#                          before clipping; learning rate
#     gradient.NAME        of the first step's loss, before clipping
#     after.NAME           the weights after STEPS steps of AdamW
#     metadata             every number of the model and the optimizer
#
# The sizes are odd on purpose (no power of two, fewer positions than the context), yet small:
# everything together stays below 200 KB. Other versions and machines change last bits only.

import json
import math
import os
import random
import struct

import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 2, 2, 10, 12, 35
BATCH, STEPS = 3, 10
IGNORED = -100
OPTIMIZER = dict(weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8, clip=2.0)
SCHEDULE = dict(rate=0.001, min_rate=0.0001, warmup_steps=3, decay_steps=9)
CASES = {
    # 33 positions are fewer than there are ids, 36 are more: the tied table has a case of each
    "tied": dict(bias=True, tie=True, seq=11),
    "untied": dict(bias=True, tie=False, seq=11),
    "plain": dict(bias=False, tie=True, seq=12),
}


# ---- what goes in ----


def shapes():
    c = WIDTH
    out = {"wte.weight": (VOCAB, c), "wpe.weight": (CONTEXT, c)}
    for i in range(LAYERS):
        for name, shape in [
            ("ln_1", (c,)),
            ("attn.c_attn", (3 * c, c)),
            ("attn.c_proj", (c, c)),
            ("ln_2", (c,)),
            ("mlp.c_fc", (4 * c, c)),
            ("mlp.c_proj", (c, 4 * c)),
        ]:
            out[f"h.{i}.{name}.weight"] = shape
            out[f"h.{i}.{name}.bias"] = shape[:1]
    out["ln_f.weight"] = out["ln_f.bias"] = (c,)
    out["lm_head.weight"] = (VOCAB, c)
    return out


def start(name, shape, rng):
    """Uniform: embeddings within 1/4, so that a norm's epsilon shows; other matrices within 1/2."""
    x = [int(rng.random() * 1024) - 512 for _ in range(math.prod(shape))]
    x = torch.tensor(x, dtype=torch.float64).view(shape) / 1024
    if "ln_" in name and name.endswith("weight"):
        return 1 + x / 2
    return x / 2 if len(shape) == 1 or name.startswith("w") else x


def batches(seq, rng):
    """Sample b ignores about b / BATCH of its targets, and in the third step sample 0 all."""
    def one(step, b):
        ids = [int(rng.random() * VOCAB) for _ in range(seq + 1)]
        least = 1 if step == 2 and b == 0 else b / BATCH
        return ids[:-1], [IGNORED if rng.random() < least else i for i in ids[1:]]
    rows = [[one(step, b) for b in range(BATCH)] for step in range(STEPS)]
    return [torch.tensor([[row[k] for row in step] for step in rows]) for k in (0, 1)]


# ---- the model ----


def norm(w, name, x):
    return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w.get(name + ".bias"), 1e-5)


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def attention(w, name, x):
    b, t, c = x.shape
    qkv = linear(w, name + ".c_attn", x).view(b, t, 3, HEADS, c // HEADS)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B,H,T,D)
    scores = q @ k.transpose(2, 3) / math.sqrt(c // HEADS)
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    p = torch.softmax(scores.masked_fill(later, -math.inf), dim=3)
    return linear(w, name + ".c_proj", (p @ v).transpose(1, 2).reshape(b, t, c))


def mlp(w, name, x):
    return linear(w, name + ".c_proj", F.gelu(linear(w, name + ".c_fc", x), approximate="tanh"))


def mean_loss(w, tokens, targets):
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    for i in range(LAYERS):
        x = x + attention(w, f"h.{i}.attn", norm(w, f"h.{i}.ln_1", x))
        x = x + mlp(w, f"h.{i}.mlp", norm(w, f"h.{i}.ln_2", x))
    head = w["lm_head.weight"] if "lm_head.weight" in w else w["wte.weight"]
    logits = norm(w, "ln_f", x) @ head.T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


# ---- the training ----


def rate(step):
    s = SCHEDULE
    if step <= s["warmup_steps"]:
        return s["rate"] * step / s["warmup_steps"]
    if step >= s["decay_steps"]:
        return s["min_rate"]
    done = (step - s["warmup_steps"]) / (s["decay_steps"] - s["warmup_steps"])
    return s["min_rate"] + (s["rate"] - s["min_rate"]) * 0.5 * (1 + math.cos(math.pi * done))


def clip(w, limit):
    """Without the 1e-6 that PyTorch's own adds to the norm. Returns the norm."""
    total = math.sqrt(sum(float((x.grad**2).sum()) for x in w.values()))
    for x in w.values():
        x.grad *= min(1, limit / total)
    return total


def adamw(w):
    o = OPTIMIZER
    matrices = dict(params=[x for x in w.values() if x.dim() == 2], weight_decay=o["weight_decay"])
    vectors = dict(params=[x for x in w.values() if x.dim() == 1], weight_decay=0)
    betas = (o["beta1"], o["beta2"])
    return torch.optim.AdamW([matrices, vectors], betas=betas, eps=o["eps"])


def train(w, tokens, targets):
    out = {"loss": [], "norm": [], "rate": []}
    optimizer = adamw(w)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(w, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            out.update({"gradient." + n: x.grad.clone() for n, x in w.items()})
        out["loss"].append(float(loss.detach()))
        out["norm"].append(clip(w, OPTIMIZER["clip"]))
        out["rate"].append(rate(step + 1))
        for group in optimizer.param_groups:
            group["lr"] = out["rate"][-1]
        optimizer.step()
    acted = {n > OPTIMIZER["clip"] for n in out["norm"]}
    assert acted == {True, False}, "clipping acts in all steps or in none"
    out = {n: torch.as_tensor(x, dtype=torch.float64) for n, x in out.items()}
    return {**out, **{"after." + n: x.detach() for n, x in w.items()}}


# ---- files ----


def save(name, tensors, metadata):
    kinds = {torch.float64: ("F64", "d"), torch.float32: ("F32", "f"), torch.int32: ("I32", "i")}
    header, data = {"__metadata__": {k: repr(v) for k, v in metadata.items()}}, b""
    for key, x in tensors.items():
        dtype, letter = kinds[x.dtype]
        values = struct.pack(f"<{x.numel()}{letter}", *x.flatten().tolist())
        end = len(data) + len(values)
        header[key] = dict(dtype=dtype, shape=list(x.shape), data_offsets=[len(data), end])
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".safetensors")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    rng = random.Random(1)  # its random() is the same in every version of Python
    weights = {n: start(n, shape, rng) for n, shape in shapes().items()}
    save("weights", {n: x.float() for n, x in weights.items()}, {})
    for name, case in CASES.items():
        lacks = ("bias",) * (not case["bias"]) + ("lm_head.weight",) * case["tie"]
        w = {n: x.clone().requires_grad_() for n, x in weights.items() if not n.endswith(lacks)}
        tokens, targets = batches(case["seq"], rng)
        out = train(w, tokens, targets)
        out.update(tokens=tokens.to(torch.int32), targets=targets.to(torch.int32))
        sizes = dict(layers=LAYERS, heads=HEADS, width=WIDTH, context=CONTEXT, vocab=VOCAB)
        flags = dict(bias=int(case["bias"]), tie=int(case["tie"]))
        steps = dict(batch=BATCH, seq=case["seq"], steps=STEPS)
        save(name, out, {**sizes, **flags, **steps, **OPTIMIZER, **SCHEDULE})
        print(name, "norms:", " ".join("%.3f" % n for n in out["norm"]))


main()
