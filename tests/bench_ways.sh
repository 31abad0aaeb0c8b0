#!/bin/sh
# bench_ways.sh - what each way to store less costs in time: a step of `baby`, against the plain one,
# round by round, so that a machine whose speed drifts slows both. Usage: bench_ways.sh PROGRAM
# [ROUNDS]. Medians of the rounds' ratios; about half a minute a round on two cores.
set -e
program=$1 rounds=${2:-5}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

rate() { # with these options: tokens per second, over six steps
    "$program" train --model baby --batch 4 --steps 6 --sample-tokens 0 --quiet --json "$dir/json" "$@"
    sed -n 's/^ *"tokens_per_second": \([^,]*\),*$/\1/p' "$dir/json"
}

round=0
while [ "$round" -lt "$rounds" ]; do
    plain=$(rate)
    number=0
    while IFS= read -r options; do
        number=$((number + 1))
        # shellcheck disable=SC2086 # options are words
        echo "$number $plain $(rate $options)" >>"$dir/ratios"
    done <<END
--precision bf16 --grad-precision bf16
--precision bf16 --grad-precision f32
--optimizer adamw8bit
--precision bf16 --grad-precision bf16 --optimizer adamw8bit
--optimizer adafactor
--optimizer lion
--loss chunked
--lora 8
--lora 8 --lora-targets q,v
--precision bf16 --lora 8
END
    round=$((round + 1))
done
echo "a step of baby, 4 x 256 tokens, against f32 with AdamW: medians of $rounds rounds"
sort -n "$dir/ratios" | awk '{ print $1, $2 / $3 }' | sort -k1,1n -k2,2n | awk -v rounds="$rounds" '
    BEGIN {
        split("bf16 with f32 masters|bf16, f32 gradients|adamw8bit|bf16, adamw8bit|adafactor|lion|" \
              "chunked loss|LoRA r=8|LoRA r=8, q and v|bf16, LoRA r=8", name, "|")
    }
    { ratio[$1, ++count[$1]] = $2 }
    END {
        for (i = 1; i in name; i++)
            printf "  %-24s %5.2f   (%.2f to %.2f)\n", name[i], ratio[i, int((rounds + 1) / 2)],
                   ratio[i, 1], ratio[i, count[i]]
    }'
