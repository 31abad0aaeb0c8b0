"""The gradients of a memtape snapshot, computed by PyTorch, for `memtape check against`.

    memtape train --model nano --steps 100 --out runs/nano
    python3 examples/against_pytorch.py runs/nano/snapshot theirs.safetensors
    memtape check against --init runs/nano --against theirs.safetensors

Reads SNAPSHOT/model.safetensors, makes a GPT-2 of plain PyTorch functions with those weights, draws
tokens (or takes --tokens FILE, safetensors with int32 "tokens" and "targets"), and writes OUT: the
gradient of the mean loss for every weight by its name, the loss, the tokens and the targets.
Needs PyTorch 1.13 or newer and nothing else. Dropout is not applied.
"""
import argparse
import json
import math
import struct

import torch
import torch.nn.functional as F

IGNORED = -100
DTYPES = {'F32': torch.float32, 'F64': torch.float64, 'I32': torch.int32}


def read(path):
    """{name: tensor} and the metadata of a safetensors file."""
    with open(path, 'rb') as f:
        data = f.read()
    (size,) = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop('__metadata__', {})
    tensors = {}
    for name, t in header.items():
        begin, end = t['data_offsets']
        flat = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=DTYPES[t['dtype']])
        tensors[name] = flat.reshape(t['shape']).clone()
    return tensors, metadata


def write(path, tensors):
    """Wide dtypes first, so that every tensor's data is aligned."""
    names = {v: k for k, v in DTYPES.items()}
    header, blobs, at = {}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        blob = t.detach().contiguous().numpy().tobytes()
        header[name] = {'dtype': names[t.dtype], 'shape': list(t.shape), 'data_offsets': [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(blobs))


def linear(x, w, name):
    return F.linear(x, w[name + '.weight'], w.get(name + '.bias'))


def norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + '.weight'], w.get(name + '.bias'), 1e-5)


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attention(x, w, name, heads):
    b, t, c = x.shape
    q, k, v = (part.reshape(b, t, heads, c // heads).transpose(1, 2)
               for part in linear(x, w, name + '.c_attn').split(c, dim=-1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(c // heads)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return linear(y.transpose(1, 2).reshape(b, t, c), w, name + '.c_proj')


def loss_of(w, layers, heads, tokens, targets):
    x = w['wte.weight'][tokens] + w['wpe.weight'][:tokens.shape[1]]
    for i in range(layers):
        x = x + attention(norm(x, w, f'h.{i}.ln_1'), w, f'h.{i}.attn', heads)
        y = gelu(linear(norm(x, w, f'h.{i}.ln_2'), w, f'h.{i}.mlp.c_fc'))
        x = x + linear(y, w, f'h.{i}.mlp.c_proj')
    head = w.get('lm_head.weight', w['wte.weight'])
    logits = F.linear(norm(x, w, 'ln_f'), head)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def draw(args, vocab):
    """Random tokens; each target is the token after it, and some do not count."""
    torch.manual_seed(args.seed)
    ids = torch.randint(vocab, (args.batch, args.seq + 1))
    tokens, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[torch.rand(targets.shape) < args.ignore] = IGNORED
    return tokens, targets


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('snapshot', help='directory with model.safetensors')
    parser.add_argument('out', help='file to write')
    parser.add_argument('--tokens', help='file with tokens and targets, in place of random ones')
    parser.add_argument('--batch', type=int, default=4, help='random sequences (4)')
    parser.add_argument('--seq', type=int, help="their length (the model's context)")
    parser.add_argument('--ignore', type=float, default=0.2, help='part of the targets that do not count (0.2)')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--double', action='store_true', help='compute in double precision')
    args = parser.parse_args()

    weights, metadata = read(args.snapshot + '/model.safetensors')
    args.seq = args.seq or int(metadata['context'])
    dtype = torch.float64 if args.double else torch.float32
    weights = {name: t.to(dtype).requires_grad_() for name, t in weights.items()}
    if args.tokens:
        given, _ = read(args.tokens)
        tokens, targets = given['tokens'].long(), given['targets'].long()
    else:
        tokens, targets = draw(args, int(metadata['vocab']))

    loss = loss_of(weights, int(metadata['layers']), int(metadata['heads']), tokens, targets)
    loss.backward()
    out = {name: t.grad for name, t in weights.items()}
    out.update(loss=loss, tokens=tokens.int(), targets=targets.int())
    write(args.out, out)
    print(f'{args.out}: gradients of {len(weights)} tensors; loss {loss.item():.6f} over '
          f'{int((targets != IGNORED).sum())} targets')


if __name__ == '__main__':
    main()
