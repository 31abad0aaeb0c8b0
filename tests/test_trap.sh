#!/bin/sh
# --trap-nan ends a run where the first NaN or infinity is made, says by which op and from what,
# leaves whole files behind, and changes no bit of a healthy run.
. tests/cli.sh

# Ends with status 1 and one message; its words go to $dir/log.
stops() {
    "$memtape" "$@" >"$dir/stdout" 2>"$dir/log"
    status=$?
    [ $status = 1 ] || fail "status $status, expected 1: memtape $*: $(cat "$dir/log")"
    [ "$(grep -c '^memtape ' "$dir/log")" = 1 ] || fail "not one message: $(cat "$dir/log")"
}
says() {
    grep -qE "$1" "$dir/log" || fail "expected /$1/ in: $(cat "$dir/log")"
}

# ---- an absurd learning rate ----

wild="$small --optimizer sgd --clip 0 --lr 1e6 --steps 50 --quiet"
stops train --data "$text" $wild --out "$dir/run" --save-every 1 --trap-nan
says '^memtape train: step [0-9]+: [a-z_]+ made (a NaN|an infinity) in (forward|backward): [a-z0-9_.]+\[[0-9,]+\] is -?(nan|inf), the first of [0-9]+ among [0-9]+'
says '^  node [0-9]+, [a-z0-9_.]+, asked for at nn/[a-z]+\.c:[0-9]+: [a-z]+.* = '
says '^  in\[0\] [a-z0-9_.]+ f32\[[0-9,]+\] from -?[0-9]'
at=$(sed -n 's/^memtape train: step \([0-9]*\):.*/\1/p' "$dir/log")
[ "$(wc -l <"$dir/run/log.jsonl")" -eq $((${at:-0} - 1)) ] ||
    fail "stopped in step $at with $(wc -l <"$dir/run/log.jsonl") lines of log"
[ "$(ls -A "$dir/run" | tr '\n' ' ')" = 'config.txt log.jsonl snapshot ' ] ||
    fail "left: $(ls -A "$dir/run")"
run info "$dir/run/snapshot"
grep -q trap "$dir/run/config.txt" && fail 'who resumes is trapped unasked'

# The same words whatever the threads; other ops where attention is written out.
for threads in 1 3; do
    stops train --data "$text" $wild --trap-nan --threads $threads
    cp "$dir/log" "$dir/words.$threads"
done
same 'the message with 3 threads' "$dir/words.1" "$dir/words.3"
stops train --data "$text" $wild --trap-nan --attention naive --checkpoint full --dropout 0.1
says ' made (a NaN|an infinity) in '

# ---- the example of docs/nan.md, but for what another BLAS or an edit of nn/ may move ----

if [ "$("$memtape" --version | grep -c f32)" = 1 ]; then
    blurred() {
        sed -E 's/from -?[0-9.e+]+ to -?[0-9.e+]+/from LOW to HIGH/; s/(\.c):[0-9]+:/\1:LINE:/' "$1"
    }
    example=$(sed -n 's/^\.\/memtape \(train .*--trap-nan\)$/\1/p' docs/nan.md)
    stops $example
    awk '/^```$/ { inside = !inside && seen++ > 0; next } inside' docs/nan.md >"$dir/documented"
    blurred "$dir/documented" >"$dir/expected"
    blurred "$dir/log" >"$dir/printed"
    grep -q 'from LOW' "$dir/expected" || fail 'docs/nan.md has no example'
    diff "$dir/expected" "$dir/printed" >"$dir/differ" ||
        fail "docs/nan.md (<) and the program (>): $(cat "$dir/differ")"
fi

# ---- what no op makes ----

# The last element of wpe.weight, that of position 15, becomes what printf makes of four bytes.
run train --data "$text" $small --steps 1 --quiet --out "$dir/healthy"
plant() { # bytes
    rm -rf "$dir/ill"
    cp -R "$dir/healthy/snapshot" "$dir/ill"
    printf "$1" | dd of="$dir/ill/model.safetensors" bs=1 conv=notrunc \
        seek=$(($(wc -c <"$dir/ill/model.safetensors") - after_wpe - 4)) 2>/dev/null
}
after_wpe=$(((16 * (1 + 1 + 48 + 16 + 1 + 1 + 1 + 64 + 64 + 1 + 1 + 1) + 48 + 64) * 4))

plant '\000\000\300\177' # NaN
stops train --data "$text" --init "$dir/ill" --steps 1 --quiet --trap-nan
says '^memtape train: wpe.weight\[15,15\] is nan before the first op \(1 of 256 are not finite\)$'
stops eval "$dir/ill" --data "$text" --quiet --trap-nan
says '^memtape eval: wpe.weight\[15,15\] is nan before the first op \(1 of 256 are not finite\)$'

plant '\312\362\111\161' # 1e30: nobody reads position 15 here, and decay takes it past all numbers
stops train --data "$text" --init "$dir/ill" --steps 3 --seq 15 --lr 1e6 --weight-decay 1e6 \
    --quiet --trap-nan
says '^memtape train: wpe.weight\[15,15\] is -inf after the update of step 1 \(1 of 256 are not finite\)$'

# ---- a healthy run ----

for options in '' '--attention naive --checkpoint full --dropout 0.1 --micro-batch 5' \
    '--checkpoint selective --no-tie --tokenizer byte --optimizer sgd --threads 2' \
    '--lora 2 --micro-batch 5' '--precision bf16 --no-tie --freeze wpe.*'; do
    for trap in '' --trap-nan; do
        run train --data "$text" $small --steps 4 --eval-every 2 $options --quiet $trap \
            --out "$dir/out$trap" --json "$dir/report$trap.json"
        timeless "$dir/out$trap/log.jsonl" >"$dir/log$trap.jsonl"
        flat "$dir/report$trap.json" | grep '^memory\.' | grep -v outside >"$dir/bytes$trap"
    done
    same "the log with $options" "$dir/log.jsonl" "$dir/log--trap-nan.jsonl"
    same "the ledger with $options" "$dir/bytes" "$dir/bytes--trap-nan"
    same "the weights with $options" "$dir/out/snapshot/model.safetensors" \
        "$dir/out--trap-nan/snapshot/model.safetensors"
    rm -rf "$dir/out" "$dir/out--trap-nan"
done
run eval "$dir/healthy/snapshot" --data "$text" --trap-nan
grep -q 'validation loss' "$dir/log" || fail "eval: $(cat "$dir/log")"

# The builds that the tests use, whose dead blocks hold NaN, see none either.
for program in ${MEMTAPE_F64:-} ${MEMTAPE_DEBUG:-}; do
    "$program" train --data "$text" $small --batch 3 --micro-batch 2 --steps 2 --dropout 0.1 \
        --eval-every 1 --sample-tokens 3 --checkpoint full --quiet --trap-nan >"$dir/log" 2>&1 ||
        fail "$program: $(cat "$dir/log")"
done

finish
