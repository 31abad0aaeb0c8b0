#!/bin/sh
# A budget is exact: what the plan holds runs, one byte less is refused before anything is written.
# What the refusal says is true: what does not fit, what is in the way, and each change that it
# suggests, pasted as it was printed.
. tests/cli.sh

held() { # options of plan: the peak that it promises
    "$memtape" plan --quiet --json "$dir/plan.json" "$@" >"$dir/log" 2>&1 ||
        { fail "plan $*"; cat "$dir/log"; }
    value "$dir/plan.json" memory.peak_bytes
}

# short BYTES COMMAND ...: refused with this many bytes too few; the message goes to $dir/said
out="$dir/out"
short() {
    short=$1
    shift
    "$memtape" "$@" >"$dir/stdout" 2>"$dir/said"
    status=$?
    [ $status = 1 ] || fail "status $status, not 1: memtape $*"
    [ ! -s "$dir/stdout" ] || fail "words on standard output: memtape $*"
    grep -q "^memtape $1: --budget [0-9]* (.*) is $short bytes too few: the peak is" "$dir/said" ||
        fail "memtape $* does not say how many bytes are missing: $(head -n 1 "$dir/said")"
    [ ! -e "$out" ] || { fail "left something behind: memtape $*"; rm -rf "$out"; }
}

# The options of the suggestions, one a line; $1: those that keep (or change) the training
suggested() {
    sed -n '/what would fit/,$p' "$dir/said" | grep '^    --' |
        { [ "$1" = keep ] && grep 'compute' || grep 'changes'; } | sed 's/^ *//; s/   *[0-9].*//'
}

losses() { # of a run
    sed 's/.*"loss": \([^,]*\),.*"gradient_norm": \([^,]*\),.*/\1 \2/' "$1/log.jsonl"
}

# ---- one byte ----

train="--data '$(printf '%s' "$text" | sed "s/'/'\\\\''/g")' --model tiny --steps 2 --batch 6"
with() { # a command with the options of $train, which are quoted for a shell
    command=$1
    shift
    eval "set -- \"$command\" $train \"\$@\""
    "$memtape" "$@"
}
with plan --quiet --json "$dir/plan.json" || fail 'plan'
peak=$(value "$dir/plan.json" memory.peak_bytes)
with train --budget "$peak" --quiet --json "$dir/train.json" --out "$out" || fail 'the plan does not run'
[ "$(value "$dir/train.json" memory.peak_bytes)" = "$peak" ] || fail 'the run holds something else'
mv "$out" "$dir/whole"
for command in train plan ledger tape; do
    more=
    [ $command = train ] || [ $command = plan ] && more="--out|$out"
    eval "set -- $train"
    IFS='|'
    short 1 $command "$@" $more --budget $((peak - 1))
    unset IFS
    [ "$(grep -c '%  ' "$dir/said")" -ge 5 ] || fail "$command: no five tensors: $(cat "$dir/said")"
    with $command --quiet --budget "$peak" --json "$dir/other.json" >"$dir/log" 2>&1 ||
        [ $command = tape ] || fail "$command refuses what fits: $(cat "$dir/log")"
done
for command in generate eval; do
    set -- "$dir/whole"
    [ $command = generate ] || set -- "$@" --data "$text"
    "$memtape" $command "$@" --json "$dir/held.json" --quiet >"$dir/log" 2>&1 || fail "$command"
    bytes=$(value "$dir/held.json" memory.peak_bytes)
    "$memtape" $command "$@" --budget "$bytes" >"$dir/log" 2>&1 || fail "$command refuses what fits"
    short 1 $command "$@" --budget $((bytes - 1))
    short 5000 $command "$@" --budget $((bytes - 5000))
done
# The same for a plan of a text, which has no snapshot.
"$memtape" plan --model tiny --vocab 40 --generate 30 --quiet --json "$dir/held.json" || fail 'plan --generate'
text_bytes=$(value "$dir/held.json" memory.peak_bytes)
"$memtape" plan --model tiny --vocab 40 --generate 30 --budget "$text_bytes" --quiet || fail 'plan --generate refuses what fits'
short 2000 plan --model tiny --vocab 40 --generate 30 --budget $((text_bytes - 2000))
grep -q '^    --generate [1-9][0-9]* .* a shorter text$' "$dir/said" || fail "no shorter text: $(cat "$dir/said")"
shorter=$(sed -n 's/^ *\(--generate [0-9]*\) .*/\1/p' "$dir/said" | head -n 1)
"$memtape" plan --model tiny --vocab 40 $shorter --budget $((text_bytes - 2000)) --quiet ||
    fail 'the shorter text does not fit'
short 5000 eval "$dir/whole" --data "$text" --budget $((bytes - 5000))
"$memtape" eval "$dir/whole" --data "$text" --quiet $(suggested keep | head -n 1) \
    --budget $((bytes - 5000)) >"$dir/log" 2>&1 || fail "eval: its suggestion does not run: $(cat "$dir/said" "$dir/log")"

# ---- what is in the way ----

# The first birth that does not fit, and the largest that live then, from the listing of all tensors.
in_the_way() { # options
    "$memtape" ledger "$@" --csv "$dir/all.csv" --quiet
    peak=$(held "$@")
    for missing in 1 3000 20000 60000; do
        short $missing plan "$@" --budget $((peak - missing))
        sed -n 's/.*does not fit: \([^ ]*\) .* born in \([a-z]*\): .*/\1 \2/p' "$dir/said" >"$dir/born"
        read -r name phase <"$dir/born"
        awk -F, -v name="$name" -v phase="$phase" '
            NR > 1 { row[NR] = $0 }
            $1 == name && $7 == phase { event = $8 }
            END {
                for (i in row) {
                    split(row[i], f, ",")
                    if (f[8] <= event && (f[9] == "" || f[9] > event)) print f[5]
                }
            }' "$dir/all.csv" | sort -rn | head -n 5 >"$dir/wanted"
        sed -n 's/^ *\([0-9]*\)  *[0-9.]*%  .*/\1/p' "$dir/said" >"$dir/listed"
        same "the five largest when $missing bytes are missing with $*" "$dir/wanted" "$dir/listed"
        held=$(sed -n 's/.*of the \([0-9]*\) bytes held then.*/\1/p' "$dir/said")
        left=$(sed -n 's/.*: \([0-9]*\) bytes, \([0-9]*\) are left/\2/p' "$dir/said")
        born=$(sed -n 's/.*: \([0-9]*\) bytes, \([0-9]*\) are left/\1/p' "$dir/said")
        block=$(((born + 63) / 64 * 64))
        [ "$left" -lt $block ] || fail "$born bytes fit into $left"
        [ $((peak - missing - left + block)) = "$held" ] || fail "held: $(cat "$dir/said")"
    done
}
in_the_way --model tiny --vocab 40 --batch 6 --sample-tokens 0
in_the_way --model tiny --vocab 40 --batch 6 --sample-tokens 0 --checkpoint full
in_the_way --model tiny --vocab 40 --batch 6 --sample-tokens 0 --attention naive --checkpoint selective
grep -q 'does not fit: .* ([0-9,]*), born' "$dir/said" || fail "no shape: $(cat "$dir/said")"

peak=$(held --model tiny --vocab 40 --batch 6 --sample-tokens 0)
short "$((peak - 200000))" plan --model tiny --vocab 40 --batch 6 --sample-tokens 0 --budget 200000
grep -q 'no saving of activations helps' "$dir/said" || fail "states alone: $(cat "$dir/said")"
[ -z "$(suggested keep)" ] || fail "keeps what cannot help: $(cat "$dir/said")"

# ---- what would help ----

# Every suggestion of several shortages, with exactly the bytes that it says. In bf16 gradients are
# stored in other bytes once the batch is split.
for case in '95 naive' '80 naive' '60 naive' '50 naive' '40 naive' '90 bf16' '70 bf16' '50 bf16'; do
    share=${case% *}
    set -- --model tiny --vocab 40 --batch 24 --dropout 0.1 --attention naive
    [ ${case#* } = naive ] || set -- --model tiny --vocab 40 --batch 24 --precision bf16
    peak=$(held "$@")
    budget=$((peak * share / 100))
    short $((peak - budget)) plan "$@" --budget $budget
    sed -n '/what would fit/,$p' "$dir/said" | grep '^    --' >"$dir/suggestions"
    [ -s "$dir/suggestions" ] || fail "no suggestion for $share %: $(cat "$dir/said")"
    while read -r line; do
        bytes=$(printf '%s' "$line" | sed 's/.*  *\([0-9]*\) bytes,.*/\1/')
        options=$(printf '%s' "$line" | sed 's/   *[0-9].*//')
        [ "$bytes" -le $budget ] || fail "more than the budget: $line"
        [ "$(held "$@" --budget $budget $options)" = "$bytes" ] || fail "another peak: $line"
    done <"$dir/suggestions"
    awk '/compute/ { if (changed) print "order"; gsub(/.*, [+]?/, ""); }
         /changes/ { changed = 1 }' "$dir/suggestions" | grep -q order &&
        fail "what changes the training does not come last: $(cat "$dir/suggestions")"
    [ ${case#* } = naive ] || grep -q -- '--micro-batch .*, rounds differently$' "$dir/suggestions" ||
        fail "no micro-batch in bf16 at $share %: $(cat "$dir/suggestions")"
done

# ---- the lesson's exercise ----

# Batch raised until the budget breaks; then the same batch made to fit, with the same losses.
budget=256MiB
model="--data $dir/text --model nano --sample-tokens 0 --steps 2"
cp "$text" "$place/text" && cp "$text" "$dir/text"
model="--data $place/text --model nano --sample-tokens 0 --steps 2"
batch=64
while "$memtape" plan $model --batch $batch --budget $budget --quiet >"$dir/log" 2>"$dir/said"; do
    batch=$((batch * 2))
done
[ $batch -gt 64 ] && [ $batch -lt 100000 ] || fail "the budget breaks at batch $batch"
missing=$(sed -n 's/.* is \([0-9]*\) bytes too few.*/\1/p' "$dir/said")
short "$missing" train $model --batch $batch --budget $budget --out "$out"
suggested keep >"$dir/keeping"
[ -s "$dir/keeping" ] || fail "nothing keeps the training: $(cat "$dir/said")"
"$memtape" train $model --batch $batch --out "$dir/plain" --quiet || fail 'the plain run'
losses "$dir/plain" >"$dir/plain.losses"
[ "$(wc -l <"$dir/plain.losses")" -eq 2 ] || fail "losses: $(cat "$dir/plain.losses")"
while read -r options; do
    rm -rf "$dir/pasted"
    "$memtape" train $model --batch $batch --budget $budget --quiet --out "$dir/pasted" \
        --json "$dir/pasted.json" $options >"$dir/log" 2>&1 || fail "$options: $(cat "$dir/log")"
    [ "$(value "$dir/pasted.json" memory.peak_bytes)" -le 268435456 ] || fail "$options holds more"
    losses "$dir/pasted" >"$dir/pasted.losses"
    same "the losses with $options" "$dir/plain.losses" "$dir/pasted.losses"
done <"$dir/keeping"

# ---- auto that cannot ----

small_peak=$(held --model tiny --vocab 40 --batch 6 --checkpoint full)
"$memtape" plan --model tiny --vocab 40 --batch 6 --checkpoint auto --budget $((small_peak / 2)) \
    >"$dir/stdout" 2>"$dir/said" && fail 'auto fits into half of full'
grep -q 'too few' "$dir/said" && grep -q 'best choice of what to recompute' "$dir/said" ||
    fail "auto: $(cat "$dir/said")"

# ---- nonsense ----

for value in '8 apples' -5 0 '' 1e40 nan 99999999999999999999; do
    "$memtape" train --model tiny --budget="$value" >"$dir/stdout" 2>"$dir/said" && fail "budget $value"
    [ "$(wc -l <"$dir/said")" -eq 1 ] && grep -q -- '--budget' "$dir/said" &&
        grep -q 'BYTES\|expected bytes' "$dir/said" || fail "budget '$value': $(cat "$dir/said")"
done
finish
