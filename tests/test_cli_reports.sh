#!/bin/sh
# The reports are one story: the ledger's rows make the plan's peak, the tape's nodes keep what the
# ledger has kept, ops lists every op, and neither text nor loss depends on what it must not.
. tests/cli.sh

# ---- the ledger's rows add up to the plan's peak ----

# The peak of a CSV: each category's bytes when the most was held, padding among them, and the sum.
peak_of() {
    awk -F , 'NR > 1 {
        print $8, $2, $5, int(($5 + 63) / 64) * 64 - $5
        if ($9 != "") print $9, $2, -$5, -(int(($5 + 63) / 64) * 64 - $5)
    }' "$1" | sort -n | awk '
        { now[$2] += $3; now["padding"] += $4; total += $3 + $4 }
        total > peak { peak = total; for (c in now) at[c] = now[c] }
        END {
            for (c in at) if (at[c] > 0) print c, at[c]
            print "total", peak
        }' | sort
}

rows_make_the_plan() {
    "$memtape" ledger --data "$text" $small --quiet --csv "$dir/rows.csv" "$@" &&
        "$memtape" plan --data "$text" $small --quiet --json "$dir/plan.json" "$@" ||
        fail "ledger or plan failed with $*"
    head -n 1 "$dir/rows.csv" | grep -qx 'name,category,dtype,shape,bytes,op,phase,born,died' ||
        fail "the CSV begins $(head -n 1 "$dir/rows.csv")"
    awk -F , 'BEGIN { last = -1 } NR > 1 {
        if (NF != 9) print "not 9 fields: " $0
        if ($9 != "" && $9 + 0 <= $8 + 0) print "died before it was born: " $0
        if ($8 + 0 <= last) print "not in tape order: " $0
        last = $8 + 0
        if ($3 != "u8" && $2 != "bookkeeping") {
            n = split($4, dim, "x"); count = $3 == "f64" ? 8 : $3 == "bf16" ? 2 : 4
            for (i = 1; i <= n; i++) count *= dim[i]
            if (count != $5) print "shape and bytes differ: " $0
        }
    }' "$dir/rows.csv" >"$dir/bad"
    [ ! -s "$dir/bad" ] || fail "rows with $*: $(head -n 3 "$dir/bad")"
    peak_of "$dir/rows.csv" >"$dir/rows.peak"
    flat "$dir/plan.json" | awk '
        $1 == "memory.peak_bytes" { total = $2 }
        /^memory.categories.*at_peak/ && $2 > 0 {
            split($1, part, ".")
            if (part[3] == "stranded") stranded = $2
            else if (part[3] != "outside") print part[3], $2
        }
        END { print "total", total - stranded }' | sort >"$dir/plan.peak"
    [ "$(value "$dir/plan.json" memory.categories.stranded.at_peak)" = 0 ] ||
        fail "stranded at the peak with $*: this test cannot see that"
    diff "$dir/rows.peak" "$dir/plan.peak" >"$dir/diff" ||
        fail "$*: the rows' peak (<) and the plan's (>): $(cat "$dir/diff")"
}
rows_make_the_plan
rows_make_the_plan --dropout 0.1 --eval-every 1
rows_make_the_plan --checkpoint full --layers 3
rows_make_the_plan --attention naive --layers 2 --micro-batch 5
rows_make_the_plan --no-tie --no-bias --optimizer sgd --sample-tokens 0
rows_make_the_plan --precision bf16 --loss chunked --optimizer adafactor --micro-batch 5
rows_make_the_plan --grad-precision bf16 --freeze 'h.*' --optimizer lion
rows_make_the_plan --model gpt2 --layers 4 --heads 12 --width 768 --context 1024 --seq 256 --batch 2

# ---- and are told in three ways ----

"$memtape" ledger --data "$text" $small --csv "$dir/rows.csv" --json "$dir/rows.json" >"$dir/table"
rows=$(($(wc -l <"$dir/rows.csv") - 1))
is_json 'the ledger' "$dir/rows.json"
[ "$(grep -c '"born":' "$dir/rows.json")" = "$rows" ] || fail "not $rows tensors in the JSON"
[ "$(grep -c '"died": null' "$dir/rows.json")" = "$(grep -c ',$' "$dir/rows.csv")" ] ||
    fail 'JSON and CSV differ on what lives to the end'
[ "$(value "$dir/rows.json" total.tensors)" = "$rows" ] || fail 'the total of the JSON'
[ "$(wc -l <"$dir/table")" -eq $((rows + 3)) ] || fail "a table of $(wc -l <"$dir/table") lines"
tail -n 1 "$dir/table" | grep -q "^total: $rows tensors" ||
    fail "no total: $(tail -n 1 "$dir/table")"
grep -q 'eval\|generate' "$dir/rows.csv" && fail 'rows that are not of the step'

"$memtape" ledger --data "$text" $small --sort bytes --top 7 --quiet --csv - >"$dir/top.csv"
[ "$(wc -l <"$dir/top.csv")" -eq 8 ] || fail "--top 7 gives $(wc -l <"$dir/top.csv") lines"
sed 1d "$dir/rows.csv" | sort -t , -k 5,5nr -k 8,8n | head -n 7 >"$dir/sorted"
sed 1d "$dir/top.csv" >"$dir/top"
same '--sort bytes --top 7' "$dir/top" "$dir/sorted"
for options in '--model gpt2' '--model gpt2-xl --attention naive --batch 1024'; do
    "$memtape" ledger $options >"$dir/table" || fail "ledger $options"
    awk -v options="$options" 'length($0) > 120 { print options ": a line of " length($0); exit }' \
        "$dir/table" >"$dir/bad"
    [ ! -s "$dir/bad" ] || fail "$(cat "$dir/bad")"
done

# ---- ops ----

"$memtape" ops --json "$dir/ops.json" >"$dir/table"
is_json 'ops' "$dir/ops.json"
count=0
for file in tape/ops/op_*.c; do
    name=${file##*/op_}
    name=${name%.c}
    count=$((count + 1))
    grep -q "^$name  *[a-z].* = " "$dir/table" || fail "ops does not list $name with its formula"
    grep -q "\"name\": \"$name\"" "$dir/ops.json" || fail "the JSON of ops does not list $name"
done
[ "$(grep -c '^ *keeps ' "$dir/table")" = $count ] || fail "not $count reasons in the table of ops"
[ "$(grep -c '"keeps": "[a-z]' "$dir/ops.json")" = $count ] || fail "not $count ops in the JSON"
tail -n 1 "$dir/table" | grep -q "^$count ops" || fail "ops ends: $(tail -n 1 "$dir/table")"

# ---- the tape ----

# Of each layer two norms, four linears, attention, gelu and two sums; around them the embedding,
# and a norm, a linear and the loss.
for layers in 1 3; do
    nodes=$((4 + 10 * layers))
    "$memtape" tape --data "$text" $small --layers $layers --json "$dir/tape.json" >"$dir/table"
    is_json 'the tape' "$dir/tape.json"
    [ "$(value "$dir/tape.json" node_count)" = $nodes ] || fail "not $nodes nodes"
    [ "$(grep -c '"formula":' "$dir/tape.json")" = $nodes ] || fail "not $nodes nodes in the JSON"
    [ "$(grep -c '^ *[0-9]*  [a-z].*: .* = ' "$dir/table")" = $nodes ] ||
        fail "not $nodes in the table"
    tail -n 1 "$dir/table" | grep -q "^$nodes nodes, $layers segments" ||
        fail "the tape ends: $(tail -n 1 "$dir/table")"
done
grep -q 'in .*h.0.attn.c_attn.weight' "$dir/table" || fail 'inputs without the names of parameters'
grep -q 'in the buffer of head.lm_head' "$dir/table" || fail 'the loss takes the logits over'
grep -q 'parameter *in1 = wte.weight' "$dir/table" || fail 'backward of the head reads the table'

# What the nodes keep is what the ledger has kept when backward begins (the loss itself aside).
keeps_agree() {
    "$memtape" tape --data "$text" $small --quiet --json "$dir/tape.json" "$@" &&
        "$memtape" ledger --data "$text" $small --quiet --csv "$dir/rows.csv" "$@" ||
        fail "tape or ledger failed with $*"
    awk -F '"' '
        $2 == "role" { kept = 1 }
        kept && $2 == "name" { name = $4 }
        kept && $2 == "bytes" { bytes = $3; gsub(/[^0-9]/, "", bytes) }
        kept && $2 == "fate" { if ($4 == "kept") print name, bytes; kept = 0 }' "$dir/tape.json" |
        sort -u >"$dir/kept.tape"
    awk -F , '
        $7 == "backward" && !begin { begin = $8 }
        $2 == "saved_activations" { row[++n] = $1 " " $5; died[n] = $9 }
        END {
            for (i = 1; i <= n; i++)
                if (died[i] > begin && row[i] !~ /^head.cross_entropy [0-9]/) print row[i]
        }' "$dir/rows.csv" | sort -u >"$dir/kept.ledger"
    [ -s "$dir/kept.tape" ] || fail "nothing kept with $*"
    diff "$dir/kept.tape" "$dir/kept.ledger" >"$dir/diff" ||
        fail "$*: kept by the tape (<), by the ledger (>): $(cat "$dir/diff")"
}
keeps_agree --layers 2
keeps_agree --layers 2 --dropout 0.1
keeps_agree --layers 2 --dropout 0.1 --attention naive
keeps_agree --layers 3 --checkpoint full
"$memtape" tape --data "$text" $small --checkpoint full >"$dir/table"
grep -q 'recomputed in0 = h.0.mlp.gelu' "$dir/table" || fail 'checkpoint full recomputes nothing'
grep -q 'kept *in0 = embedding' "$dir/table" || fail "a segment's input is not kept"

# ---- a snapshot ----

out="$dir/run"
run train --data "$text" $small --steps 30 --lr 0.01 --out "$out" --quiet
"$memtape" info "$out" --json "$dir/info.json" >"$dir/table"
is_json 'info' "$dir/info.json"
[ "$(value "$dir/info.json" step)" = 30 ] || fail "info: step $(value "$dir/info.json" step)"
[ "$(value "$dir/info.json" tokenizer.vocab)" = 22 ] || fail 'info: vocabulary'
[ "$(value "$dir/info.json" model.params)" = 3920 ] || fail 'info: parameters'
for file in model optimizer; do
    bytes=$(($(wc -c <"$out/snapshot/$file.safetensors")))
    grep -q "$file.safetensors  *$bytes bytes, [1-9]" "$dir/table" || fail "info: bytes of $file"
    grep -q "\"bytes\": $bytes," "$dir/info.json" || fail "info --json: bytes of $file"
done
grep -q 'adamw' "$dir/table" || fail 'info: optimizer'
mv "$out/snapshot" "$out/snapshot.memtape-old" # as a writer that was killed leaves it
"$memtape" info "$out" >"$dir/aside" || fail 'info: not of what was moved aside'
same 'info: what was moved aside' "$dir/table" "$dir/aside"
mv "$out/snapshot.memtape-old" "$out/snapshot"

# ---- text ----

write() { # file, options
    file=$1
    shift
    "$memtape" generate "$out" --prompt 'cats ' --sample-tokens 60 "$@" \
        >"$dir/$file" 2>"$dir/log" ||
        fail "generate $*: $(cat "$dir/log")"
}
write first --seed 5
write again --seed 5 --threads 1 --quiet
same 'the same seed' "$dir/first" "$dir/again"
[ ! -s "$dir/log" ] || fail 'generate --quiet says something'
write other --seed 6
cmp -s "$dir/first" "$dir/other" && fail 'another seed writes the same text'
write greedy --temperature 0 --seed 1
write greedy2 --temperature 0 --seed 2
same 'temperature 0, whatever the seed' "$dir/greedy" "$dir/greedy2"
write greedy3 --top-k 1 --seed 3
same 'the likeliest one' "$dir/greedy" "$dir/greedy3"
head -c 5 "$dir/first" | grep -q '^cats $' || fail 'the text does not begin with the prompt'
[ "$(wc -c <"$dir/first")" -eq 66 ] ||
    fail "5 + 60 characters and a line break: $(wc -c <"$dir/first")"
write json --seed 5 --json "$dir/text.json"
same 'text beside JSON' "$dir/first" "$dir/json"
is_json 'generate' "$dir/text.json"
awk '{ printf "%s%s", (NR > 1 ? "\\u000a" : ""), $0 }' "$dir/first" >"$dir/flat"
grep -qF "\"text\": \"$(cat "$dir/flat")\"" "$dir/text.json" || fail 'the JSON has another text'
[ "$(value "$dir/text.json" tokens)" = 60 ] || fail 'tokens of the JSON'
value "$dir/text.json" memory.phases.generate | grep -q '^[1-9]' || fail 'no memory of generate'
run train --data "$text" $small --tokenizer byte --steps 1 --out "$dir/bytes" --quiet
"$memtape" generate "$dir/bytes" --prompt 'ü' --json "$dir/text.json" >/dev/null 2>&1
is_json 'bytes that are no text' "$dir/text.json"

# ---- loss ----

evaluate() { # file, options
    file=$1
    shift
    "$memtape" eval "$out" --data "$text" --quiet --json "$dir/$file" "$@" >"$dir/log" ||
        fail "eval $*: $(cat "$dir/log")"
    grep -q '^validation loss [0-9.]* over [0-9]* targets$' "$dir/log" ||
        fail "eval: $(cat "$dir/log")"
}
evaluate loss
is_json 'eval' "$dir/loss"
for change in '--micro-batch 1' '--micro-batch 5' '--micro-batch 100' '--threads 1' \
    '--threads 3'; do
    evaluate changed $change
    for key in val_loss targets; do
        [ "$(value "$dir/changed" $key)" = "$(value "$dir/loss" $key)" ] ||
            fail "$change: $key $(value "$dir/changed" $key), not $(value "$dir/loss" $key)"
    done
done
all=$(($(wc -c <"$text")))
[ "$(value "$dir/loss" targets)" = $((all - all * 9 / 10 - 1)) ] || fail 'not the whole split'
run train --data "$text" --resume "$out" --steps 31 --eval-every 1 --eval-batches 0 \
    --out "$dir/more" --json "$dir/train.json" --quiet
out="$dir/more"
evaluate loss
[ "$(value "$dir/train.json" val_loss)" = "$(value "$dir/loss" val_loss)" ] ||
    fail 'train and eval differ'

# ---- help ----

for command in train plan sweep generate eval ledger tape ops info bench; do
    "$memtape" $command --help >"$dir/help" 2>&1 || fail "$command --help: status $?"
    grep -q "^usage: memtape $command" "$dir/help" && grep -q -e '--json' "$dir/help" ||
        fail "$command --help: $(head -n 2 "$dir/help")"
    "$memtape" --help | grep -q "^  $command " || fail "--help does not list $command"
done
# ---- how things are stored is said where not all is f32 ----

stored() { # the words, options of plan
    words=$1
    shift
    "$memtape" plan $small --vocab 40 "$@" >"$dir/log" 2>&1 || fail "plan $*: $(cat "$dir/log")"
    [ "$(grep '^stored: ' "$dir/log")" = "$words" ] || fail "$*: $(grep '^stored: ' "$dir/log")"
}
masters='stored: weights bf16 with f32 masters,'
stored '' --optimizer adafactor --lora 2
stored "$masters gradients bf16, activations bf16" --precision bf16
stored "$masters gradients f32 (over several micro-batches bf16 would stall), activations bf16" \
    --precision bf16 --micro-batch 5
stored "$masters gradients f32, activations f32" \
    --precision bf16 --micro-batch 5 --grad-precision f32 --activation-precision f32
stored 'stored: weights f32, gradients bf16, activations f32' --grad-precision bf16
stored 'stored: weights bf16, activations bf16' --precision bf16 --generate 3
run train --data "$text" $small --precision bf16 --steps 1 --out "$dir/half" --quiet
run info "$dir/half" --json "$dir/info.json"
grep -q ' parameters in bf16; 1 layers' "$dir/log" || fail "info: $(cat "$dir/log")"
[ "$(value "$dir/info.json" model.precision)" = '"bf16"' ] || fail 'no precision as JSON'

finish
