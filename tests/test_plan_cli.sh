#!/bin/sh
# What plan says is exact and complete: parameters of GPT-3, tensors that add up to the peak, findings
# from dry runs that another plan confirms, textbook figures as printed, and nonsense refused.
. tests/cli.sh

plan() { # file, options: its JSON there, its words in $dir/table
    file="$dir/$1"
    shift
    "$memtape" plan --json "$file" "$@" >"$dir/table" 2>"$dir/log" ||
        { fail "status $?: memtape plan $*"; sed 's/^/    /' "$dir/log"; }
}

is() { # what it is, value, expected
    [ "$2" = "$3" ] || fail "$1: $2, expected $3"
}

# ---- GPT-3, in no time and no space ----

plan gpt3 --model gpt3 --batch 8 --micro-batch 1 --checkpoint full
is_json 'plan' "$dir/gpt3"
is 'parameters of gpt3' "$(value "$dir/gpt3" model.params)" 174604259328
is 'its weights' "$(value "$dir/gpt3" memory.categories.weights.at_peak)" 698417037312
is 'its m and v' "$(value "$dir/gpt3" memory.categories.optimizer_state.at_peak)" 1396834074624
if [ -x /usr/bin/time ] && /usr/bin/time -f '%M %U %S' true 2>"$dir/time"; then
    /usr/bin/time -f '%M %U %S' "$memtape" plan --quiet --model gpt3 --batch 8 --micro-batch 1 \
        --checkpoint full 2>"$dir/time"
    awk '$1 > 65536 || $2 + $3 > 1 { print "gpt3: " $1 " kB resident, " $2 + $3 " s" }' "$dir/time" \
        >"$dir/bad"
    [ ! -s "$dir/bad" ] || fail "$(cat "$dir/bad")"
fi

# Brown et al. 2020, table 2.1: layers, heads, width; and V C + K C + L (12 C^2 + 13 C) + 2 C.
while read -r name layers heads width; do
    plan preset --model "$name" --batch 1
    for key in layers heads width; do
        eval "expected=\$$key"
        is "$key of $name" "$(value "$dir/preset" model.$key)" "$expected"
    done
    is "context of $name" "$(value "$dir/preset" model.context)" 2048
    is "parameters of $name" "$(value "$dir/preset" model.params)" \
        $(((50257 + 2048) * width + layers * (12 * width * width + 13 * width) + 2 * width))
done <<END
gpt3-small 12 12 768
gpt3-medium 24 16 1024
gpt3-large 24 16 1536
gpt3-xl 24 16 2048
gpt3-2.7b 32 32 2560
gpt3-6.7b 32 32 4096
gpt3-13b 40 40 5120
gpt3 96 96 12288
END
plan xl --model gpt3-xl --batch 1
grep -q 'the paper prints 24 heads' "$dir/table" || fail 'gpt3-xl does not say that its heads are not 24'
grep -q '"note": "the paper prints 24 heads' "$dir/xl" || fail 'nor in JSON'

# ---- what was live at the peak is the peak ----

adds_up() {
    plan json --data "$text" $small "$@"
    is_json "plan $*" "$dir/json"
    flat "$dir/json" >"$dir/flat"
    awk '
        /^live_at_peak/ {
            line = $0
            sub(/.*"bytes": /, "", line)
            sum += line + 0
            share = $0
            sub(/.*"share": /, "", share)
            shares += share + 0
        }
        $1 == "memory.peak_bytes" { peak = $2 }
        $1 ~ /^memory.categories.(padding|stranded).at_peak/ { sum += $2; rest += $2 }
        END {
            if (sum != peak || peak == 0) print "live tensors add up to " sum ", the peak is " peak
            if (shares * peak + rest < peak * 0.9999) print "shares add up to " shares
        }' "$dir/flat" >"$dir/bad"
    [ ! -s "$dir/bad" ] || fail "$*: $(cat "$dir/bad")"
    born=$(sed -n 's/.*"peak_tensor": "\([^"]*\)".*/\1/p' "$dir/json")
    grep -q "Highest in [a-z]*, at the birth of $born:" "$dir/table" || fail "$*: no peak tensor"
    [ "$(grep -c '^\* ' "$dir/table")" = 5 ] || fail "$*: not 5 findings"
    grep -q '^\* Weights alone suggest .*, the run needs .* times)\.$' "$dir/table" ||
        fail "$*: weights and run"
    grep -q '^FLOPs of a step:  forward [1-9]' "$dir/table" || fail "$*: no FLOPs"
}
adds_up
adds_up --dropout 0.1 --attention naive --layers 3
adds_up --checkpoint full --layers 4 --batch 7 --micro-batch 3
adds_up --no-tie --no-bias --optimizer sgd --sample-tokens 0 --eval-every 1
adds_up --checkpoint auto --layers 3 --activation-budget 400000

# ---- equal micro-batches are run dry once, and it does not show ----

memory_of() {
    flat "$1" | grep '^memory' | grep -v '\.outside\.'
}
for options in '--batch 9 --micro-batch 3' '--batch 11 --micro-batch 3 --eval-every 1' \
    '--batch 8 --micro-batch 1 --checkpoint full --layers 3' '--batch 5 --micro-batch 4 --no-tie'; do
    plan once --data "$text" $small $options
    run ledger --data "$text" $small $options --quiet --json "$dir/each"
    memory_of "$dir/once" >"$dir/once.memory"
    memory_of "$dir/each" >"$dir/each.memory"
    [ -s "$dir/each.memory" ] || fail "ledger $options has no memory"
    diff "$dir/once.memory" "$dir/each.memory" >"$dir/diff" ||
        fail "$options: plan (<) and every micro-batch (>): $(cat "$dir/diff")"
done
plan whole --data "$text" $small --batch 7 --checkpoint full
plan split --data "$text" $small --batch 7 --micro-batch 3 --checkpoint full
for phase in forward backward recompute; do
    is "FLOPs of $phase" "$(value "$dir/split" flops.$phase)" "$(value "$dir/whole" flops.$phase)"
    [ "$(value "$dir/whole" flops.$phase)" -gt 0 ] || fail "no FLOPs of $phase"
done

# A head more is ten FLOPs for each pair in attention's tiles of 64 x 64 at or below the diagonal.
for seq in 1 64 100 128 200; do
    plan one --data "$text" $small --context 200 --seq $seq --batch 3 --heads 1
    plan two --data "$text" $small --context 200 --seq $seq --batch 3 --heads 2
    pairs=0
    for from in 0 64 128 192; do
        end=$((from + 64 < seq ? from + 64 : seq))
        [ $from -ge $seq ] || pairs=$((pairs + (end - from) * end))
    done
    is "FLOPs of a head at $seq" \
        $(($(value "$dir/two" flops.forward) - $(value "$dir/one" flops.forward))) $((30 * pairs))
done

# ---- findings are what another plan says ----

finding() { # name: its bytes in $dir/json
    awk -v name="$1" '
        $0 ~ "\"name\": \"" name "\"" { found = 1 }
        found && /"bytes":/ { gsub(/[^0-9]/, ""); print; exit }' "$dir/json"
}
confirms() { # options | options of the doubled batch | of the doubled sequence
    plan double --data "$text" $small $1 $2
    plan sequence --data "$text" $small $1 $3
    plan json --data "$text" $small $1
    is "$1, twice the batch" "$(finding double_batch)" "$(value "$dir/double" memory.peak_bytes)"
    is "$1, twice the sequence" "$(finding double_sequence)" \
        "$(value "$dir/sequence" memory.peak_bytes)"
    is "$1, weights" "$(finding weights_alone)" \
        "$(value "$dir/json" memory.categories.weights.at_peak)"
}
confirms '--batch 3' '--batch 6' '--context 32 --seq 32'
confirms '--batch 4 --micro-batch 1' '--batch 8' '--context 32 --seq 32'
confirms '--batch 2 --seq 8 --attention naive --layers 2' '--batch 4' '--seq 16'
plan json --model gpt3 --batch 1600 --micro-batch 1 --checkpoint full
is 'a batch that 64 bits of FLOPs do not hold' "$(finding double_batch)" ''

# ---- generation: weights, keys and values, and nothing of a training ----

cache() { # tokens, bytes a token; of $dir/text
    is 'tokens in the cache' "$(value "$dir/text" kv_cache.tokens)" "$1"
    is 'bytes a token' "$(value "$dir/text" kv_cache.bytes_per_token)" "$2"
    is 'bytes of keys and values' "$(value "$dir/text" memory.categories.kv_cache.at_peak)" $(($1 * $2))
    for category in gradients optimizer_state saved_activations activation_gradients; do
        is "$category of a generation" "$(value "$dir/text" memory.categories.$category.peak)" 0
    done
}
plan text --model gpt2 --generate 1023
cache 1024 73728
is 'its weights' "$(value "$dir/text" memory.categories.weights.at_peak)" $((4 * 124439808))
grep -q '^Keys and values: 75497472 bytes .* 73728 a token: 2 x 12 layers x width 768, in f32' "$dir/table" ||
    fail 'plan --generate does not say what the cache holds'
grep -q '^FLOPs\|^\* ' "$dir/table" && fail 'plan --generate speaks of a training'
plan text --model gpt2 --generate 10 --prompt-tokens 300
cache 310 73728
plan text --model gpt2 --generate 100000 --prompt-tokens 5000
cache 1024 73728
plan text --model gpt3 --generate 2047
cache 2048 9437184
plan text --model gpt3 --generate 2047 --precision bf16
cache 2048 4718592
is 'its weights' "$(value "$dir/text" memory.categories.weights.at_peak)" $((2 * 174604259328))
plan text --model gpt3-13b --generate 2047 --precision bf16 # as OPT 13B: 40 layers of 5120
cache 2048 819200
plan text --model gpt3-13b --generate 7 --prompt 'cats '
cache 12 1638400
plan text --model gpt2 --generate 1023 --no-kv-cache
is 'a cache that is not wanted' "$(value "$dir/text" memory.categories.kv_cache.peak)" 0
grep -q '^No cache of keys and values' "$dir/table" || fail 'no word of no cache'

# What a run holds is what was planned, in every category, stored as the snapshot stores it.
for attention in tiled naive 'tiled --precision bf16'; do
    model="$small --attention $attention"
    run train --data "$text" $model --steps 1 --eval-every 1 --eval-batches 0 --out "$dir/out" \
        --quiet --json "$dir/trained"
    run eval "$dir/out" --data "$text" --quiet --json "$dir/judged"
    is "$attention: loss of eval" "$(value "$dir/judged" val_loss)" "$(value "$dir/trained" val_loss)"
    for options in '--sample-tokens 1' '--sample-tokens 9 --top-k 3 --threads 1' \
        '--sample-tokens 40 --temperature 0' '--sample-tokens 40 --no-kv-cache'; do
        run generate "$dir/out" --prompt 'cats ' $options --quiet --json "$dir/made"
        options=$(echo "$options" | sed 's/--sample-tokens/--generate/')
        plan text --data "$text" $model --prompt-tokens 5 $options
        memory_of "$dir/made" >"$dir/made.memory"
        memory_of "$dir/text" >"$dir/text.memory"
        diff "$dir/made.memory" "$dir/text.memory" >"$dir/diff" ||
            fail "$attention, $options: run (<) and plan (>): $(cat "$dir/diff")"
        plan text --init "$dir/out" --prompt-tokens 5 $options
        memory_of "$dir/text" >"$dir/text.memory"
        diff "$dir/made.memory" "$dir/text.memory" >"$dir/diff" ||
            fail "$attention, $options: run (<) and plan of the snapshot (>): $(cat "$dir/diff")"
        for key in bytes tokens bytes_per_token; do
            is "$attention, $options: $key" "$(value "$dir/made" kv_cache.$key)" \
                "$(value "$dir/text" kv_cache.$key)"
        done
    done
    [ "$attention" = tiled ] || { rm -r "$dir/out"; continue; }
    plan text $model --vocab "$(value "$dir/trained" model.vocab)" --generate 9 --precision bf16
    run generate "$dir/out" --sample-tokens 9 --precision bf16 --quiet --json "$dir/made"
    is 'bf16 of an f32 snapshot' "$(value "$dir/made" memory.peak_bytes)" \
        "$(value "$dir/text" memory.peak_bytes)"
    rm -r "$dir/out"
done

# ---- states by the rule of thumb ----

"$memtape" plan --params 1B >"$dir/table" || fail 'plan --params 1B'
grep -q 'rule of thumb, not a dry run' "$dir/table" || fail 'not labelled as the rule'
grep -q 'GB are 1e9 bytes' "$dir/table" || fail 'what is a GB?'
grep -q '^Training, mixed-precision Adam: 16\.0 GB, 2 + 2 + 4 + 8 = 16 bytes' "$dir/table" || fail '1B: 16.0 GB'
grep -q '^Inference, bf16 weights: *2\.0 GB' "$dir/table" || fail '1B: 2.0 GB'
grep -q '^  |w\{7\}|g\{7\}|W\{15\}|A\{31\}|$' "$dir/table" || fail 'no pie'
"$memtape" plan --params 350M >"$dir/table"
grep -q 'Adam: 5\.6 GB' "$dir/table" && grep -q 'weights: *0\.7 GB' "$dir/table" || fail '350M'
"$memtape" plan --params 7.5e9 --shards 64 --json "$dir/states" >"$dir/table"
is_json 'states' "$dir/states"
is 'ZeRO' "$(sed -n 's/^  ZeRO \([0-3]\) *\([0-9.]* GB\) .*/\1: \2/p' "$dir/table" | tr '\n' ',')" \
    '0: 120.0 GB,1: 31.4 GB,2: 16.6 GB,3: 1.9 GB,'
grep -q 'by the formula of the ZeRO paper' "$dir/table" || fail "not labelled as the paper's formula"
is 'states in JSON' "$(value "$dir/states" states.mixed_adam_bytes.total)" 120000000000
is 'inference in JSON' "$(value "$dir/states" states.bf16_inference_bytes)" 15000000000
is 'shards in JSON' "$(grep -c '"bytes":' "$dir/states")" 4
"$memtape" plan --params 124439808 --quiet --json - >"$dir/states"
is 'a count' "$(value "$dir/states" states.mixed_adam_bytes.total)" $((16 * 124439808))
is 'no shards' "$(grep -c zero "$dir/states")" 0

# ---- textbook formulas beside a plan ----

rule() { # name, key
    awk -v name="$1" -v key="\"$2\":" '
        $0 ~ "\"name\": \"" name "\"" { found = 1 }
        found && $1 == key { sub(/,$/, ""); print $2; exit }' "$dir/json"
}
plan json --model gpt2 --batch 4 --micro-batch 2 --explain --shards 4
is_json 'explain' "$dir/json"
is 'rule: states' "$(rule states rule_bytes)" $((16 * 124439808))
is 'exact: states' "$(rule states exact_bytes)" $((16 * 124439808))
is 'rule: weights' "$(rule weights rule_bytes)" $((2 * 124439808))
is 'exact: weights' "$(rule weights exact_bytes)" $((4 * 124439808))
is 'rule: ZeRO 1' "$(rule zero_1 rule_bytes)" $((7 * 124439808))
is 'rule: ZeRO 3' "$(rule zero_3 rule_bytes)" $((4 * 124439808))
sbh=$((1024 * 2 * 768))
is 'rule: a layer' "$(rule layer_none rule_bytes)" $((sbh * 34 + 5 * 12 * 1024 * 1024 * 2))
is 'rule: selective' "$(rule layer_selective rule_bytes)" $((sbh * 34))
is 'rule: full' "$(rule layer_full rule_bytes)" $((sbh * 2))
is 'exact: full' "$(rule layer_full exact_bytes)" $((sbh * 4))
is 'rule: logits' "$(rule logits rule_bytes)" $((4 * 1024 * 2 * 50257))
is 'rule: KV' "$(rule kv_cache rule_bytes)" $((36864 * 1024))
grep -q 'tiled attention keeps no as^2 term' "$dir/table" || fail 'why tiled attention keeps less'
grep -c 'arXiv' "$dir/table" | grep -qx 3 || fail 'sources'
# A layer more keeps exactly what explain says that a layer keeps.
exact=$(rule layer_none exact_bytes)
saved() {
    plan more --model gpt2 --batch 2 --layers "$1" --sample-tokens 0
    value "$dir/more" memory.categories.saved_activations.at_peak
}
is 'exact: a layer' "$exact" $(($(saved 6) - $(saved 5)))

# ---- nonsense ----

refused() { # 'said' -- options
    said=$1
    shift 2
    "$memtape" plan "$@" >"$dir/stdout" 2>"$dir/stderr"
    status=$?
    [ $status = 1 ] || fail "status $status, not 1: plan $*"
    [ ! -s "$dir/stdout" ] || fail "words on standard output: plan $*"
    [ "$(wc -l <"$dir/stderr")" -eq 1 ] || fail "not one line: plan $*: $(head -n 3 "$dir/stderr")"
    grep -qF -e "$said" "$dir/stderr" || fail "plan $* does not say '$said': $(cat "$dir/stderr")"
}
for count in '8 apples' -5 0 -1B 0.2 1e16 2e400 nan inf B 1BB 1B2 0x10 ' ' 1,5e9 1e999B; do
    refused "--params $count: expected 1 to 1e15 parameters" -- "--params=$count"
done
refused '--params is empty' -- --params=
refused 'leave out --model gpt2' -- --params 1B --model gpt2
refused 'leave out --explain' -- --params 1B --explain
refused '--shards is for' -- --shards 4
refused '--shards 0' -- --params 1B --shards 0
refused '--generate 0: expected' -- --generate 0
refused 'leave out --batch 4' -- --generate 5 --batch 4
refused 'leave out --explain' -- --generate 5 --explain
refused 'leave out --checkpoint auto' -- --generate 5 --checkpoint auto --budget 1GB
refused 'leave out --generate' -- --params 1B --generate 5
refused '--prompt-tokens is for --generate' -- --prompt-tokens 5
refused 'give one' -- --generate 5 --sample-tokens 5
refused 'give one' -- --generate 5 --prompt a --prompt-tokens 5
refused '--budget 8 apples' -- --budget '8 apples'
refused '--budget 0' -- --budget 0
refused '--budget -1GB' -- --budget=-1GB

# Sizes that would wrap are refused, or counted in 64 bits.
refused '--batch 1000000000' -- --model tiny --batch 1000000000 --seq 1000000 --context 1000000
refused 'hidden layer of an MLP' -- --model tiny --batch 16777216 --seq 1000000 --context 1000000
refused 'FLOPs' -- --model tiny --batch 16777216 --micro-batch 1 --seq 1000000 --context 1000000
refused 'scores' -- --attention naive --context 16777216
refused 'token embedding' -- --vocab 16777216 --width 16777216 --heads 1
refused 'position embedding' -- --context 16777216 --width 8388608 --heads 1 --vocab 1 --seq 1
refused "layer's MLP weights" -- --width 16777216 --heads 1 --vocab 1
refused 'logits' -- --model tiny --width 2 --vocab 16777216 --batch 1048576
refused 'addresses' -- --model gpt3 --batch 512
plan json --model tiny --batch 16777216 --micro-batch 1 --seq 1 # as many forwards
is 'a batch of 2^24' "$(value "$dir/json" memory.categories.batch.at_peak)" $((2 * 4 * 16777216))
plan json --model tiny --batch 1 --context 16777216
is 'weights of 2^24 positions' "$(value "$dir/json" memory.categories.weights.at_peak)" \
    $((4 * (16777216 * 32 + 62 * 32 + 2 * (12 * 1024 + 13 * 32) + 64)))

# ---- how things are stored is said ----

plan stored --model tiny --precision bf16
grep -q '^stored: weights bf16 with f32 masters, gradients bf16, activations bf16$' "$dir/table" ||
    fail "one micro-batch in bf16: $(head -n 2 "$dir/table")"
plan stored --model tiny --precision bf16 --micro-batch 5
grep -q '^stored: .* gradients f32 (over several micro-batches bf16 would stall)' "$dir/table" ||
    fail "several micro-batches in bf16: $(head -n 2 "$dir/table")"
is 'their bytes' "$(value "$dir/stored" memory.categories.gradients.at_peak)" $((4 * 28480))
plan stored --model tiny
! grep -q '^stored:' "$dir/table" || fail 'a plan of reals speaks of storage'

# ---- the README's table is that of `make run` ----

plan readme --model nano --steps 1000 --warmup 50 --eval-every 250
awk '/^Memory in bytes/ { on = 1 } /^```/ { on = 0 } on && !/\.\.\./ && !/outside/' README.md >"$dir/lines"
[ "$(wc -l <"$dir/lines")" -gt 6 ] || fail 'the README has no memory table'
while IFS= read -r line; do
    grep -qxF -- "$line" "$dir/table" || fail "README: no such line: $line"
done <"$dir/lines"
finish
