#!/bin/sh
# memtape check finds no broken law here, shows what the classic mistakes would have made, and
# notices a gradient that is not ours.
. tests/cli.sh

report="$dir/report.json"

# check WHAT holds with these options: the report says so, and compared as many numbers as it should.
holds() { # what, options
    what=$1
    shift
    "$memtape" check "$what" --data "$text" --json "$report" "$@" >"$dir/words" 2>"$dir/log" ||
        fail "status $?: check $what $*: $(tail -n 3 "$dir/words" "$dir/log")"
    is_json "check $what $*" "$report"
    [ "$(value "$report" ok)" = true ] || fail "check $what $*: ok is $(value "$report" ok)"
    ! grep -q nan% "$dir/words" || fail "check $what $*: $(grep nan% "$dir/words")"
    ! grep -q BROKEN "$dir/words" || fail "check $what $*: $(grep BROKEN "$dir/words")"
    flat "$report" | awk '
        $1 == "checks..variants..name" { runs++ }
        $1 == "checks..variants..planned_bytes" { planned = $2 }
        $1 == "checks..variants..peak_bytes" && $2 != planned { print "held " $2 ", planned " planned }
        $1 == "checks..variants..elements" { elements += $2 }
        $1 == "checks..variants..differ" { differ += $2 }
        END {
            if (runs + 0 == 0) print "nothing ran"
            if (runs > 1 && elements + 0 == 0) print "nothing was compared"
            if (differ + 0 > 0) print differ " differ"
        }' >"$dir/bad"
    [ "$what" = gradients ] || [ ! -s "$dir/bad" ] || fail "check $what $*: $(cat "$dir/bad")"
}

variants() { # how many runs the report has
    flat "$report" | grep -c '^checks\.\.variants\.\.name '
}

wanted_variants() { # what, how many, options
    what=$1 number=$2
    shift 2
    holds "$what" $small "$@"
    [ "$(variants)" = "$number" ] || fail "check $what $*: $(variants) runs, not $number"
}
wanted_variants accumulate 2 --batch 12 --micro-batch 5
wanted_variants accumulate 3 --batch 7
wanted_variants accumulate 2 --batch 2
wanted_variants accumulate 1 --batch 1
wanted_variants checkpoint 6 --batch 4 --dropout 0.1
wanted_variants checkpoint 7 --batch 4 --layers 2 --checkpoint auto --budget 1MB --attention naive
wanted_variants threads 5 --batch 4 --threads 3
wanted_variants threads 6 --batch 4 --threads 5
wanted_variants resume 3 --batch 4 --optimizer sgd
for optimizer in momentum adamw8bit lion adafactor; do
    for what in accumulate threads resume; do
        holds $what --model tiny --batch 4 --dropout 0.1 --optimizer $optimizer
    done
done
holds all $small --batch 12 --micro-batch 5 --dropout 0.1 --threads 2
holds all $small --batch 5 --no-tie --no-bias --segments half --sample sequential
holds all --model tiny --ignore 0.3 --empty-micro-batch
holds gradients $small --checkpoint full --micro-batch 3 --slopes 5
# What that does not measure is no number.
row='the step whose gradients are checked *[1-9][0-9]* *- *[1-9][0-9]* *- *[0-9.]*% *[0-9.]* *- '
grep -q "$row" "$dir/words" || fail "no dashes: $(grep 'whose gradients' "$dir/words")"
for key in activation_side resident_bytes time_ratio; do
    [ "$(flat "$report" | grep -c "variants..$key null$")" = 1 ] ||
        fail "$key: $(flat "$report" | grep "variants..$key ")"
done
holds all --model tiny --precision bf16 --dropout 0.1 --loss chunked --optimizer adamw8bit
holds all $small --precision bf16 --lora 4 --lora-targets q,v,fc --lora-bias all --attention naive
holds checkpoint $small --activation-precision bf16 --loss chunked --freeze 'wte.*'

# A gradient in bf16 is rounded once per micro-batch: no bits, but a bound, and the loss is the same.
"$memtape" check accumulate --model tiny --precision bf16 --grad-precision bf16 --micro-batch 5 \
    --json "$report" >"$dir/words" 2>"$dir/log" || fail "check accumulate in bf16: $(cat "$dir/words")"
grep -q 'ok: no gradient is off by more than 0.0[0-9]* of its norm' "$dir/words" ||
    fail "check accumulate in bf16: $(tail -n 1 "$dir/words")"
[ "$(flat "$report" | awk '$1 == "checks..variants..differ" && $2 > 0' | wc -l)" = 1 ] ||
    fail 'bf16 gradients of micro-batches differ in no bit: the bound says nothing'

# 2 x (gradient, weight, m, v) and four numbers of the two steps: all 3920 weights are compared.
holds accumulate $small --batch 3 --micro-batch 2
flat "$report" | grep -qx "checks..variants..elements $((4 * 3920 + 4))" ||
    fail "compared: $(flat "$report" | grep '\.elements ' | head -n 1)"

# ---- words ----

"$memtape" check threads --data "$text" $small --quiet >"$dir/words"
[ "$(cat "$dir/words")" = 'threads: ok: 0 of 62736 numbers differ in a bit' ] ||
    fail "--quiet says $(cat "$dir/words")"
"$memtape" check threads --data "$text" $small >"$dir/words"
! grep -q wte "$dir/words" || fail 'tensors that do not differ are shown'
"$memtape" check threads --data "$text" $small --verbose >"$dir/words"
[ "$(grep -c 'wte.weight  *gradient' "$dir/words")" = 4 ] || fail '--verbose does not show all tensors'

# ---- the classic mistakes ----

"$memtape" check accumulate --data "$text" $small --batch 12 --micro-batch 5 --clip 0.1 --naive \
    --json "$report" >"$dir/words" || fail "--naive: status $?"
flat "$report" | awk '
    $1 == "checks..mistakes..name" { name = $0; sub(/^[^"]*"/, "", name); sub(/"$/, "", name); names++ }
    $1 == "checks..mistakes..gradient_norm" { norm[name] = $2 }
    $1 == "checks..mistakes..relative" { relative[name] = $2 }
    $1 == "checks..mistakes..seen_in_loss" && $2 != "false" { print name " is seen in the loss" }
    END {
        if (names != 5) print names " rows"
        ratio = norm["unscaled"] / norm["ours"]
        if (!(ratio > 2.9 && ratio < 3.1)) print "unscaled: " ratio " times ours, not 3"
        if (!(relative["mean of means"] > 0.01)) print "mean of means: " relative["mean of means"]
        if (!(relative["clipped too early"] > 0.01)) print "clipped: " relative["clipped too early"]
        if (!(norm["ours, clipped"] > 0.0999 && norm["ours, clipped"] < 0.1001)) print "not clipped"
        if (relative["ours"] != 0) print "ours differs from ours"
    }' >"$dir/bad"
[ ! -s "$dir/bad" ] || fail "--naive: $(cat "$dir/bad"): $(grep -A 6 classic "$dir/words")"
# A micro-batch without a target is 0 / 0 for who takes its mean.
"$memtape" check accumulate --data "$text" $small --batch 12 --micro-batch 5 --naive --empty-micro-batch \
    >"$dir/words" || fail "--naive --empty-micro-batch: status $?"
grep 'mean of means' "$dir/words" | grep -q 'nan.*yes$' || fail "$(grep 'mean of' "$dir/words")"

# ---- another program's gradients ----

against() { # status wanted, said, options
    wanted=$1 said=$2
    shift 2
    "$memtape" check against --data "$text" "$@" >"$dir/words" 2>&1
    status=$?
    [ $status = "$wanted" ] || fail "status $status, not $wanted: check against $*: $(cat "$dir/words")"
    grep -qF -e "$said" "$dir/words" || fail "check against $* does not say '$said': $(cat "$dir/words")"
}
run train --data "$text" $small --batch 3 --steps 2 --out "$dir/run" --quiet
run train --data "$text" --init "$dir/run" --batch 3 --micro-batch 2 --steps 1 --quiet \
    --save-gradients "$dir/theirs.safetensors"
against 0 'the worst by 0;' --init "$dir/run" --batch 3 --against "$dir/theirs.safetensors"
against 1 BROKEN --init "$dir/run" --batch 4 --against "$dir/theirs.safetensors"
against 1 'add --dropout 0' --init "$dir/run" --dropout 0.1 --against "$dir/theirs.safetensors"
against 1 'no gradient for lm_head.weight' $small --no-tie --against "$dir/theirs.safetensors"
against 1 'h.0.ln_1.bias, which this model has not' $small --no-bias \
    --against "$dir/theirs.safetensors"
against 1 'against what?' $small

# One number of the last tensor is another.
size=$(wc -c <"$dir/theirs.safetensors")
cp "$dir/theirs.safetensors" "$dir/wrong.safetensors"
printf '\000\000\000\077' | # 0.5
    dd of="$dir/wrong.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null
against 1 'BROKEN: 1 of' --init "$dir/run" --batch 3 --against "$dir/wrong.safetensors"
against 0 'ok: 0 of' --init "$dir/run" --batch 3 --against "$dir/wrong.safetensors" --tolerance 1

# ---- tokens from a file ----

header='{"tokens":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]},"targets":{"dtype":"I32","shape":[2,3],"data_offsets":[24,48]}} '
tokens() { # file, the last of the twelve numbers in octal
    {
        printf "\\$(printf %o ${#header})\\000\\000\\000\\000\\000\\000\\000%s" "$header"
        for number in 1 2 3 4 5 6 2 3 4 5 6; do
            printf "\\00$number\\000\\000\\000"
        done
        printf "$2"
    } >"$1"
}
tokens "$dir/tokens.safetensors" '\234\377\377\377' # -100
holds accumulate $small --tokens "$dir/tokens.safetensors"
grep -q 'all 2 at once' "$dir/words" || fail "not a batch of 2: $(cat "$dir/words")"
"$memtape" check accumulate --data "$text" $small --batch 3 --tokens "$dir/tokens.safetensors" \
    >/dev/null 2>"$dir/log" && fail 'a batch of 3 from a file of 2'
grep -q 'holds 2' "$dir/log" || fail "$(cat "$dir/log")"
tokens "$dir/tokens.safetensors" '\377\000\000\000'
"$memtape" check accumulate --data "$text" $small --tokens "$dir/tokens.safetensors" \
    >/dev/null 2>"$dir/log" && fail 'a target outside the vocabulary'
grep -q 'target 255 at row 1, position 2' "$dir/log" || fail "$(cat "$dir/log")"

# ---- nothing to check with ----

mkdir "$dir/alone"
cp "$memtape" "$dir/alone/memtape"
"$dir/alone/memtape" check gradients --data "$text" $small >/dev/null 2>"$dir/log" &&
    fail 'slopes without the f64 program'
grep -q '`make`' "$dir/log" || fail "without the f64 program: $(cat "$dir/log")"
"$memtape" check all --data "$text" $small --ignore 1 >/dev/null 2>"$dir/log" && fail 'no target counts'
grep -q 'all 192 are ignored' "$dir/log" || fail "no target counts: $(cat "$dir/log")"
TMPDIR="$dir/tmp"
export TMPDIR
mkdir "$TMPDIR"
holds all $small
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"
finish
