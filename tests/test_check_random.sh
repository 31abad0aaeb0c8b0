#!/bin/sh
# Whatever is chosen together - how things are stored, optimizer, adapters, what is frozen, loss,
# policy, attention, dropout - recomputation, threads, a resumed run, and micro-batches wherever
# gradients are reals, change no bit. Ten combinations in make test, 200 in make test-long; each is
# a function of its number.
. tests/cli.sh

combination() { # number
    awk -v number="$1" '
        function below(n) { # the next digit of a small generator
            state = (state * 16807) % 2147483647
            return int(state / 2147483647 * n)
        }
        function one_of(list, part, n) {
            n = split(list, part, "|")
            return part[1 + below(n)]
        }
        BEGIN {
            state = 7919 * (number + 1)
            for (i = 0; i < 5; i++)
                below(2)
            heads = 1 + below(3)
            batch = 2 + below(6)
            line = "--layers " 1 + below(3) " --heads " heads " --width " heads * (1 + below(9))
            line = line " --context " 2 + below(20) " --batch " batch
            line = line " --micro-batch " 1 + below(batch)
            line = line " --optimizer " one_of("sgd|momentum|adamw|adamw8bit|lion|adafactor")
            line = line " --precision " one_of("f32|bf16") " --grad-precision f32"
            line = line " --activation-precision " one_of("f32|bf16")
            line = line " --loss " one_of("plain|chunked") " --attention " one_of("naive|tiled")
            line = line " --dropout " one_of("0|0.2") " --segments " one_of("block|half")
            line = line " --tie=" one_of("yes|no") " --bias=" one_of("yes|no")
            which = below(4)
            if (which == 0)
                line = line " --lora 1 --lora-targets " one_of("q|q,v|qkv|proj,fc|all")
            if (which == 1)
                line = line " --freeze " one_of("wte.*|wpe.*|ln_f.*|h.0.*")
            print line
        }'
}

combinations=10
[ -z "$MEMTAPE_LONG" ] || combinations=200
number=0
while [ "$number" -lt "$combinations" ]; do
    options=$(combination "$number")
    for what in accumulate checkpoint threads resume; do
        # shellcheck disable=SC2086 # options are words
        "$memtape" check $what --data "$text" $options >"$dir/words" 2>"$dir/log" ||
            fail "check $what $options: $(tail -n 1 "$dir/words") $(cat "$dir/log")"
    done
    number=$((number + 1))
done
finish
