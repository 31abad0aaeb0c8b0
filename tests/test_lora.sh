#!/bin/sh
# Adapters from the command line: planned to the byte, trained, resumed to the same bits, kept alone
# with their base named and known again, merged into a plain model; and what is frozen.
. tests/cli.sh

options="$small --dropout 0.1 --batch 4 --micro-batch 3 --sample-tokens 0 --quiet"

refused() { # words to find, then the command
    expected=$1
    shift
    "$memtape" "$@" >"$dir/out" 2>"$dir/log" && fail "not refused: memtape $*"
    [ "$(wc -l <"$dir/log")" -eq 1 ] || fail "not one line: memtape $*: $(cat "$dir/log")"
    grep -qF -- "$expected" "$dir/log" || fail "no '$expected': memtape $*: $(cat "$dir/log")"
}

loss() { # of a snapshot on the text
    "$memtape" eval "$1" --data "$text" --quiet 2>"$dir/log" | awk '{ print $3 }'
}

# ---- published counts (Hu et al. 2021): GPT-3, q and v, rank 8: 37.7 M ----

counts() { # rank, targets, trainable
    run plan --model gpt3 --batch 1 --lora "$1" --lora-targets "$2" --json "$dir/plan" --quiet
    [ "$(value "$dir/plan" model.trainable_params)" = "$3" ] ||
        fail "$1 of $2 trains $(value "$dir/plan" model.trainable_params), not $3"
    bytes=$(value "$dir/plan" memory.categories.gradients.now)
    [ "$bytes" = "$(($3 * 4))" ] || fail "gradients of $1 of $2: $bytes bytes"
    bytes=$(value "$dir/plan" memory.categories.optimizer_state.now)
    [ "$bytes" = "$(($3 * 8))" ] || fail "state of $1 of $2: $bytes bytes"
}
counts 1 q 2359296
counts 1 q,v 4718592
counts 8 q,v 37748736

# ---- docs/memory.md: what GPT-2 keeps for backward, with C a tensor of 4 x 1,024 x 768 ----

saved() { # further options
    run plan --model gpt2 --batch 4 --json "$dir/plan" --quiet "$@"
    value "$dir/plan" memory.saved_for_backward
}
c=$((4 * 1024 * 768 * 4)) stats=$((4 * 1024 * 2 * 4)) h=$((4 * 1024 * 8 * 4))
full=$(saved)
[ "$(saved --lora 8 --lora-targets all)" = $((full + 48 * h - c - stats)) ] ||
    fail "adapters everywhere keep $(value "$dir/plan" memory.saved_for_backward), all $full"
[ "$(saved --lora 8 --lora-targets q,v)" = $((full + 24 * h - 61 * c - stats)) ] ||
    fail "adapters of q and v keep $(value "$dir/plan" memory.saved_for_backward), all $full"
[ "$(saved --lora 8 --lora-targets head)" = $((4 * 1024 * 50257 * 4 + c + h)) ] ||
    fail "adapters of the head keep $(value "$dir/plan" memory.saved_for_backward)"

# ---- a base, adapters of it, ten steps at once and in two parts ----

base="$dir/ba se"
run train --data "$text" $options --steps 30 --out "$base"
cp -R "$base" "$dir/untouched"
adapters() { # steps, where, further options
    steps=$1 where=$2
    shift 2
    run train --data "$text" $options --init "$base" --lora 4:8 \
        --lora-targets q,v,fc,down,head --lora-bias all --steps "$steps" --decay-steps 10 \
        --out "$where" "$@"
}
adapters 10 "$dir/whole"
adapters 4 "$dir/part"
run train --resume "$dir/part" --steps 10 --quiet
for file in model optimizer; do
    same "resumed adapters: $file" "$dir/part/snapshot/$file.safetensors" \
        "$dir/whole/snapshot/$file.safetensors"
done
adapters 10 "$dir/full" --checkpoint full --threads 1 --micro-batch 1
LC_ALL=C sed 's/"checkpoint":"full"/"checkpoint":"none"/' \
    "$dir/full/snapshot/model.safetensors" >"$dir/recomputed"
same 'adapters with --checkpoint full' "$dir/recomputed" "$dir/whole/snapshot/model.safetensors"
diff -r "$base" "$dir/untouched" >"$dir/log" || fail "the base changed: $(cat "$dir/log")"

# From adapters, with a fresh optimizer: theirs are the rank, the targets and the base.
run train --data "$text" $options --init "$dir/whole" --steps 2 --out "$dir/more"
run info "$dir/more"
grep -q 'rank 4, alpha 8, of q,v,fc,down,head; biases trained' "$dir/log" ||
    fail "info of adapters: $(cat "$dir/log")"
grep -qF "base        $place" "$dir/log" || fail "info names no base: $(cat "$dir/log")"

run check resume --init "$dir/whole" --data "$text" --batch 4 # the laws hold from there, too
[ "$(grep -c 'ok: 0 of [1-9]' "$dir/log")" = 1 ] || fail "check of adapters: $(cat "$dir/log")"

# The plan is the run, to the byte.
run plan --data "$text" $options --lora 4 --lora-targets q,v --json "$dir/plan"
run train --data "$text" $options --lora 4 --lora-targets q,v --steps 2 --json "$dir/run"
for key in memory.peak_bytes memory.saved_for_backward memory.categories.gradients.peak \
    model.trainable_params; do
    [ "$(value "$dir/plan" $key)" != none ] || fail "no $key"
    [ "$(value "$dir/plan" $key)" = "$(value "$dir/run" $key)" ] ||
        fail "$key: planned $(value "$dir/plan" $key), held $(value "$dir/run" $key)"
done

# ---- in bf16: two bytes of what is frozen, and masters of what is trained ----

halved() { # steps, where, further options
    steps=$1 where=$2
    shift 2
    run train --data "$text" $options --init "$base" --precision bf16 --lora 4 \
        --lora-targets q,v,fc --steps "$steps" --decay-steps 6 --out "$where" "$@"
}
halved 6 "$dir/half" --lora-bias all --json "$dir/run"
halved 3 "$dir/half part" --lora-bias all
run train --resume "$dir/half part" --steps 6 --quiet
for file in model optimizer; do
    same "resumed adapters in bf16: $file" "$dir/half part/snapshot/$file.safetensors" \
        "$dir/half/snapshot/$file.safetensors"
done
bytes=$(value "$dir/run" memory.categories.weights.now)
[ "$bytes" = $((2 * $(value "$dir/run" model.params))) ] || fail "weights in bf16: $bytes bytes"
bytes=$(value "$dir/run" memory.categories.master_weights.now)
[ "$bytes" = $((4 * $(value "$dir/run" model.trainable_params))) ] || fail "masters: $bytes bytes"

# Trained biases start as the base's, masters included: a step of nothing changes nothing.
for bias in none all; do
    halved 1 "$dir/still $bias" --lora-bias $bias --lr 1e-30
    loss "$dir/still $bias" >"$dir/still.$bias"
done
same 'the loss with trained biases' "$dir/still.all" "$dir/still.none"

# ---- merging ----

run merge "$dir/whole" --out "$dir/merged" --quiet
a=$(loss "$dir/whole") m=$(loss "$dir/merged") b=$(loss "$base")
awk -v a="$a" -v m="$m" -v b="$b" 'BEGIN {
    exit !(a > 0 && (a - m) ^ 2 < 1e-10 && (a - b) ^ 2 > 1e-8)
}' || fail "loss with adapters $a, merged $m, of the base $b"
run generate "$dir/whole" --sample-tokens 20 --quiet
cp "$dir/log" "$dir/said"
run generate "$dir/merged" --sample-tokens 20 --quiet
cp "$dir/log" "$dir/says"
same 'the text of a merged model' "$dir/says" "$dir/said"
run train --data "$text" $options --init "$dir/merged" --steps 1 # it is a plain one
refused 'holds no adapters' merge "$dir/merged" --out "$dir/again"
refused 'where to?' merge "$dir/whole"
refused 'is what is merged' merge "$dir/whole" --out "$base/snapshot"

# ---- the base: moved, missing, another ----

mv "$base" "$dir/moved"
refused 'is missing' eval "$dir/whole" --data "$text"
refused '--init DIR says where it is' train --resume "$dir/whole" --steps 12
[ "$(loss "$dir/moved")" = "$b" ] || fail 'the base changed'
run eval "$dir/whole" --init "$dir/moved" --data "$text" --quiet
grep -q "loss $a " "$dir/log" || fail "with the base moved: $(cat "$dir/log"), not $a"
run train --data "$text" $options --steps 30 --seed 2 --out "$base"
refused 'is not the base that' eval "$dir/whole" --data "$text"
rm -r "$base"
run train --data "$text" $options --width 32 --steps 1 --out "$base"
refused 'is not the base of' eval "$dir/whole" --data "$text"
rm -r "$base"
mv "$dir/moved" "$base"
refused 'holds adapters, no base' eval "$dir/whole" --init "$dir/more" --data "$text"
refused 'give one' eval "$base" --init "$base" --data "$text"
refused 'holds other adapters: lora rank' train --init "$dir/whole" --lora 2 --steps 1
refused 'holds the base of the adapters' train --data "$text" --init "$base" --lora 2 --steps 1 --out "$base"
refused 'holds the base of the adapters' train --resume "$dir/whole" --steps 12 --out "$base/snapshot"
diff -r "$base" "$dir/untouched" >"$dir/log" || fail "the base changed: $(cat "$dir/log")"
refused 'start anew from --init' train --resume "$base" --lora 2 --steps 40

# Fresh weights are a base, too: their seed brings them back.
run train --data "$text" $options --lora 2 --seed 5 --steps 3 --out "$dir/seed"
run train --data "$text" $options --lora 2 --seed 5 --steps 2 --decay-steps 3 --out "$dir/seed 2"
run train --resume "$dir/seed 2" --steps 3 --quiet
same 'adapters of a seed' "$dir/seed/snapshot/model.safetensors" \
    "$dir/seed 2/snapshot/model.safetensors"

# ---- what is frozen ----

frozen="$dir/frozen"
run train --data "$text" $options --init "$base" --freeze 'w?e.*,h.0.attn.*' --steps 2 \
    --json "$dir/run" --out "$frozen"
trains=$(value "$dir/run" model.trainable_params)
all=$(value "$dir/run" model.params)
vocab=$(value "$dir/run" model.vocab)
[ "$trains" = $((all - 16 * (vocab + 16) - 4 * 16 * 17)) ] ||
    fail "of $all $trains are trained"
run train --resume "$frozen" --steps 3 --quiet # with the same frozen
refused "'h.7.*' fits no parameter: there are wte.weight" plan --freeze 'wte.*,h.7.*'
refused 'nothing to train' plan --freeze '*'
refused "'query': expected q, k, v, qkv" plan --lora 4 --lora-targets q,query
refused 'q, k and v are parts of qkv' plan --lora 4 --lora-targets q,qkv
refused 'expected a rank, or rank:alpha' plan --lora 4:x
refused 'rank 999: expected 1 to width 128' plan --lora 999
refused 'add --lora R' plan --lora-targets q
finish
