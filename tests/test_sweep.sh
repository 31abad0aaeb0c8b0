#!/bin/sh
# A sweep is plans: every combination once, in order, each with the numbers that `plan` has for it,
# as table, CSV, JSON and plot; and what a sweep cannot do, it says in one line.
. tests/cli.sh

sweep() { # its table goes to $dir/table
    "$memtape" sweep "$@" >"$dir/table" 2>"$dir/log" || fail "status $?: sweep $*: $(cat "$dir/log")"
}

# One column of $dir/rows.csv, its values side by side.
column() {
    awk -F , -v name="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; if (!at) printf "none" }
        NR > 1 && at { printf "%s%s", (NR > 2 ? " " : ""), $at }' "$dir/rows.csv"
}

values() { # column, expected, options
    name=$1 expected=$2
    shift 2
    sweep $small --vocab 30 --quiet --csv "$dir/rows.csv" "$@"
    [ "$(column "$name")" = "$expected" ] || fail "$*: $name $(column "$name"), not $expected"
}

# ---- lists and ranges ----

values batch '1 2 4' --batch 1,2,4
values seq '4 5 6 7 8' --seq 4..8
values seq '1 3 5 7 9' --seq=1..9+2
values seq '1 4 7' --seq 1..9+3
values seq '2 4 8 16' --seq '2..16*2'
values seq '2 6' --seq '2..16*3'
values seq '8 12' --seq '8..16*1.5'
values seq '1 2 3 8 10 12 16' --seq '1..3,8..12+2,16'
values seq 8 --seq 8..8
values dropout '0 0.1 0.2 0.3' --dropout 0..0.3+0.1
values lr '0.001 0.01 0.1' --lr '1e-3..1e-1*10'
values attention 'naive tiled' --attention naive,tiled
values tie 'yes no' --tie=yes,no
values model 'tiny nano' --model tiny,nano --layers 1
values activation-budget '300kB 1MiB' --checkpoint auto --activation-budget 300kB,1MiB

# The first option varies slowest; the last one of the command line fastest.
sweep $small --vocab 30 --attention naive,tiled --batch 1,2 --seq 4,8 --quiet --csv "$dir/rows.csv"
[ "$(column attention)" = 'naive naive naive naive tiled tiled tiled tiled' ] || fail 'the slowest'
[ "$(column batch)" = '1 1 2 2 1 1 2 2' ] || fail 'the one between'
[ "$(column seq)" = '4 8 4 8 4 8 4 8' ] || fail 'the fastest'
head -n 1 "$dir/rows.csv" | grep -qx 'attention,batch,seq,weights,gradients,optimizer_state,saved_activations,activation_side,peak_bytes,forward_flops,backward_flops,recompute_flops,peak_phase,saved_ratio' ||
    fail "the CSV begins $(head -n 1 "$dir/rows.csv")"
[ ! -s "$dir/table" ] || fail '--quiet and a table'

# Options of a file hold for every row; the command line wins.
printf 'seq = 4\nbatch = 3\n' >"$dir/sweep.cfg"
sweep $small --vocab 30 --quiet --csv "$dir/rows.csv" --seq 8,16 --batch 3
values saved_activations "$(column saved_activations)" --seq 8,16 --config "$dir/sweep.cfg"

# ---- each row is a plan ----

is_a_plan() { # row of $dir/rows.csv, options of the plan
    row=$1
    shift
    "$memtape" plan $small --vocab 30 --quiet --json "$dir/plan.json" "$@" || fail "plan $*"
    flat "$dir/plan.json" | awk '
        { gsub(/"/, ""); v[$1] = $2 }
        END {
            c = "memory.categories."
            n = split("saved_activations recomputed activation_gradients workspace padding stranded", k, " ")
            for (i = 1; i <= n; i++) side += v[c k[i] ".at_peak"]
            printf "%d,%d,%d,%d,%d,%d,%d,%d,%d,%s\n", v[c "weights.peak"], v[c "gradients.peak"],
                v[c "optimizer_state.peak"], v[c "saved_activations.peak"], side,
                v["memory.peak_bytes"], v["flops.forward"], v["flops.backward"],
                v["flops.recompute"], v["memory.peak_phase"]
        }' >"$dir/expected"
    sed -n "$((row + 1))p" "$dir/rows.csv" | cut -d , -f 4-13 >"$dir/found"
    same "row $row and plan $*" "$dir/found" "$dir/expected"
}
sweep $small --vocab 30 --dropout 0.1 --checkpoint none,full --attention naive,tiled --seq 4,16 \
    --micro-batch 5 --quiet --csv "$dir/rows.csv" --json "$dir/rows.json"
row=0
for checkpoint in none full; do
    for attention in naive tiled; do
        for seq in 4 16; do
            row=$((row + 1))
            is_a_plan $row --dropout 0.1 --checkpoint $checkpoint --attention $attention \
                --seq $seq --micro-batch 5
        done
    done
done
is_json 'a sweep' "$dir/rows.json"
for key in weights gradients optimizer_state saved_activations activation_side peak_bytes \
    forward_flops backward_flops recompute_flops; do
    [ "$(flat "$dir/rows.json" | awk -v k="rows..$key" '$1 == k { printf "%s%s", s, $2; s = " " }')" = \
        "$(column $key)" ] || fail "JSON and CSV differ on $key"
done
[ "$(flat "$dir/rows.json" | awk '$1 == "rows..options.seq" { printf "%s ", $2 }')" = \
    '4 16 4 16 4 16 4 16 ' ] || fail 'options of the JSON'
flat "$dir/rows.json" | grep -q '^command "memtape sweep --layers 1 .*--seq 4,16 --micro-batch 5"$' ||
    fail "the command of the JSON: $(flat "$dir/rows.json" | head -n 1)"

# ---- the lesson ----

lesson='--layers 4 --heads 4 --width 128 --context 256 --vocab 65'
sweep $lesson --seq 64 --dropout 0.1 --batch 8,16,32,64 --csv "$dir/rows.csv"
[ "$(column saved_ratio)" = '1 2 4 8' ] || fail "batch: saved activations grow $(column saved_ratio)"
grep -q '^ *64  *140034304  *8.00 ' "$dir/table" || fail "no 8.00 in the table: $(cat "$dir/table")"
sweep $lesson --batch 16 --dropout 0.1 --attention naive,tiled --seq '32..256*2' --csv "$dir/rows.csv" \
    --plot "$dir/lesson.svg"
# 4 bytes x (16 T tokens x (4 blocks x (16 C + 2 H T + 4) + 2 C + 2 + V) + 16 losses), and without
# a T x T matrix H for the log-sum-exp instead of 2 H T.
expected=
for scores in 8 0; do
    for t in 32 64 128 256; do
        inner=$((scores > 0 ? scores * t : 4))
        expected="$expected$((4 * (16 * t * (4 * (16 * 128 + inner + 4) + 2 * 128 + 2 + 65) + 16))) "
    done
done
[ "$(column saved_activations) " = "$expected" ] ||
    fail "the lesson: $(column saved_activations), not $expected"
column saved_ratio | awk '{ exit !($1 == 1 && $4 > 13.3 && $4 < 14.7 && $5 == 1 && $8 > 7.9 && $8 <= 8) }' ||
    fail "the lesson's ratios: $(column saved_ratio)"
grep -c '<path class="mark' "$dir/lesson.svg" | grep -qx 10 || fail '8 points and 2 of the legend'
grep -q '>attention naive</text>' "$dir/lesson.svg" || fail 'no legend'
grep -q '<title>attention tiled, seq 256: 140 MB</title>' "$dir/lesson.svg" || fail 'no values'

same 'docs/sweep.svg' "$dir/lesson.svg" docs/sweep.svg
for number in $(column saved_activations); do
    grep -q "^| .* $(echo "$number" | sed -E 's/([0-9])([0-9]{3})([0-9]{3})$/\1,\2,\3/') |" docs/sweep.md ||
        fail "docs/sweep.md does not have $number"
done

# Saved activations are most when backward begins: what lives on then, and the losses.
for options in '--attention naive' '--checkpoint full --layers 3' '--checkpoint lean --segments half' \
    '--attention naive --checkpoint selective --no-tie'; do
    sweep $small --vocab 30 --batch 3 --dropout 0.1 $options --quiet --csv "$dir/rows.csv"
    "$memtape" ledger $small --vocab 30 --batch 3 --dropout 0.1 $options --quiet --csv "$dir/ledger.csv"
    kept=$(awk -F , '
        ($7 == "backward" || $7 == "recompute") && !begin { begin = $8 }
        $2 == "saved_activations" { bytes[++n] = $5; died[n] = $9 == "" ? 1e9 : $9 }
        END { for (i = 1; i <= n; i++) if (died[i] > begin) sum += bytes[i]; print sum + 4 * 3 }' \
        "$dir/ledger.csv")
    [ "$(column saved_activations)" = "$kept" ] || fail "$options: $(column saved_activations), kept $kept"
done

# ---- runs ----

sweep --data "$text" $small --batch 2,3 --checkpoint none,full --attention naive,tiled --run \
    --steps 2 --eval-every 1 --sample-tokens 5 --csv "$dir/rows.csv"
[ "$(column measured_peak_bytes)" = "$(column peak_bytes)" ] || fail 'a run is not its plan'
for name in step_seconds tokens_per_second; do
    column $name | awk '{ for (i = 1; i <= NF; i++) bad += $i <= 0; exit bad || NF != 8 }' ||
        fail "$name: $(column $name)"
done
head -n 2 "$dir/table" | grep -q 'measured peak.*tokens/s' || fail 'no measurements in the table'
sweep --data "$text" $small --batch 2,3 --checkpoint none --run --steps 2 --plot - --plot-y step_seconds
grep -q '^Time of a step by batch (seconds' "$dir/table" || fail 'no plot of the time'

# ---- budgets ----

sweep $small --vocab 30 --batch 2,4,8 --budget 250kB --csv "$dir/rows.csv"
column peak_bytes | awk '{ for (i = 1; i <= 3; i++) printf "%s%d", (i > 1 ? " " : ""), ($i > 250000 ? $i - 250000 : 0) }' \
    >"$dir/expected"
[ "$(column over_budget_bytes)" = "$(cat "$dir/expected")" ] ||
    fail "over the budget by $(column over_budget_bytes), not $(cat "$dir/expected")"
column over_budget_bytes | grep -q '^0 .*[1-9]' || fail 'a budget that does not divide'

# ---- the plot in characters ----

sweep $small --vocab 30 --batch '1..16*2' --attention naive,tiled --plot -
awk '/^Saved activations by batch/ { on = 1 } on' "$dir/table" >"$dir/plot"
[ -s "$dir/plot" ] || fail 'no plot'
LC_ALL=C.UTF-8 awk 'length($0) > 80 { print "a line of " length($0); exit }' "$dir/plot" >"$dir/bad"
[ ! -s "$dir/bad" ] || [ "$(printf é | LC_ALL=C.UTF-8 awk '{ print length($0) }')" != 1 ] ||
    fail "$(cat "$dir/bad")"
grep -q 'attention naive' "$dir/plot" && grep -q ' kB' "$dir/plot" || fail 'no legend, or no unit'
sweep $small --vocab 30 --batch 1,2
grep -q 'Saved activations by' "$dir/table" && fail 'a plot nobody asked for, in a file'
sweep $small --vocab 30 --batch 1,2 --quiet --plot -
head -n 1 "$dir/table" | grep -q '^Saved activations by batch' || fail '--quiet --plot - draws nothing'
sweep $small --vocab 30 --checkpoint none,full --plot "$dir/words.svg" --plot-y peak_bytes
grep -q '>full</text>' "$dir/words.svg" || fail 'no words on x'

# ---- what cannot be ----

refused() { # what it says, options (which may not repeat those of $small)
    said=$1
    shift
    "$memtape" sweep $small --vocab 30 "$@" >"$dir/stdout" 2>"$dir/stderr"
    status=$?
    [ $status = 1 ] && [ ! -s "$dir/stdout" ] && [ "$(wc -l <"$dir/stderr")" -eq 1 ] &&
        grep -q '^memtape sweep: ' "$dir/stderr" && grep -qF -e "$said" "$dir/stderr" ||
        fail "sweep $*: status $status, '$said' expected: $(cat "$dir/stdout" "$dir/stderr" | head -n 3)"
}
refused '--seq 2..16*1: expected a factor above 1' --seq '2..16*1'
refused '--seq 2..16*0.5: expected a factor' --seq '2..16*0.5'
refused '--seq 0..16*2: a factor needs' --seq '0..16*2'
refused '--seq 1..9+0: expected a step above 0' --seq 1..9+0
refused '--seq 1..9+-2: expected a step above 0' --seq 1..9+-2
refused '--seq 9..4: a range goes up: 9 is above 4' --seq 9..4
refused "--seq 4..x: '4..x': expected a range" --seq 4..x
refused "--seq 1..2..3: '1..2..3': expected a range" --seq=1..2..3
refused "--seq ..: '..': expected a range" --seq ..
for list in , 4, ,4 4,,8; do refused "--seq $list: a value is missing" --seq "$list"; done
refused '--seq 4,8,4: 4 is there twice' --seq 4,8,4
refused '--seq 1..65: more than 64 values' --seq 1..65
refused '--seq 1..1e300: expected numbers up to 2^53' --seq 1..1e300
refused '--dropout 0..0.3: ' --dropout 0..0.3
refused '--seq a: expected a whole number' --seq 4,a
refused '--attention flash: expected naive|tiled' --attention naive,flash
refused '--attention naive..tiled' --attention naive..tiled
refused '--model tine: expected one of' --model tiny,tine
refused '--seq 17: seq 17: expected 1 to context 16' --seq 16,17
refused '--activation-budget 1kB: ' --checkpoint auto --activation-budget 1MiB,1kB
refused '--batch has several values and is given 2 times' --batch 1,2 --batch 4
refused '--tie has several values and is given 2 times' --tie=yes,no --no-tie
refused '32 of --batch x 2 of --steps x 32 of --seed: 2048 combinations; expected at most 1024' \
    --batch 1..32 --steps 1,2 --seed 1..32
refused '/x.svg: nothing varies' --plot "$dir/x.svg"
refused '/x.svg: 9 lines along --seq are too many' --batch 1..9 --seq 4,8 --plot "$dir/x.svg"
refused '--plot-y peak: expected one of weights, ' --seq 4,8 --plot-y peak
refused '--plot-y step_seconds is measured: add --run' --seq 4,8 --plot-y step_seconds
refused '--plot-y over_budget_bytes: there is no budget' --seq 4,8 --plot-y over_budget_bytes
refused 'cannot share standard output' --seq 4,8 --plot - --csv -
refused '--quiet yes,no: expected yes or no' --quiet=yes,no
refused '--plot-y a,b: expected one of' --seq 4,8 --plot-y a,b
refused '--sed' --sed 1,2
refused '--batch 64: ' --batch 2,64 --budget 250kB --steps 1 --data "$text" --run
[ ! -e "$dir/x.svg" ] || fail 'x.svg was left behind'

# Other commands take one value.
for command in train plan ledger tape; do
    "$memtape" $command --batch 8,16 >"$dir/stdout" 2>"$dir/stderr"
    [ $? = 1 ] && grep -q "^memtape $command: --batch 8,16: expected a whole number.*memtape sweep" \
        "$dir/stderr" || fail "$command --batch 8,16: $(cat "$dir/stderr")"
done
"$memtape" plan --attention naive,tiled 2>&1 | grep -q 'expected naive|tiled.*memtape sweep' ||
    fail 'plan --attention naive,tiled'
finish
