#!/bin/sh
# A run that stopped, however it stopped, goes on to the same log and the same files as one that
# did not.
. tests/cli.sh

options="$small --dropout 0.1 --batch 4 --micro-batch 3 --sample-tokens 0 --quiet"

random() { # seconds, as 0.xx: fewer than $1 hundredths, at most 100
    od -An -N2 -tu2 /dev/urandom | awk -v below="$1" '{ printf "0.%02d\n", $1 % below }'
}

equal_runs() { # what happened, directory, reference
    timeless "$2/log.jsonl" >"$dir/a"
    timeless "$3/log.jsonl" >"$dir/b"
    same "$1: the log" "$dir/a" "$dir/b"
    for file in model optimizer; do
        same "$1: $file" "$2/snapshot/$file.safetensors" "$3/snapshot/$file.safetensors"
    done
    [ "$(ls -A "$2" | tr '\n' ' ')" = 'config.txt log.jsonl snapshot ' ] ||
        fail "$1 left: $(ls -A "$2")"
}

# ---- 10 steps = 4 + save + new process + 6, in the middle of an epoch and at its end ----

# 300 characters, 270 of them train: 16 windows of 16, an epoch of 4 batches.
head -c 300 "$text" >"$dir/epoch"
for order in random sequential; do
    whole="$dir/whole $order"
    run train --data "$dir/epoch" $options --sample $order --steps 10 --eval-every 2 --out "$whole"
    [ "$(wc -l <"$whole/log.jsonl")" -eq 10 ] || fail "$order: no log of 10 steps"
    for stop in 4 6; do
        part="$dir/part $order $stop"
        run train --data "$dir/epoch" $options --sample $order --steps $stop --decay-steps 10 \
            --eval-every 2 --out "$part"
        run train --resume "$part" --steps 10 --quiet
        equal_runs "$order, stopped after $stop" "$part" "$whole"
    done
done

# Elsewhere: the run that is resumed stays as it is.
cp -R "$dir/part random 4" "$dir/before"
run train --resume "$dir/part random 4" --steps 12 --out "$dir/elsewhere" --quiet
diff -r "$dir/part random 4" "$dir/before" >"$dir/log" ||
    fail "--out does not spare the resumed run: $(cat "$dir/log")"
[ "$(wc -l <"$dir/elsewhere/log.jsonl")" -eq 2 ] || fail 'the log elsewhere is not of 2 steps'

# A resumed run that is done says so by doing nothing.
run train --resume "$whole" --quiet
[ "$(wc -l <"$whole/log.jsonl")" -eq 10 ] || fail 'a run that was done went on'

# Options that plain lines cannot hold come back.
prompt='sat # "on"
 '
printf '%s\n' 'cats # "sat" on mats' 'cats # "sat" on mats' >"$dir/marks #2.txt"
run train --data "$dir/marks #2.txt" $options --steps 2 --prompt "$prompt" --out "$dir/marks"
run train --resume "$dir/marks" --steps 3 --quiet

# ---- Ctrl-C at any moment ----

steps=1500
reference="$dir/reference"
run train --data "$text" $options --steps $steps --out "$reference"

stop_at_random() { # signal, hundredths of a second, then how to train
    signal=$1 below=$2
    shift 2
    wait=$(random $below)
    "$memtape" train "$@" >"$dir/log" 2>&1 &
    running=$!
    sleep "$wait"
    kill -"$signal" $running 2>/dev/null
    wait $running 2>/dev/null # the shell has words for what was killed
    status=$?
}

interrupted=0 round=0
while [ $round -lt 4 ] || { [ $interrupted = 0 ] && [ $round -lt 20 ]; }; do
    round=$((round + 1))
    part="$dir/interrupted $round"
    stop_at_random INT 40 --data "$text" $options --steps $steps --out "$part"
    for again in 1 2; do
        [ -e "$part/snapshot" ] || break
        [ $status = 0 ] || {
            interrupted=$((interrupted + 1))
            [ $status = 130 ] || fail "stopped by Ctrl-C after $wait s: status $status"
            grep -q '^memtape train: stopped after step [0-9]*; go on with --resume' "$dir/log" ||
                fail "stopped after $wait s: $(cat "$dir/log")"
        }
        stop_at_random INT 20 --resume "$part" --quiet
    done
    if [ -e "$part/snapshot" ]; then
        run train --resume "$part" --quiet
    else
        run train --data "$text" $options --steps $steps --out "$part"
    fi
    equal_runs "round $round, interrupted after $wait s" "$part" "$reference"
done
[ $interrupted -gt 0 ] || fail 'no run was interrupted'

# ---- kill -9 at any moment, saving all the time ----

part="$dir/killed"
killed=0 saved=
for round in 1 2 3 4 5 6 7 8 9 10; do
    if [ -n "$saved" ]; then
        stop_at_random KILL 30 --resume "$part" --save-every 1 --steps $steps --quiet
    else
        stop_at_random KILL 30 --data "$text" $options --save-every 1 --steps $steps --out "$part"
    fi
    [ $status = 137 ] && killed=$((killed + 1))
    [ ! -e "$part/snapshot" ] || saved=yes # and from then on there always is one
    [ -n "$saved" ] || continue
    run info "$part"
    "$memtape" generate "$part" --sample-tokens 1 >/dev/null 2>"$dir/log" ||
        fail "killed after $wait s, round $round: $(cat "$dir/log")"
done
[ $killed -gt 0 ] || fail 'no run was killed'
[ -n "$saved" ] || fail 'killed runs left no snapshot at all'
run train --resume "$part" --save-every 0 --steps $steps --quiet
rm -rf "$part/snapshot.memtape-tmp" # may be left behind by a kill that comes after the exchange
equal_runs "killed $killed times" "$part" "$reference"
finish
