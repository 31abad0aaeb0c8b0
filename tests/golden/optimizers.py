#!/usr/bin/env python3
# optimizers.py - writes optimizers.safetensors: what other implementations of the optimizers make
# of the same weights and gradients in STEPS steps. tests/test_optimizer.c needs only the file.
#
#   sgd, momentum, adamw   torch.optim.SGD and AdamW (1.12 or newer), in float64. SGD's own weight
#                          decay goes through its momentum; here it is decoupled, as AdamW's is
#   lion                   numpy, float64, after algorithm 2 of Chen et al. 2023 (arXiv 2302.06675)
#   adafactor              torch.optim.Adafactor in float64 where PyTorch has it (2.5 or newer),
#                          else numpy, float64, after its documentation: the file is the same,
#                          byte for byte
#   adamw8bit              numpy, float32, after bitsandbytes 0.44 (its blockwise kernel, its binary
#                          search for a code, and the map as it builds it)
#
# Tensors are "KIND.PARAM" and "KIND.PARAM.STATE", float32 or codes of 8 bits. Weights and gradients
# that go in are multiples of a power of two, made of integers: see numbers().
import json
import os
import struct

import numpy as np
import torch

STEPS, RATE, DECAY, B1, B2, EPS, SCALE = 50, 0.02, 0.1, 0.9, 0.99, 1e-8, 0.5
EPS1, EPS2 = 2.0**-23, 1e-3
SHAPES = {"matrix": (9, 150), "vector": (70,), "large": (65, 70)}


def numbers(stream, shape, unit):
    i = np.arange(np.prod(shape), dtype=np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    z = (i * np.uint64(2654435761) + np.uint64(stream * 2246822519 + 374761393)) & mask
    for factor, shift in ((2246822519, 15), (3266489917, 13)):
        z ^= z >> np.uint64(shift)
        z = (z * np.uint64(factor)) & mask
    return (((z >> np.uint64(16)).astype(np.int64) - 32768) * unit).reshape(shape)


def start(k, shape):
    return numbers(1000 + k, shape, 2.0**-18)


def gradient(step, k, shape):
    return numbers(8 * step + k, shape, 2.0**-20) * SCALE


# ---- PyTorch ----


def with_torch(k, shape, make, names, decoupled):
    w = torch.tensor(start(k, shape), dtype=torch.float64, requires_grad=True)
    decay = DECAY if len(shape) > 1 else 0
    optimizer = make([w], 0 if decoupled else decay)
    for step in range(1, STEPS + 1):
        w.grad = torch.tensor(gradient(step, k, shape), dtype=torch.float64)
        if decoupled:
            w.data.mul_(1 - RATE * decay)
        optimizer.step()
    state = optimizer.state[w]
    return {"": w.detach().numpy(), **{n: state[key].numpy() for n, key in names.items()}}


def sgd(k, shape):
    return with_torch(k, shape, lambda w, wd: torch.optim.SGD(w, lr=RATE), {}, True)


def momentum(k, shape):
    make = lambda w, wd: torch.optim.SGD(w, lr=RATE, momentum=B1)
    return with_torch(k, shape, make, {".m": "momentum_buffer"}, True)


def adamw(k, shape):
    make = lambda w, wd: torch.optim.AdamW(w, lr=RATE, betas=(B1, B2), eps=EPS, weight_decay=wd)
    return with_torch(k, shape, make, {".m": "exp_avg", ".v": "exp_avg_sq"}, False)


# ---- after papers ----


def lion(k, shape):
    w, m = start(k, shape), np.zeros(shape)
    decay = DECAY if len(shape) > 1 else 0
    for step in range(1, STEPS + 1):
        g = gradient(step, k, shape)
        w = w - RATE * (np.sign(B1 * m + (1 - B1) * g) + decay * w)
        m = B2 * m + (1 - B2) * g
    return {"": w, ".m": m}


def adafactor(k, shape):
    if hasattr(torch.optim, "Adafactor"):
        make = lambda w, wd: torch.optim.Adafactor(w, lr=RATE, eps=(EPS1, EPS2), weight_decay=wd)
        names = {".row": "row_var", ".col": "col_var"} if len(shape) > 1 else {".v": "variance"}
        return with_torch(k, shape, make, names, False)
    w, r, c, v = start(k, shape), 0, 0, 0
    rms = lambda x: np.sqrt(np.mean(x * x))
    for t in range(1, STEPS + 1):
        g = gradient(t, k, shape)
        beta2 = 1 - t**-0.8
        alpha = max(EPS2, rms(w)) * min(RATE, 1 / np.sqrt(t))
        if len(shape) > 1:
            w = w * (1 - RATE * DECAY)
            r = beta2 * r + (1 - beta2) * np.mean(g * g, axis=1)
            c = beta2 * c + (1 - beta2) * np.mean(g * g, axis=0)
            estimate = np.outer(r, c) / max(np.mean(r), EPS1)
        else:
            v = beta2 * v + (1 - beta2) * g * g
            estimate = v
        u = g / np.maximum(np.sqrt(estimate), EPS1)
        w = w - alpha * u / max(1, rms(u))
    return {"": w, ".row": r, ".col": c} if len(shape) > 1 else {"": w, ".v": v}


# ---- 8 bits ----


def dynamic_map(signed):
    """As it is built there, in float32: the means of the ends of equal parts of [0.1, 1]."""
    values = []
    for i in range(7):
        ends = np.linspace(0.1, 1, 2 ** (i + (0 if signed else 1)) + 1, dtype=np.float32)
        means = (ends[:-1] + ends[1:]) / np.float32(2)
        values += list(np.float32(10.0 ** (i - 6)) * means)
        if signed:
            values += list(-np.float32(10.0 ** (i - 6)) * means)
    values += [0, 1]
    assert len(values) == 256
    return np.sort(np.array(values, dtype=np.float32))


def encode(code, x):
    """Its search: pivots 127, then 64, 32 ... 1 up or down, then the nearer of two neighbours."""
    pivot = np.full(x.shape, 127)
    upper, lower = np.full(x.shape, 255), np.zeros(x.shape, dtype=int)
    for step in (64, 32, 16, 8, 4, 2, 1):
        goes_up = x > code[pivot]
        lower = np.where(goes_up, pivot, lower)
        upper = np.where(goes_up, upper, pivot)
        pivot = np.where(goes_up, pivot + step, pivot - step)
    half = np.float32(0.5)
    above = np.where(x > (code[upper] + code[pivot]) * half, upper, pivot)
    below = np.where(x < (code[lower] + code[pivot]) * half, lower, pivot)
    return np.where(x > code[pivot], above, below)


def adamw8bit(k, shape):
    f = np.float32
    signed, unsigned = dynamic_map(True), dynamic_map(False)
    w = start(k, shape).astype(f).reshape(-1)
    n = w.size
    blocks = [slice(i, min(i + 256, n)) for i in range(0, n, 256)]
    m_code, v_code = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    m_max, v_max = np.zeros(len(blocks), dtype=f), np.zeros(len(blocks), dtype=f)
    for t in range(1, STEPS + 1):
        g = gradient(t, k, shape).astype(f).reshape(-1)
        correction = np.sqrt(1 - B2**t)
        rate = f(RATE * correction / (1 - B1**t))
        for i, b in enumerate(blocks):
            m, v = signed[m_code[b]] * m_max[i], unsigned[v_code[b]] * v_max[i]
            v = v * f(B2) + f(1 - B2) * g[b] * g[b]
            m = m * f(B1) + f(1 - B1) * g[b]
            m_max[i], v_max[i] = np.abs(m).max(), np.abs(v).max()
            w[b] -= rate * (m / (np.sqrt(v) + f(EPS * correction)))
            w[b] *= f(1 - RATE * DECAY)
            m_code[b], v_code[b] = encode(signed, m / m_max[i]), encode(unsigned, v / v_max[i])
            wrong = np.signbit(signed[m_code[b]]) != np.signbit(m)
            m_code[b] += np.where(wrong, np.where(m > 0, 1, -1), 0)
    codes = {".m": m_code, ".v": v_code}
    codes = {n: x.astype(np.uint8).reshape(shape) for n, x in codes.items()}
    return {"": w.reshape(shape), **codes, ".m.absmax": m_max, ".v.absmax": v_max}


# ---- the file ----


def save(tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        x = np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32))
        end = len(data) + x.nbytes
        dtype = "U8" if x.dtype == np.uint8 else "F32"
        header[name] = dict(dtype=dtype, shape=list(x.shape), data_offsets=[len(data), end])
        data += x.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "optimizers.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main():
    tensors = {}
    for kind in (sgd, momentum, adamw, lion, adafactor):
        for k, name in enumerate(("matrix", "vector")):
            for state, x in kind(k, SHAPES[name]).items():
                tensors[f"{kind.__name__}.{name}{state}"] = np.squeeze(x)
    for state, x in adamw8bit(2, SHAPES["large"]).items():
        tensors["adamw8bit.large" + state] = x
    tensors["map.signed"], tensors["map.unsigned"] = dynamic_map(True), dynamic_map(False)
    save(tensors)


main()
