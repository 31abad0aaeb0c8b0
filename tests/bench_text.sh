#!/bin/sh
# bench_text.sh - nanoGPT's CPU recipe on a text: validation loss over the whole split for three
# seeds, with time and rate. Usage: bench_text.sh PROGRAM TEXT [OPTION...] : further ones of train.
# About a minute a seed on two cores.
set -e
program=$1 text=$2
shift 2
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

value() { # of a key in the report
    sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$out" | head -n 1
}

printf '%-6s %10s %10s %10s\n' seed 'val loss' seconds tokens/s
total=0
for seed in 1 2 3; do
    "$program" train --model nano --no-bias --data "$text" --tokenizer char --batch 12 --steps 2000 \
        --lr 1e-3 --min-lr 1e-4 --warmup 100 --decay-steps 2000 --beta1 0.9 --beta2 0.99 \
        --weight-decay 0.1 --clip 1 --seed "$seed" --eval-every 2000 --eval-batches 0 \
        --sample-tokens 0 --quiet --json "$out" "$@"
    loss=$(value val_loss) rate=$(value tokens_per_second)
    seconds=$(awk -v r="$rate" 'BEGIN { printf "%.1f", 2000 * 12 * 64 / r }')
    printf '%-6s %10.4f %10s %10.0f\n' "$seed" "$loss" "$seconds" "$rate"
    total=$(awk -v a="$total" -v b="$loss" 'BEGIN { print a + b }')
done
awk -v t="$total" 'BEGIN { printf "mean of three: %.4f\n", t / 3 }'
