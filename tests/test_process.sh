#!/bin/sh
# What plan says of the whole process is what it comes to: with train's very options the resident
# peak that plan predicts is the high-water mark of the run (VmHWM) within 3 % + 8 MiB, and never
# below it by more than 1 % + 2 MiB: a prediction that is too low lets a machine swap.
. tests/cli.sh

grep -q '^VmHWM:' /proc/self/status 2>/dev/null || { echo 'no VmHWM in /proc: skipped'; exit 77; }

MiB=$((1 << 20))
tried=0

# holds LEAST MOST OPTIONS: LEAST and MOST MB are the range that this configuration stands for
holds() {
    least=$1 most=$2
    shift 2
    set -- --steps 1 --sample-tokens 2 --quiet "$@"
    run plan --json "$dir/plan.json" "$@"
    run train --json "$dir/train.json" "$@"
    predicted=$(value "$dir/plan.json" process.predicted_resident_bytes)
    outside=$(value "$dir/plan.json" process.outside_bytes)
    measured=$(value "$dir/train.json" peak_resident_bytes)
    peak=$(value "$dir/train.json" memory.peak_bytes)
    for number in "$predicted" "$outside" "$measured" "$peak"; do
        case $number in '' | *[!0-9]*) fail "'$number' is no number: $*"; return ;; esac
    done
    tried=$((tried + 1))
    above=$((predicted - measured))
    echo "predicted $predicted, measured $measured, $above above: $*"
    [ "$predicted" = $((peak + outside)) ] || fail "not $peak of the arena and $outside outside"
    [ "$measured" -ge $((least * 1000000)) ] && [ "$measured" -le $((most * 1000000)) ] ||
        fail "$measured is not from $least to $most MB"
    [ $above -le $((measured * 3 / 100 + 8 * MiB)) ] || fail "predicted too much"
    [ $((-above)) -le $((measured / 100 + 2 * MiB)) ] || fail "predicted too little"
}

holds 50 350 --model nano --batch 24 --data "$text" --threads 1
holds 50 350 --layers 3 --width 256 --batch 32 --checkpoint full --no-tie --threads 2
holds 50 350 --model baby --batch 4 --micro-batch 2 --attention naive --dropout 0.1

if [ -n "$MEMTAPE_LONG" ]; then
    holds 50 4000 --model nano --batch 16 --tokenizer byte
    holds 50 4000 --model nano --batch 64 --no-tie --checkpoint lean --threads 2
    holds 50 4000 --model nano --context 256 --batch 16 --attention naive --dropout 0.1
    holds 50 4000 --model nano --vocab 50257 --batch 8 --threads 3
    holds 50 4000 --layers 2 --heads 8 --width 1024 --context 128 --batch 4 --optimizer sgd
    holds 50 4000 --model baby --batch 12 --checkpoint full --segments half --threads 1
    holds 50 4000 --model baby --batch 12 --eval-every 1 --eval-batches 1 --threads 4
    holds 50 4000 --layers 12 --heads 8 --width 512 --context 256 --batch 8 --checkpoint selective
    holds 50 4000 --model gpt2 --batch 2 --micro-batch 1 --seq 128
    holds 50 4000 --model gpt2 --batch 8 --seq 256 --checkpoint full --threads 2
    [ $tried = 13 ] || fail "$tried of 13 configurations were tried"
fi

[ $tried -ge 3 ] || fail "$tried of 3 configurations were tried"
finish
