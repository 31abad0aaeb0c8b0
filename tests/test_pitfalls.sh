#!/bin/sh
# The pitfalls that only a whole program can fall into: threads, the host's memory, flags of the
# compiler, odd places, streams that close. (test_pitfalls.c has the others, and says where each is.)
. tests/cli.sh

laws="$small --layers 2 --dropout 0.1 --batch 4 --micro-batch 3 --steps 4 --eval-every 2
    --sample-tokens 0 --quiet"

log_of() { # directory, environment as NAME=value ...
    out=$1
    shift
    rm -rf "$out"
    env "$@" "$memtape" train --data "$text" $laws --out "$out" >"$dir/log" 2>&1 ||
        fail "status $?: $*: $(cat "$dir/log")"
    timeless "$out/log.jsonl" >"$out.log"
}

same_run() { # what it is; $dir/other and $dir/one
    same "$1: the log" "$dir/one.log" "$dir/other.log"
    for file in model optimizer; do
        same "$1: $file" "$dir/one/snapshot/$file.safetensors" "$dir/other/snapshot/$file.safetensors"
    done
}
log_of "$dir/one" OMP_NUM_THREADS=1
[ "$(wc -l <"$dir/one.log")" -eq 4 ] || fail 'no log of 4 steps'

# ---- threads change sums ----

for threads in 1 2 4 8; do
    for run in 1 2 3; do
        log_of "$dir/other" OMP_NUM_THREADS=$threads
        same_run "OMP_NUM_THREADS=$threads, run $run"
    done
done

# ---- oversubscription: what the environment asks of the BLAS changes neither bits nor threads ----

log_of "$dir/other" OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=4
same_run 'OPENBLAS_NUM_THREADS=4'
if [ -d /proc/self/task ]; then # products large enough for a BLAS to share them out
    OPENBLAS_NUM_THREADS=4 "$memtape" train --data "$text" $small --width 512 --context 128 \
        --batch 2 --steps 100000 --threads 1 --quiet 2>"$dir/log" &
    running=$!
    tries=0 busy=0
    # Threads with a tenth of the busiest one's time, once two seconds are used: a BLAS whose threads
    # find nothing to do spins for some of the first ticks.
    while [ $tries -lt 200 ] && [ "$busy" = 0 ]; do
        sleep 0.1
        tries=$((tries + 1))
        busy=$(cat /proc/$running/task/*/stat 2>/dev/null | sed 's/.*) //' | awk '
            { sum += t[NR] = $12 + $13; most = t[NR] > most ? t[NR] : most }
            END { for (i in t) n += t[i] * 10 > most; print sum < 200 ? 0 : n }')
    done
    kill $running
    wait $running 2>/dev/null
    [ "$busy" = 1 ] || fail "--threads 1 keeps $busy threads busy"
fi

# ---- an accumulator that nobody initialised ----

for byte in 165 255; do
    log_of "$dir/other" OMP_NUM_THREADS=1 MALLOC_PERTURB_=$byte
    same_run "MALLOC_PERTURB_=$byte"
done

# ---- the last micro-batch of a run's data, and of a step, counts as much as its targets ----

"$memtape" train --data "$text" $small --batch 4 --micro-batch 8 >"$dir/log" 2>&1 &&
    fail 'a micro-batch of 8 in a batch of 4'
"$memtape" train --data "$text" $small --batch 4 --micro-batch 0 >"$dir/log" 2>&1 &&
    fail 'a micro-batch of 0'

# ---- text beyond the position table ----

run train --data "$text" $small --steps 2 --out "$dir/sixteen" --quiet --sample-tokens 0
run generate "$dir/sixteen" --prompt 1 --sample-tokens 50 --temperature 0
"$memtape" generate "$dir/sixteen" --prompt 1 --sample-tokens 50 >"$dir/words" 2>"$dir/log" ||
    fail "50 tokens of a context of 16: $(cat "$dir/log")"
[ "$(wc -c <"$dir/words")" -ge 51 ] || fail "generated $(wc -c <"$dir/words") bytes"

# ---- flags: in the build that ships, in a host with a comma locale ----

! grep -nE 'Ofast|fast-math|finite-math|associative-math|unsafe-math' Makefile || fail 'fast math'
MAKEFLAGS=$(echo "$MAKEFLAGS" | sed 's/ *-j[0-9]*//; s/ *--jobserver-[a-z]*=[^ ]*//')
export MAKEFLAGS
build=${memtape#"$PWD"/}
build=${build%/memtape}
case $build in
build/*)
    make "$build/tests/test_pitfalls" CC="${CC:-cc}" BLAS="${BLAS:-openblas}" OMP="${OMP:-1}" \
        >"$dir/log" 2>&1 || fail "the shipped build: $(tail -n 5 "$dir/log")"
    if command -v localedef >/dev/null &&
        localedef -i de_DE -f UTF-8 "$place/de_DE.UTF-8" >/dev/null 2>&1; then
        LOCPATH=$place
        export LOCPATH
    fi
    "$build/tests/test_pitfalls" >"$dir/log" 2>&1 || fail "$build: $(cat "$dir/log")"
    [ -z "$LOCPATH" ] || ! grep -q 'SKIPPED.*locale' "$dir/log" || fail 'no comma locale'
    unset LOCPATH
    ;;
esac

# ---- paths: a checkout in a directory with a space, a quote and UTF-8 ----

case $build in
build/*) # what is made already need not be made again; one object, the library and the program are
    there="$dir/check out"
    mkdir -p "$there/build"
    cp -Rp Makefile tape nn data src examples tests memtape.pc.in "$there/"
    cp -Rp "$build" "$there/build/"
    rm "$there/$build/tape/base.o" "$there/$build/memtape"
    (cd "$there" && make "$build/memtape" CC="${CC:-cc}" BLAS="${BLAS:-openblas}" OMP="${OMP:-1}" \
        && "$build/memtape" train --data "$text" $small --steps 1 --out out --quiet) \
        >"$dir/log" 2>&1 || fail "a checkout in '$there': $(tail -n 5 "$dir/log")"
    [ "$(grep -c '^CC ' "$dir/log")" = 1 ] || fail "made again there: $(cat "$dir/log")"
    ;;
esac

# ---- streams that close, places that are full or not to be written ----

unsaid() { # how, status: one line says that the words went nowhere
    [ "$2" = 1 ] && [ "$(wc -l <"$dir/log")" -eq 1 ] && grep -q 'standard output: .' "$dir/log" ||
        fail "$1: status $2: $(cat "$dir/log")"
}
for command in 'plan --model gpt2' 'ledger --model gpt2' 'tape --model gpt2' ops \
    "sweep $small --vocab 30 --batch 1..40" --help; do
    { "$memtape" $command 2>"$dir/log"; echo $? >"$dir/status"; } | head -n 1 >"$dir/words"
    case $(cat "$dir/status") in
    0 | 141) ;; # it was done before the pipe closed, or ended by that
    *) fail "$command | head -n 1: status $(cat "$dir/status")" ;;
    esac
    [ -s "$dir/words" ] && [ ! -s "$dir/log" ] || fail "$command | head -n 1: $(cat "$dir/log")"
    "$memtape" $command >&- 2>"$dir/log"
    unsaid "$command without a standard output" $?
    [ -e /dev/full ] || continue
    "$memtape" $command >/dev/full 2>"$dir/log"
    unsaid "$command to a full device" $?
done

# What does not fit is not there: no half of a report, and of a run what was saved before.
short() { # file, arguments: a file may have 4096 bytes at most
    name=$1
    shift
    rm -f "$dir/$name"
    (trap "" XFSZ; ulimit -f 4; exec "$memtape" "$@") >"$dir/words" 2>"$dir/log"
    [ $? = 1 ] && [ "$(wc -l <"$dir/log")" -eq 1 ] || fail "half a $name: $(cat "$dir/log")"
    [ ! -e "$dir/$name" ] || fail "half a $name is left: $(ls -l "$dir/$name")"
}
short report.csv ledger --model gpt2 --quiet --csv "$dir/report.csv"
short report.json plan --model gpt2 --quiet --json "$dir/report.json"
short rows.csv sweep $small --vocab 30 --batch 1..60 --quiet --csv "$dir/rows.csv"
short plot.svg sweep $small --vocab 30 --batch 1..20 --quiet --plot "$dir/plot.svg"
short gradients train --data "$text" $small --steps 1 --quiet --save-gradients "$dir/gradients"
cp -R "$dir/one" "$dir/full"
short none train --resume "$dir/full" --steps 6 --quiet
diff -r "$dir/one/snapshot" "$dir/full/snapshot" >"$dir/log" || fail "full: $(cat "$dir/log")"
[ "$(ls -A "$dir/full" | tr '\n' ' ')" = 'config.txt log.jsonl snapshot ' ] ||
    fail "full: $(ls -A "$dir/full")"

# A file that is opened when standard error is closed must not get its number, and its words.
for closed in '2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    rm -rf "$dir/closed"
    eval '"$memtape" train --data "$text" $small --steps 2 --out "$dir/closed" '"$closed" >"$dir/log"
    [ "$(grep -c '^{.*}$' "$dir/closed/log.jsonl")" = 2 ] &&
        [ "$(wc -l <"$dir/closed/log.jsonl")" -eq 2 ] ||
        fail "$closed: the log: $(head -n 3 "$dir/closed/log.jsonl")"
    run info "$dir/closed"
done
finish
