#!/bin/sh
# The build for the debugger trains what the release trains: at one thread, losses within 1e-5 of
# each other whatever recomputes, drops and accumulates, and the same ledger and plan to the byte.
. tests/cli.sh

debug=${MEMTAPE_DEBUG:-}
[ -x "$debug" ] || { echo 'MEMTAPE_DEBUG is not there: make debug'; exit 77; }

# ---- what it is made of ----

case $debug in
*/debug/* | */debug-serial/*)
    "$debug" --version >"$dir/version"
    grep -q 'loops' "$dir/version" || fail "not the plain loops: $(cat "$dir/version")"
    ;;
esac

# ---- losses ----

losses() { # name of the log, program, options
    log=$1
    shift
    "$@" --data "$text" --quiet --threads 1 --out "$dir/$log" >"$dir/log" 2>&1 ||
        fail "status $?: $*: $(cat "$dir/log")"
    sed -n 's/.*"loss": \([0-9.e+-]*\).*"gradient_norm": \([0-9.e+-]*\).*/\1 \2/p' \
        "$dir/$log/log.jsonl" >"$dir/$log.losses"
    rm -rf "$dir/$log"
}
steps=6
agree() { # options
    losses release "$memtape" train --steps $steps "$@"
    losses debug "$debug" train --steps $steps "$@"
    paste -d ' ' "$dir/release.losses" "$dir/debug.losses" | awk -v steps=$steps '
        function off(a, b) { return (a > b ? a - b : b - a) > 1e-5 * a }
        off($1, $3) { print "step " NR ": a loss of " $3 ", release has " $1 }
        off($2, $4) { print "step " NR ": a gradient norm of " $4 ", release has " $2 }
        $1 < 0.5 || $1 > 9 { print "step " NR ": " $1 " is no loss of a model that learns" }
        END { if (NR != steps) print NR " steps, expected " steps }' >"$dir/differ"
    [ ! -s "$dir/differ" ] || fail "$*: $(cat "$dir/differ")"
}
agree $small --layers 2 --dropout 0.1 --batch 5 --micro-batch 2 --checkpoint full
agree $small --layers 2 --dropout 0.1 --batch 5 --micro-batch 3 --attention naive \
    --checkpoint selective --segments half
agree $small --batch 4 --no-tie --no-bias --optimizer sgd --lr 0.1

# ---- bytes ----

same_bytes() { # options
    for program in "$memtape" "$debug"; do
        name=$([ "$program" = "$debug" ] && echo debug || echo release)
        "$program" ledger --data "$text" --threads 1 --quiet --csv "$dir/$name.csv" \
            --json "$dir/$name.json" "$@" >"$dir/log" 2>&1 &&
            "$program" plan --data "$text" --threads 1 --quiet --json "$dir/$name.plan" "$@" \
                >"$dir/log" 2>&1 || fail "status $?: $program: $(cat "$dir/log")"
        flat "$dir/$name.json" | grep -v outside >"$dir/$name.rows"
        flat "$dir/$name.plan" | grep '^memory\|^flops\|^model' | grep -v outside >"$dir/$name.bytes"
    done
    grep -q ',' "$dir/release.csv" && grep -q peak_bytes "$dir/release.bytes" ||
        fail "nothing to compare with $*"
    same "the ledger with $*" "$dir/release.csv" "$dir/debug.csv"
    same "the ledger's report with $*" "$dir/release.rows" "$dir/debug.rows"
    same "the plan with $*" "$dir/release.bytes" "$dir/debug.bytes"
}
same_bytes --model tiny
same_bytes $small --layers 2 --dropout 0.1 --batch 5 --micro-batch 2 --checkpoint full
same_bytes $small --batch 3 --attention naive --checkpoint lean --optimizer sgd
same_bytes $small --batch 3 --precision bf16 --activation-precision bf16 --dropout 0.1

# A run ends with what was planned: the bytes that its own table says.
for program in "$memtape" "$debug"; do
    name=$([ "$program" = "$debug" ] && echo debug || echo release)
    "$program" train --data "$text" $small --steps 2 --threads 1 --quiet --json "$dir/$name.json" \
        >"$dir/log" 2>&1 || fail "$program: $(cat "$dir/log")"
    flat "$dir/$name.json" | grep '^memory\|^flops' | grep -v outside >"$dir/$name.bytes"
done
same 'what a run held' "$dir/release.bytes" "$dir/debug.bytes"

finish
