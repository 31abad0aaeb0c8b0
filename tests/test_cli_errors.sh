#!/bin/sh
# Bad input is refused: status 1, nothing on standard output, one line on standard error that names
# the value and what was expected, and no file left behind.
. tests/cli.sh

out="$dir/out"

# refused 'said' 'and said' -- arguments
refused() {
    : >"$dir/wanted"
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >>"$dir/wanted"
        shift
    done
    shift
    "$memtape" "$@" >"$dir/stdout" 2>"$dir/stderr"
    status=$?
    [ $status = 1 ] || fail "status $status, not 1: memtape $*"
    [ ! -s "$dir/stdout" ] || fail "words on standard output: memtape $*"
    [ "$(wc -l <"$dir/stderr")" -eq 1 ] ||
        fail "$(wc -l <"$dir/stderr") lines, not 1: memtape $*: $(head -n 3 "$dir/stderr")"
    grep -q "^memtape $1: ." "$dir/stderr" || fail "no name: memtape $*: $(cat "$dir/stderr")"
    while IFS= read -r wanted; do
        grep -qF -e "$wanted" "$dir/stderr" ||
            fail "memtape $* does not say '$wanted': $(cat "$dir/stderr")"
    done <"$dir/wanted"
    [ ! -e "$out" ] || { fail "left something behind: memtape $*: $(ls "$out")"; rm -rf "$out"; }
}

train() { # 'said' -- options
    for argument; do
        shift
        set -- "$@" "$argument"
        [ "$argument" != -- ] || set -- "$@" train --data "$text" $small --steps 2 --out "$out"
    done
    refused "$@"
}

# ---- the command line ----

refused 'no such command' -- trian
refused '--step' 'did you mean --steps' -- train --step 5
refused '--micro-bach' 'did you mean --micro-batch' -- train --micro-bach=3
refused '--frobnicate' '--help' -- train --frobnicate 5
refused '--no-steps' -- train --no-steps
refused '--steps' 'a value' -- train --steps
refused 'word' 'unexpected' -- train word
refused 'DIR' -- generate
refused 'DIR' -- eval
refused 'DIR' -- info
refused '--top' -- train --top 5
refused '--tie maybe' 'yes or no' -- train --tie=maybe
refused '--out' 'empty' -- train --out ''
refused '--model nonsense' 'nano' 'gpt2-xl' -- train --model nonsense
refused '--optimizer adam:' 'sgd|momentum|adamw|adamw8bit|lion|adafactor' -- plan --optimizer adam
refused '--attention flash' 'naive|tiled' -- plan --attention flash
refused '--checkpoint half' 'none|' 'full' -- plan --checkpoint half
refused '--tokenizer word' 'byte|char' -- train --tokenizer word
refused '--sample shuffled' 'random|sequential' -- train --sample shuffled
refused '--sort name' 'tape|bytes' -- ledger --sort name
refused '--sort tape|bytes' -- ledger --sort 'tape|bytes'

# ---- numbers ----

for option in layers heads width context vocab batch micro-batch seq steps threads; do
    for value in 0 -1; do
        train "--$option $value:" 'whole number from 1' -- "--$option" "$value"
    done
done
for option in warmup decay-steps seed eval-every eval-batches sample-tokens top-k save-every; do
    train "--$option -1:" 'whole number from 0' -- "--$option" -1
done
for value in 1.5 0x10 12a '' ' ' 1e3 nan inf 99999999999999999999; do
    train '--steps' 'whole number' -- "--steps=$value"
done
for value in 0 -1e-3 nan inf -inf abc 1e400 '' 1,5 0.001x; do
    train "--lr $value:" 'number from' -- --lr "$value"
done
for option in dropout beta1 beta2; do
    train "--$option 1:" 'number from 0' -- "--$option" 1
    train "--$option nan:" -- "--$option" nan
done
for option in min-lr weight-decay clip temperature; do
    train "--$option -1:" 'number from 0' -- "--$option" -1
    train "--$option nan:" -- "--$option" nan
    train "--$option inf:" -- "--$option" inf
done

# ---- sizes that do not fit each other ----

train 'width 18' 'heads 4' -- --width 18 --heads 4
train 'seq 17' 'context 16' -- --seq 17
train 'micro-batch 13' 'batch 12' -- --micro-batch 13
train 'top-k 500' 'vocabulary' -- --top-k 500
train 'vocab 10' -- --vocab 10
refused 'width 18' 'heads 4' -- plan --width 18 --heads 4
refused 'seq 1025' 'context 1024' -- ledger --model gpt2 --seq 1025
refused 'seq 65' 'context 64' -- tape --seq 65

# ---- texts ----

train 'missing.txt' 'expected a text file' -- --data "$dir/missing.txt"
train 'expected a text file' -- --data "$dir"
: >"$dir/empty"
train "$dir/empty" 'empty' -- --data "$dir/empty"
printf 'ab\000cd\377\376' >"$dir/binary"
train "$dir/binary" 'byte' -- --data "$dir/binary"
train 'UTF-8' -- --data "$dir/binary" --tokenizer char
printf 'eight...' >"$dir/short" # 7 of them train
train '7 tokens' 'at least 17' -- --data "$dir/short"
printf '%018d' 0 >"$dir/short" # 16 train, and two windows of 8 read 17
train '16 tokens' 'at least 17' -- --data "$dir/short" --sample sequential --batch 2 --seq 8
printf '%019d' 0 >"$dir/short"
run train --data "$dir/short" $small --steps 1 --sample sequential --batch 2 --seq 8 --quiet
printf 'abc' >"$dir/short"
train 'validation' -- --data "$dir/short" --seq 1 --context 1 --batch 1 --eval-every 1

# ---- option files ----

train "$dir/none.txt" -- --config "$dir/none.txt"
config() { # a line; then as train
    printf 'batch = 2 # fine\n\n  # fine too\n%s\n' "$1" >"$dir/config.txt"
    shift
    train "$dir/config.txt, line 4" "$@" -- --config "$dir/config.txt"
}
config 'clip' 'name = value'
config 'clipp = 5' 'did you mean --clip'
config 'clip = many' '--clip many'
config 'clip =' 'number'
config 'top = 5' 'unknown option'
config 'prompt = "not closed' '"'
config "$(awk 'BEGIN { while (n++ < 9000) printf "x" }')" 'bytes'

# ---- places that cannot be written ----

: >"$dir/file"
refused "$dir/file" 'directory' -- train --data "$text" $small --steps 1 --out "$dir/file"
refused "$dir/file" -- train --data "$text" $small --steps 1 --out "$dir/file/below"
refused '--json' "$dir/file/j" -- plan $small --vocab 50 --json "$dir/file/j" --quiet
refused '--csv' "$dir/file/c" -- ledger $small --vocab 50 --csv "$dir/file/c" --quiet
refused '--json -' '--csv -' -- ledger $small --vocab 50 --csv - --json -
[ ! -e /dev/full ] || refused '/dev/full' -- ops --quiet --json /dev/full

refused 'too many segments' '--segments block' -- plan --model tiny --layers 1000 \
    --segments half --checkpoint auto --activation-budget 20MB
refused 'budget-process' 'bytes before the arena' -- fit --model tiny --budget-process 1MB

# ---- snapshots ----

whole="$dir/whole"
run train --data "$text" $small --steps 2 --out "$whole" --sample-tokens 0 --quiet
cp -R "$whole" "$dir/kept"

refused 'nowhere' 'no snapshot' -- train --resume "$dir/nowhere"
refused 'nowhere' 'no snapshot' -- generate "$dir/nowhere"
refused 'no snapshot' -- eval "$dir"
refused 'no snapshot' -- info "$dir/file"
refused '--resume' '--init' -- train --resume "$whole" --init "$whole"
refused 'snapshot' '--out' -- train --resume "$whole/snapshot"
for change in '--width 32' '--layers 2' '--context 32' '--vocab 99' '--no-tie' '--no-bias' \
    '--heads 4'; do
    refused "$whole" 'another model' -- train --resume "$whole" --steps 3 $change
done
refused 'width' '16' '32' -- train --resume "$whole" --width 32
refused 'adamw' 'sgd' -- train --resume "$whole" --steps 3 --optimizer sgd
train "$whole" 'another model' -- --init "$whole" --width 32

printf 'naïve cats' >"$dir/strange"
refused 'ï' -- train --resume "$whole" --steps 3 --data "$dir/strange"
refused 'ï' -- eval "$whole" --data "$dir/strange"
refused 'ï' -- generate "$whole" --prompt 'naïve'
refused 'top-k 500' 'vocabulary' -- generate "$whole" --top-k 500
refused 'seq 17' 'context 16' -- eval "$whole" --data "$text" --seq 17
refused 'empty' -- eval "$whole" --data "$dir/empty"
printf 'cats' >"$dir/short"
refused 'validation' -- eval "$whole" --data "$dir/short"

damaged="$dir/damaged"
read_damaged() { # what was done, then the commands that must refuse it
    for command in $2; do
        case $command in
        resume) refused "$damaged" -- train --resume "$damaged" --steps 3 ;;
        eval) refused "$damaged" -- eval "$damaged" --data "$text" ;;
        *) refused "$damaged" -- "$command" "$damaged" ;;
        esac
    done
}
fresh() {
    rm -rf "$damaged"
    cp -R "$whole" "$damaged"
}
for file in model optimizer; do
    from="$whole/snapshot/$file.safetensors"
    size=$(wc -c <"$from")
    for bytes in 0 1 7 8 100 $((size / 2)) $((size - 1)); do
        fresh
        dd if="$from" of="$damaged/snapshot/$file.safetensors" bs="$bytes" count=1 2>/dev/null ||
            : >"$damaged/snapshot/$file.safetensors"
        [ "$file" = model ] && who='resume generate eval info' || who='resume info'
        read_damaged "$file cut to $bytes" "$who"
    done
done
fresh
cp "$text" "$damaged/snapshot/model.safetensors"
read_damaged 'a text as the model' 'resume generate eval info'
fresh
cp "$whole/snapshot/model.safetensors" "$damaged/snapshot/optimizer.safetensors"
read_damaged 'the model as the optimizer' 'resume'
fresh
cp "$whole/snapshot/optimizer.safetensors" "$damaged/snapshot/model.safetensors"
read_damaged 'the optimizer as the model' 'resume generate eval info'
fresh
rm "$damaged/snapshot/optimizer.safetensors"
read_damaged 'no optimizer' 'resume'
run train --resume "$whole" --steps 3 --out "$dir/later" --quiet --sample-tokens 0
fresh
cp "$dir/later/snapshot/optimizer.safetensors" "$damaged/snapshot/"
read_damaged 'an optimizer of another step' 'resume'

diff -r "$whole" "$dir/kept" >"$dir/log" ||
    fail "a refused command changed the run: $(cat "$dir/log")"
finish
