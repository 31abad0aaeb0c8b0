#!/bin/sh
# Each rung of the ladder is the plan that its options give, and holds the bytes that are printed for
# GPT-2 124M: 16 and 18 bytes per parameter in mixed precision, 8-bit state to the byte.
. tests/cli.sh

"$memtape" ladder --model gpt2 --json "$dir/ladder" >"$dir/table" 2>"$dir/log" ||
    fail "status $?: $(cat "$dir/log")"
is_json 'ladder' "$dir/ladder"

rung() { # number, key
    flat "$dir/ladder" | awk -v wanted="$1" -v path="rungs..$2" '
        $1 == "rungs..name" { number = seen++ }
        $1 == path && number == wanted { sub(/^[^ ]* /, ""); print; found = 1 }
        END { if (!found) print "none" }'
}
is() { # what it is, value, expected
    [ "$2" = "$3" ] || fail "$1: $2, expected $3"
}
states() { # of a rung: weights, gradients, masters and optimizer state together
    sum=0
    for part in weights gradients master_weights optimizer_state; do
        sum=$((sum + $(rung "$1" $part)))
    done
    echo $sum
}

is 'the first rung' "$(rung 0 name)" '"f32, AdamW"'
is 'its parameters' "$(rung 0 parameters)" 124439808
is 'AdamW' "$(rung 0 optimizer_state)" 995518464
is 'bf16 with f32 masters' "$(states 1)" 1991036928
is 'bf16 with f32 gradients' "$(states 2)" 2239916544
is '8-bit state' "$(rung 3 optimizer_state)" 253492632
is 'inference in bf16' "$(rung 13 weights)" 248879616
is 'its keys and values' "$(rung 13 kv_cache)" 37748736

# ---- a rung is a plan ----

for i in 0 1 2 3 4 5 6 7 8 9 10 11; do
    options=$(rung $i options | tr -d '"')
    # shellcheck disable=SC2086 # options are words
    "$memtape" plan --model gpt2 --batch 4 --sample-tokens 0 $options --quiet --json "$dir/plain" &&
        "$memtape" plan --model gpt2 --batch 4 --sample-tokens 0 --checkpoint full $options --quiet \
            --json "$dir/full" || fail "no plan for $options"
    is "peak of $options" "$(rung $i peak_bytes)" "$(value "$dir/plain" memory.peak_bytes)"
    is "peak of $options, checkpointed" "$(rung $i checkpointed_peak_bytes)" \
        "$(value "$dir/full" memory.peak_bytes)"
done
"$memtape" plan --model gpt2 --generate 1024 --precision bf16 --quiet --json "$dir/plain"
is 'peak of inference' "$(rung 13 peak_bytes)" "$(value "$dir/plain" memory.peak_bytes)"

# The page has these peaks. (Those of bf16 depend on what the BLAS multiplies as it is stored.)
"$memtape" ladder --model gpt2 --threads 2 --quiet --json "$dir/ladder"
for i in 0 3 4 6 7 8 12; do
    for key in peak_bytes checkpointed_peak_bytes; do
        bytes=$(rung $i $key | awk '{
            for (rest = ""; length($1) > 3 && $1 != "null"; $1 = substr($1, 1, length($1) - 3))
                rest = "," substr($1, length($1) - 2) rest
            print $1 rest
        }')
        [ "$bytes" = null ] || grep -q "| $bytes |" docs/precision.md ||
            fail "docs/precision.md: rung $i has $key $bytes"
    done
done

# 8-bit state of the larger models, tensor by tensor: 2 bytes and an absmax of 4 for each block of 256,
# 8 bytes where a tensor has fewer than 4,096 numbers.
for case in gpt2-medium:722066976 gpt2-large:1574739240 gpt2-xl:3166667352; do
    "$memtape" plan --model "${case%:*}" --batch 1 --optimizer adamw8bit --quiet --json "$dir/plain"
    is "8-bit state of ${case%:*}" "$(value "$dir/plain" memory.categories.optimizer_state.at_peak)" \
        "${case#*:}"
done

# ---- options that the rungs set are refused ----

"$memtape" ladder --precision bf16 >"$dir/out" 2>"$dir/log" && fail '--precision is taken'
grep -q -- '--precision: the rungs differ in that' "$dir/log" || fail "$(cat "$dir/log")"

finish
