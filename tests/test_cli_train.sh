#!/bin/sh
# What train writes is complete and adds up, a plan equals the run to the byte, and neither threads
# nor micro-batches change a bit of the log or the snapshot.
. tests/cli.sh

# ---- what a run leaves ----

out="$dir/run"
run train --data "$text" $small --steps 6 --batch 4 --eval-every 3 --out "$out" --sample-tokens 8 \
    --json "$dir/report.json"
grep -q 'optimizer_state' "$dir/log" || fail 'no memory table at the end'
is_json 'the report' "$dir/report.json"
[ "$(wc -l <"$out/log.jsonl")" -eq 6 ] || fail "6 steps, $(wc -l <"$out/log.jsonl") lines of log"
step=0
while IFS= read -r line; do
    step=$((step + 1))
    printf '%s\n' "$line" >"$dir/line"
    is_json "line $step of the log" "$dir/line"
    case $line in
    "{\"step\": $step, \"loss\": "[0-9]*'"lr": '[0-9]*'"gradient_norm": '[0-9]*'"targets": 64,'*) ;;
    *) fail "line $step of the log: $line" ;;
    esac
done <"$out/log.jsonl"
[ "$(grep -c val_loss "$out/log.jsonl")" = 2 ] ||
    fail 'two validations, as many lines with val_loss'
[ "$(ls "$out/snapshot" | tr '\n' ' ')" = 'model.safetensors optimizer.safetensors ' ] ||
    fail "a snapshot of: $(ls "$out/snapshot")"
[ "$(ls -A "$out" | tr '\n' ' ')" = 'config.txt log.jsonl snapshot ' ] ||
    fail "left: $(ls -A "$out")"

report="$dir/report.json"
[ "$(value "$report" model.params)" = 3920 ] || fail "params: $(value "$report" model.params)"
[ "$(value "$report" steps)" = 6 ] || fail "steps: $(value "$report" steps)"
for key in loss val_loss tokens_per_second memory.peak_bytes; do
    value "$report" $key | grep -q '^[0-9.]*$' || fail "$key: $(value "$report" $key)"
done
for key in memory.peak_phase memory.peak_tensor; do
    value "$report" $key | grep -q '^"[a-z]' || fail "$key: $(value "$report" $key)"
done
for category in weights gradients master_weights optimizer_state saved_activations recomputed \
    activation_gradients workspace batch kv_cache communication bookkeeping padding stranded \
    outside; do
    for when in at_peak peak now; do
        value "$report" memory.categories.$category.$when | grep -q '^[0-9]*$' ||
            fail "no memory.categories.$category.$when"
    done
done
for phase in init forward backward recompute update eval generate; do
    value "$report" memory.phases.$phase | grep -q '^[0-9]*$' || fail "no memory.phases.$phase"
done
[ "$(value "$report" memory.categories.outside.peak)" -gt 0 ] || fail 'nothing outside'

# ---- it adds up ----

adds_up() { # file
    flat "$1" | awk '
        $1 == "memory.peak_bytes" { peak = $2 }
        /^memory.categories/ && !/outside/ {
            if ($1 ~ /at_peak$/) sum += $2
            else if ($1 ~ /\.peak$/) { if ($2 < at) bad = bad " " $1 }
            at = $2
        }
        /^memory.phases/ { if ($2 > highest) highest = $2 }
        END {
            if (sum != peak) print "categories add up to " sum ", the peak is " peak
            if (highest != peak) print "the highest phase has " highest ", the peak is " peak
            if (bad != "") print "less than at the peak:" bad
        }' >"$dir/sums"
    [ ! -s "$dir/sums" ] || fail "$1: $(cat "$dir/sums")"
}
adds_up "$report"

# ---- a plan equals the run ----

bytes_of() { # what must be equal
    flat "$1" | grep '^memory\.\|^model\.\|^flops\.' | grep -v '\.outside\.'
}
plan_equals() { # options
    [ -n "$builtin" ] || set -- --data "$text" "$@"
    for program in "$memtape" $f64; do
        "$program" plan $small --json "$dir/plan.json" --quiet "$@" &&
            "$program" train $small --steps 2 --json "$dir/train.json" --quiet "$@" ||
            fail "$program: plan or train failed with $*"
        bytes_of "$dir/plan.json" | grep -v '^flops' >"$dir/plan"
        bytes_of "$dir/train.json" | grep -v '^flops' >"$dir/train"
        grep -q 'memory.peak_bytes' "$dir/plan" || fail "no peak in the plan with $*"
        diff "$dir/plan" "$dir/train" >"$dir/diff" ||
            fail "$program $*: plan (<) and run (>) differ: $(cat "$dir/diff")"
        adds_up "$dir/train.json"
    done
}
f64=${MEMTAPE_F64:-} builtin=
plan_equals
plan_equals --dropout 0.1 --threads 3
plan_equals --attention naive --eval-every 1
f64=
plan_equals --attention naive --dropout 0.2 --layers 2
plan_equals --checkpoint full --layers 3 --dropout 0.1
plan_equals --checkpoint full --layers 2 --attention naive --micro-batch 7
plan_equals --batch 5 --micro-batch 2 --eval-every 1
plan_equals --optimizer sgd --no-tie --no-bias
plan_equals --optimizer adamw8bit --width 72 --heads 4
plan_equals --optimizer adafactor
plan_equals --eval-every 1 --batch 2 --sample-tokens 0
builtin=yes # a plan that is told the vocabulary need not read the text, but for the prompt
plan_equals --vocab 300 --prompt Whatever. --sample-tokens 1 --batch 1 --seq 2
plan_equals --vocab 300 --checkpoint full
builtin=
plan_equals --tokenizer byte --top-k 5 --seq 7
plan_equals --model tiny --layers 1 --threads 1

# ---- known numbers ----

known() { # path, bytes, options
    path=$1 wanted=$2
    shift 2
    "$memtape" plan --quiet --json "$dir/plan.json" "$@" || fail "plan $* failed"
    [ "$(value "$dir/plan.json" "$path")" = "$wanted" ] ||
        fail "plan $*: $path is $(value "$dir/plan.json" "$path"), not $wanted"
}
known model.params 124439808 --model gpt2
known model.params 163037184 --model gpt2 --no-tie
known memory.categories.weights.peak 497759232 --model gpt2
while read -r optimizer bytes; do # the table in docs/memory.md
    known memory.categories.optimizer_state.peak "$bytes" --model gpt2 --optimizer "$optimizer"
    sed 's/,//g' docs/memory.md | grep -q "^| \`$optimizer\` |.* $bytes |$" ||
        fail "docs/memory.md does not say $bytes for $optimizer"
done <<'END'
sgd 0
momentum 497759232
adamw 995518464
adamw8bit 253492632
lion 497759232
adafactor 1286468
END
for micro in 4 2 1; do
    known memory.categories.gradients.peak 497759232 --model gpt2 --batch 4 --micro-batch $micro
done

# ---- quiet, and words beside JSON ----

"$memtape" train --data "$text" $small --steps 2 --quiet >"$dir/stdout" 2>"$dir/stderr"
[ ! -s "$dir/stdout" ] && [ ! -s "$dir/stderr" ] || fail '--quiet says something'
for quiet in --quiet --no-quiet; do
    "$memtape" train --data "$text" $small --steps 2 $quiet --json - >"$dir/stdout" 2>"$dir/stderr"
    is_json "train $quiet --json -" "$dir/stdout"
done
grep -q 'step .*loss' "$dir/stderr" || fail 'no lines of progress'
"$memtape" plan --data "$text" $small --json - >"$dir/stdout"
is_json 'plan --json -' "$dir/stdout"

# ---- option files ----

printf '# a run\nsteps = 9\nbatch = 3   # few\n bias = no\nprompt = "s \\n"\n' >"$dir/options.txt"
run train --data "$text" $small --config "$dir/options.txt" --steps 4 --out "$dir/file" \
    --json "$dir/file.json"
[ "$(value "$dir/file.json" steps)" = 4 ] || fail 'the command line does not win'
[ "$(value "$dir/file.json" model.bias)" = false ] || fail 'the file was not read'
grep -q '"targets": 48,' "$dir/file/log.jsonl" || fail 'the batch of the file was not used'

# ---- threads, micro-batches and checkpoints change no bit ----

laws="--layers 2 --heads 2 --width 32 --context 16 --steps 5 --dropout 0.1 --eval-every 2
    --eval-batches 2 --sample-tokens 0 --quiet"
run train --data "$text" $laws --threads 1 --out "$dir/one" --save-gradients "$dir/one.grad"
timeless "$dir/one/log.jsonl" >"$dir/one.log"
[ "$(wc -l <"$dir/one.log")" -eq 5 ] || fail 'the first of several runs has no log'
number=0
for change in '--threads 2' '--threads 3' '--micro-batch 5' '--micro-batch 1' \
    '--micro-batch 5 --threads 3' '--checkpoint full' '--checkpoint full --micro-batch 7'; do
    number=$((number + 1))
    other="$dir/other $number"
    run train --data "$text" $laws $change --out "$other" --save-gradients "$other.grad"
    timeless "$other/log.jsonl" >"$other.log"
    same "$change: the log" "$dir/one.log" "$other.log"
    same "$change: the gradients" "$dir/one.grad" "$other.grad"
    case $change in
    *checkpoint*) ;; # said in the metadata
    *)
        same "$change: the weights" "$dir/one/snapshot/model.safetensors" \
            "$other/snapshot/model.safetensors"
        ;;
    esac
    same "$change: the optimizer" "$dir/one/snapshot/optimizer.safetensors" \
        "$other/snapshot/optimizer.safetensors"
done
finish
