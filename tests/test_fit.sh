#!/bin/sh
# fit keeps its word: the command that it prints trains within the budget, with the losses of the run
# that it replaces; every line of its table is what a plan of these options says.
. tests/cli.sh

export XDG_CACHE_HOME="$dir/cache"

held() { # options of plan: the peak that it promises
    "$memtape" plan --quiet --json "$dir/plan.json" "$@" >"$dir/log" 2>&1 ||
        { fail "plan $*"; cat "$dir/log"; }
    value "$dir/plan.json" memory.peak_bytes
}

fit() { # options; the report goes to $dir/fit.json and $dir/said
    "$memtape" fit --json "$dir/fit.json" "$@" >"$dir/said" 2>"$dir/log" ||
        { fail "fit $*"; cat "$dir/log"; }
    is_json 'the report' "$dir/fit.json"
}

# The lines of the table: peak, then options.
front() {
    awk '/"front": \[/ { on = 1 } /^  \]/ { on = 0 }
        on && /"options"/ { sub(/.*: "/, ""); sub(/",$/, ""); options = $0 }
        on && /"peak_bytes"/ { sub(/.*: /, ""); sub(/,$/, ""); print $0, options }' "$dir/fit.json"
}

losses() { # of a run
    sed 's/.*"loss": \([^,]*\),.*"gradient_norm": \([^,]*\),.*/\1 \2/' "$1/log.jsonl"
}

# keeps_word BUDGET OPTIONS: what fit prints for half of the plain peak, pasted into a shell
keeps_word() {
    peak=$(held "$@")
    budget=$((peak / 2))
    fit --budget $budget "$@"
    command=$(grep '^memtape train' "$dir/said")
    [ "$(printf '%s\n' "$command" | wc -l)" = 1 ] && [ -n "$command" ] || fail "no command: fit $*"
    [ "\"$command\"" = "$(sed -n 's/^  "command": \(.*\),$/\1/p' "$dir/fit.json" | sed 's/\\\\/\\/g')" ] ||
        fail "another command as JSON: $command"
    rm -rf "$dir/fitted" "$dir/plain"
    { printf 'memtape() { "$program" "$@"; }\n%s --quiet --json "$report" --out "$run"\n' "$command"; } \
        >"$dir/pasted.sh"
    program=$memtape report="$dir/fitted.json" run="$dir/fitted" sh "$dir/pasted.sh" >"$dir/log" 2>&1 ||
        { fail "does not train: $command"; cat "$dir/log"; }
    measured=$(value "$dir/fitted.json" memory.peak_bytes)
    [ "$measured" -le $budget ] || fail "$measured bytes, the budget is $budget: $command"
    [ "$measured" = "$(front | head -n 1 | cut -d ' ' -f 1)" ] || fail "not as promised: $measured"
    "$memtape" train "$@" --quiet --out "$dir/plain" || fail "train $*"
    losses "$dir/plain" >"$dir/plain.losses"
    losses "$dir/fitted" >"$dir/fitted.losses"
    grep -q '^[0-9.]* [0-9.]*$' "$dir/plain.losses" || fail "no losses: $(cat "$dir/plain.losses")"
    same "losses after: $command" "$dir/plain.losses" "$dir/fitted.losses"
}

# ---- it trains ----

keeps_word --data "$text" --model tiny --batch 16 --steps 3
keeps_word --data "$text" --model tiny --batch 7 --steps 3 --attention naive --dropout 0.2 \
    --prompt '3 cats sat  on' --sample-tokens 4
keeps_word --data "$text" --model tiny --batch 16 --segments half --no-bias --steps 3 --threads 1
if [ -n "$MEMTAPE_LONG" ]; then
    keeps_word --model baby --batch 64 --steps 2 --sample-tokens 0
    for budget in 25GB 30GB 60GB 100GB; do
        "$memtape" fit --model gpt2-xl --vocab 50257 --budget 30GB --quiet >"$dir/log" || fail 'gpt2-xl'
        start=$(date +%s%N)
        "$memtape" fit --model gpt2-xl --vocab 50257 --batch 64 --budget $budget --no-cache >"$dir/log" 2>&1
        spent=$((($(date +%s%N) - start) / 1000000))
        [ $spent -lt 2000 ] || fail "$spent ms for gpt2-xl within $budget"
    done
fi

# ---- every line is true ----

for options in '--checkpoint none' '' '--segments half' '--checkpoint full' '--micro-batch 5' \
    '--checkpoint auto' '--attention naive --dropout 0.1' '--eval-every 1 --no-tie'; do
    set -- --model tiny --vocab 40 --batch 24 $options
    [ "$options" != '--checkpoint auto' ] || set -- "$@" --budget 1GB
    peak=$(held "$@")
    for share in 60 75 100; do
        budget=$((peak * share / 100))
        "$memtape" fit "$@" --budget $budget --json "$dir/fit.json" >"$dir/said" 2>"$dir/log" || {
            [ "$options" = '--micro-batch 5' ] || [ "$options" = '--checkpoint auto' ] ||
                fail "nothing for $share % with $options: $(cat "$dir/log")"
            continue
        }
        front >"$dir/front"
        [ -s "$dir/front" ] || fail "no lines with $options"
        while read -r bytes line; do
            [ "$bytes" -le $budget ] || fail "$bytes bytes are over $budget: $line"
            [ "$(held "$@" --budget $budget $line)" = "$bytes" ] || fail "another peak: $options: $line"
        done <"$dir/front"
        awk '/"front": \[/ { on = 1 } /^  \]/ { on = 0 }
            on && /"peak_bytes"/ { sub(/,$/, "", $2); if (n++ && $2 + 0 >= peak) print "bytes"; peak = $2 + 0 }
            on && /"estimated_seconds"/ { if (m++ && $2 + 0 < time) print "time"; time = $2 + 0 }' \
            "$dir/fit.json" >"$dir/log"
        [ ! -s "$dir/log" ] || fail "not a front with $options: $(cat "$dir/said")"
    done
done
fit --model tiny --vocab 40 --batch 24 --checkpoint full --budget 1GB
front | grep -q -- '--checkpoint' && fail 'what was given is changed'
fit --model tiny --vocab 40 --batch 24 --budget 1GB
[ "$(front | head -n 1 | cut -d ' ' -f 2-)" = '' ] || fail "changes what fits: $(cat "$dir/said")"
grep -q -- '--micro-batch\|--checkpoint' "$dir/fit.json" || fail 'only one line'
grep '^memtape train' "$dir/said" | grep -q -- '--micro-batch\|--checkpoint' &&
    fail "says defaults: $(grep '^memtape train' "$dir/said")"

# ---- what may change ----

peak=$(held --model tiny --vocab 40 --batch 24 --optimizer sgd)
fit --model tiny --vocab 40 --batch 24 --budget $((peak / 3)) --allow sgd
grep -q '"optimizer": "sgd"' "$dir/fit.json" || fail '--allow sgd does not allow it'
fit --model tiny --vocab 40 --batch 24 --budget $((peak / 2))
grep -q '"optimizer": "sgd"' "$dir/fit.json" && fail 'sgd without leave'
fit --model tiny --vocab 40 --batch 24 --budget $((peak / 3)) --allow lion,adafactor,adamw8bit
grep -qE '"optimizer": "(lion|adafactor|adamw8bit)"' "$dir/fit.json" || fail '--allow LIST does not allow it'
for kind in sgd momentum adamw adamw8bit lion adafactor; do
    value "$dir/fit.json" "rates.${kind}_seconds_per_weight" | grep -q '^[0-9.e-]*$' || fail "no rate of $kind"
done
for word in bf16 lora sgd,bf16; do
    "$memtape" fit --model tiny --budget 1GB --allow $word >"$dir/stdout" 2>"$dir/log" && fail "allows $word"
    [ "$(wc -l <"$dir/log")" = 1 ] && grep -q "${word#sgd,}: only optimizers are searched" "$dir/log" ||
        fail "--allow $word: $(cat "$dir/log")"
done
for bad in '--allow sgdd' '--budget 0' '--budget -1' '--budget 8apples' '' '--budget 1GB --activation-budget 1MB'; do
    "$memtape" fit --model tiny $bad >"$dir/stdout" 2>"$dir/log" && fail "takes $bad"
    [ "$(wc -l <"$dir/log")" = 1 ] && grep -q '^memtape fit: .*expected\|^memtape fit: .*fit goes' "$dir/log" ||
        fail "'$bad': $(cat "$dir/log")"
    [ ! -s "$dir/stdout" ] || fail "words on standard output: $bad"
done

# ---- when nothing fits ----

set -- --model tiny --vocab 40 --batch 24 --sample-tokens 0
least=$(held "$@" --micro-batch 1 --checkpoint full --segments half)
for budget in $((least * 9 / 10)) $((least * 3 / 4)) $((least * 7 / 10)); do
    "$memtape" fit "$@" --budget $budget --json "$dir/none.json" >"$dir/said" 2>"$dir/log"
    [ $? = 1 ] || fail "status when nothing fits into $budget"
    [ "$(value "$dir/none.json" command)" = null ] || fail 'a command when nothing fits'
    cp "$dir/log" "$dir/words"
    grep '^    --' "$dir/words" >"$dir/smaller"
    is_json 'nothing fits' "$dir/none.json"
    [ -s "$dir/smaller" ] || fail "nothing smaller for $budget: $(cat "$dir/words")"
    while read -r line; do
        bytes=$(printf '%s' "$line" | sed 's/.*  *\([0-9]*\) bytes,.*/\1/')
        options=$(printf '%s' "$line" | sed 's/   *[0-9].*//')
        [ "$bytes" -le $budget ] && [ "$(held "$@" --budget $budget $options)" = "$bytes" ] ||
            fail "another peak: $line"
    done <"$dir/smaller"
done

# What was given stands in the way: first what would not change the training.
peak=$(held --model tiny --vocab 40 --batch 24)
"$memtape" fit --model tiny --vocab 40 --batch 24 --micro-batch 24 --checkpoint none \
    --budget $((peak / 2)) >"$dir/said" 2>"$dir/words" && fail 'a whole batch fits into half'
grep '^    --' "$dir/words" | head -n 1 | grep -q -- '--micro-batch .* compute' ||
    fail "does not suggest a micro-batch: $(cat "$dir/words")"

# ---- rates are kept ----

rm -rf "$XDG_CACHE_HOME"
fit --model tiny --vocab 40 --budget 1GB --no-cache
[ ! -e "$XDG_CACHE_HOME" ] || fail '--no-cache writes'
fit --model tiny --vocab 40 --budget 1GB
grep -q 'measured now, kept in' "$dir/said" || fail "rates: $(cat "$dir/said")"
[ "$(wc -l <"$XDG_CACHE_HOME/memtape/rates.txt")" = 1 ] || fail 'no file of rates'
fit --model tiny --vocab 40 --budget 1GB
grep -q 'measured earlier' "$dir/said" || fail "rates are measured again: $(cat "$dir/said")"
fit --model tiny --vocab 40 --budget 1GB --seq 7
grep -q 'measured now' "$dir/said" || fail 'other shapes have the same rates'
[ "$(wc -l <"$XDG_CACHE_HOME/memtape/rates.txt")" = 2 ] || fail 'other shapes are not kept'
printf 'rubbish\n' >"$XDG_CACHE_HOME/memtape/rates.txt"
fit --model tiny --vocab 40 --budget 1GB
grep -q 'measured now' "$dir/said" || fail 'rubbish is read as rates'
: >"$dir/file"
XDG_CACHE_HOME="$dir/file" fit --model tiny --vocab 40 --budget 1GB
grep -q 'measured now$' "$dir/said" || fail "a place that cannot be written: $(cat "$dir/said")"
finish
