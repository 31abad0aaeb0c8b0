#!/usr/bin/env bash
# The sessions of docs/gdb.md are what gdb says, and a stop changes no bit of the run.
#
# Each tests/gdb/NAME.gdb is a session: a line that says what it shows, the line that starts it, and
# what is typed. docs/gdb.md has its transcript in the fence after <!-- NAME.gdb -->. Addresses and
# process numbers are masked there; the numbers of source lines, and where in a struct a pointer
# leads, may differ (what the lines say may not). After a change that is meant, `make gdb-page`
# (test_gdb.sh --write) rewrites them.
command -v gdb >/dev/null || { echo 'no gdb here'; exit 77; }
cd "$(dirname "$0")/.." || exit 1
. tests/cli.sh
debug=${MEMTAPE_DEBUG:-build/debug/memtape}
page=docs/gdb.md
gdb -nx -batch -ex run --args true 2>/dev/null | grep -q 'exited normally' ||
    { echo 'gdb may not start a program here'; exit 77; }
export LC_ALL=C TERM=dumb COLUMNS=200

# Runs gdb with the commands of standard input, as one who types: an error does not end it.
typed() { # program and its arguments
    local line commands=()
    while IFS= read -r line; do
        case $line in '#'* | '') continue ;; esac
        commands+=(-ex "echo (gdb) ${line//\\/\\\\}\\n" -ex "$line")
    done
    gdb -q -nx -batch -ex 'set width 0' -x tape/debug.gdb "${commands[@]}" --args "$@" 2>&1 |
        sed -e 's/0x[0-9a-f][0-9a-f]*/0x.../g' -e 's/(process [0-9]*)/(process N)/' \
            -e '/^warning: Error disabling address space randomization/d' \
            -e '/libthread_db/d' -e 's/ *$//'
}

documented() { # NAME.gdb
    awk -v mark="<!-- $1 -->" '
        $0 == mark { found = 1 }
        found && /^```/ { if (open) exit; open = 1; next }
        open' "$page"
}

unnumbered() { sed -e 's/\.c:[0-9][0-9]*/.c:N/' -e 's/^[0-9][0-9]*	/N	/' -e 's/\.c, line [0-9]*/.c, line N/' -e 's/<\([a-z]*\)+[0-9]*>/<\1+N>/g'; }

# Puts the file into the fence of a session.
write() { # NAME.gdb, file
    awk -v mark="<!-- $1 -->" -v file="$2" '
        $0 == mark { found = 1 }
        found && /^```/ && open { found = open = 0 }
        !open
        found && /^```/ { open = 1; while ((getline line < file) > 0) print line }' \
        "$page" >"$dir/page" && cp "$dir/page" "$page"
}

# ---- every session is on the page, word for word ----

session() { # tests/gdb/NAME.gdb
    local name=${1##*/} start arguments
    start=$(sed -n '2s/^# //p' "$1")
    case $start in
    'make gdb EXAMPLE='*) set -- "$1" "${debug%/*}/examples/${start#*EXAMPLE=}" ;;
    'make gdb ARGS='*)
        arguments=${start#*\"}
        set -- "$1" "$debug" ${arguments%\"}
        ;;
    *) fail "$1: the second line starts the session: # make gdb ARGS=\"...\""; return ;;
    esac
    { echo "\$ $start"; typed "${@:2}" <"$1"; } >"$dir/$name.out"
    ! grep -n 'optimized out\|Traceback\|Python Exception' "$dir/$name.out" ||
        fail "$name: something is lost"
    [ "$write" = no ] || write "$name" "$dir/$name.out"
    [ $compares = yes ] || return
    documented "$name" | unnumbered >"$dir/expected"
    unnumbered <"$dir/$name.out" | diff "$dir/expected" - >"$dir/diff" ||
        fail "$name: < $page, > gdb; if that is meant: make gdb-page
$(cat "$dir/diff")"
}

# Other products round otherwise.
compares=yes
"$debug" --version | grep -q loops || { compares=no; echo "$debug has no plain loops: not compared"; }
case ${CC##*/} in # it names symbols and lines in another way
*clang*) compares=no; echo "$debug is clang's: not compared" ;;
esac
write=no
[ "$1" != --write ] || write=yes
ran=0
for script in tests/gdb/*.gdb; do
    session "$script"
    ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || fail 'no session ran'
for name in $(sed -n 's/^<!-- \([a-z_]*\.gdb\) -->$/\1/p' "$page"); do
    [ -f "tests/gdb/$name" ] || fail "$page: $name has no script"
done
make -n gdb | grep -q 'gdb -q .*-x tape/debug.gdb --args [^ ]*/memtape train' ||
    fail "make gdb starts something else: $(make -n gdb)"

# ---- what is on the way of a newcomer is all there ----

way='--model tiny --steps 1 --quiet'
printf '%s\n' 'tfwd 7' 'info locals' 'bt -full' 'tback 7' 'tnode 7' \
    step step step step step 'info locals' 'info args' 'bt -full' 'tgrad h.0.mlp.c_fc.weight' |
    typed "$debug" train $way >"$dir/way"
! grep -n 'optimized out' "$dir/way" || fail 'values are optimized out'
for word in 'backward of node 7, h.0.mlp.c_fc' 'asked  nn/mlp.c:' 'gradient of h.0.mlp.c_fc.weight' \
    'mlp_forward' 'forward of node 7'; do
    grep -q "$word" "$dir/way" || fail "tback, tnode, step, tgrad do not say: $word
$(cat "$dir/way")"
done

# From a model's line straight into the op, not into the macro that notes the line.
printf '%s\n' 'tbreak tape_enter' run finish step step |
    typed "${debug%/*}/examples/by_hand" >"$dir/step"
grep -q '^op_linear (t=' "$dir/step" || fail "step goes elsewhere: $(cat "$dir/step")"

# ---- pretty-printers say what the printers say ----

every_node() {
    printf '%s\n' "$1" tape
    for ((i = 0; i < 24; i++)); do echo "print t->node[$i].out"; done
}
{
    every_node 'tfwd 12'; every_node 'tback 18'; every_node 'treplay 12'; every_node 'tback 9'
} | typed "$debug" train $small --steps 1 --attention naive --dropout 0.1 --checkpoint full \
    --quiet --precision bf16 >"$dir/pretty"
awk '
    /^ *[0-9]+ (done|now|back|again|half) / { said[$1] = substr($0, 12) }
    /^\(gdb\) print t->node/ { node = $3; gsub(/[^0-9]/, "", node) }
    /^\$[0-9]+ = / {
        sub(/^\$[0-9]+ = /, "")
        if (node in said && index(said[node], $0) != 1)
            print "print: " $0 "\ntape:  " said[node]
        compared += node in said
    }
    END { if (compared < 60) print "only " compared " compared" }' "$dir/pretty" >"$dir/differ"
[ ! -s "$dir/differ" ] || fail "$(cat "$dir/differ")"

# ---- what a newcomer stumbled over ----

{
    printf '%s\n' 'help memtape' 'tback h.0.mlp.c_fc' 'twatch h.0.mlp.c_fc.weight 24 19' 'tback 7' \
        tape 'tback 7' 'twatch h.0.mlp.ln_2 0 0' 'tgrad h.0.mlp.ln_2' 'delete 2' continue 'tback 7' \
        'tback 3' kill 'tback 3' delete 'treplay 7' 'tback nothing' 'tback 7' tpeak tpeak tpeak
} | typed "$debug" train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --quiet \
    >"$dir/newcomer"
while IFS= read -r line; do
    grep -qF -- "$line" "$dir/newcomer" || fail "nobody says: $line
$(cat "$dir/newcomer")"
done <<'END'
twatch NAME I J - stop whenever this element of a gradient changes; say who added what.
backward of node 7, h.0.mlp.c_fc (first call: all but dx): y
backward of node 7, h.0.mlp.c_fc (second call: dx alone): y
backward of node 7, h.0.mlp.c_fc (second call: dx alone; samples from 2 on): y
node 7: not reached, something else stopped the program first
   7 half  h.0.mlp.c_fc
stop 2: gradient of h.0.mlp.ln_2[0,0], now born, not written yet; `continue`
born, not written yet: node 7 is about to
[24,19]: 0.00647751 -> 0.0125841, node 7
the program has ended; it came to no recompute of node 7; was it started with --checkpoint?
no node is called nothing; `tape` lists them, with their numbers
the peak is behind us: starting again, to event
END
# The process after `kill` begins from 0 again; it does not come from where the last one ended.
[ "$(grep -c '\[24,19\]: 0 -> 0.00647751, node 7' "$dir/newcomer")" = 2 ] &&
    ! grep -n '\[24,19\]: 0.0125841' "$dir/newcomer" || fail 'a watch remembers another process'
make -n gdb EXAMPLE=nosuch 2>&1 | grep -q 'EXAMPLE=nosuch: expected one of: .*by_hand' ||
    fail 'make gdb EXAMPLE=nosuch does not list the examples'

# ---- a stop changes nothing ----

options="train $small --vocab 70 --steps 2 --batch 4 --micro-batch 2 --dropout 0.1 --attention naive"
options="$options --checkpoint selective --sample-tokens 5"
"$debug" $options --save-gradients "$dir/a.safetensors" --out "$dir/a" >"$dir/a.txt" 2>&1
look() { # after a command that stops
    printf '%s\n' "$1" tape 'tnode 9' 'tnode 99' 'tgrad wte.weight' 'tgrad h.0.mlp.c_fc' \
        'ttensor wte.weight' 'ttensor h.0.attn.c_attn' 'ttensor h.0.attn.core.split_heads#3' \
        'tgrad nothing' 'twhy h.0.attn.add' tledger tarena tlive 'tcheck 9' 'tcheck 2' 'tcheck 15' \
        'tcheck 20' 'print *n->out' 'print n'
}
{
    look 'tfwd 0'; look 'tfwd 9'; look 'tfwd 20'; look 'tback 20'; look 'tback 15'; look 'treplay 9'
    look 'tback 9'; look tnext; look 'tback 2'; look 'tback 0'; look tpeak
    echo 'twatch wte.weight 3 1'; look continue; look continue; look continue; echo 'delete'
    echo 'tbreak optimizer_break'; look continue; look 'tfwd 12'; look 'tback 12'
    echo 'tbreak error_break'; echo continue
} | typed "$debug" $options --save-gradients "$dir/b.safetensors" --out "$dir/b" >"$dir/b.txt"
! grep -n 'Traceback\|Python Exception\|SIGSEGV\|SIGABRT' "$dir/b.txt" || fail 'a printer stumbles'
[ "$(grep -c 'they agree' "$dir/b.txt")" -ge 20 ] && ! grep -n DIFFER "$dir/b.txt" ||
    fail "tcheck does not agree: $(grep -n -A 4 'differences' "$dir/b.txt" | tail -n 40)"
same 'gradients after stops' "$dir/a.safetensors" "$dir/b.safetensors"
for file in "$dir"/a/snapshot/*; do
    same "snapshot after stops" "$file" "$dir/b/snapshot/${file##*/}"
done
[ -f "$dir/a/snapshot/model.safetensors" ] || fail 'no snapshot to compare'
timeless "$dir/a/log.jsonl" >"$dir/a.log" 2>/dev/null
timeless "$dir/b/log.jsonl" >"$dir/b.log" 2>/dev/null
[ -s "$dir/a.log" ] || fail 'no log to compare'
same 'losses after stops' "$dir/a.log" "$dir/b.log"

# ---- a dry run opens no door ----

printf 'break %s\n' tape_break tape_break_grad tape_break_nan arena_break optimizer_break >"$dir/doors"
{ cat "$dir/doors"; echo 'run'; echo 'info breakpoints'; } |
    typed "$debug" tape $small --batch 4 --micro-batch 2 --checkpoint full >"$dir/dry"
grep -q 'exited normally' "$dir/dry" && ! grep -n 'already hit\|^Make breakpoint' "$dir/dry" ||
    fail "a plan stops at a door: $(cat "$dir/dry")"
# A run opens all.
{
    sed 's/^/t/' "$dir/doors"
    printf '%s\n' run continue continue continue continue
} | typed "$debug" train $small --lr 1e6 --weight-decay 1e6 --steps 9 --trap-nan --quiet >"$dir/wet"
printf '%s\n' 'tbreak error_break' run | typed "$debug" train --layers 0 >>"$dir/wet"
for door in tape_break tape_break_grad tape_break_nan arena_break optimizer_break error_break; do
    grep -q "Temporary breakpoint [0-9]*, $door (" "$dir/wet" || fail "no $door: $(cat "$dir/wet")"
done

# ---- lldb runs the same session ----

lldb_session() {
    grep -v '^#\|^up' tests/gdb/accumulate.gdb >"$place/session.lldb"
    printf '%s\n' 'tnode 7' step step 'tcheck 7' tape tledger 'tback h.0.attn.add' \
        'print n->in[0]' 'print *n->out' memtape tpeak >>"$place/session.lldb"
    lldb -x -b -o 'command source -s 1 tape/debug.lldb' \
        -s "$place/session.lldb" -- "$debug" train --model tiny --layers 1 --steps 1 --batch 4 \
        --micro-batch 2 --quiet 2>&1 | tr -d '\r' | sed 's/ *$//' >"$dir/lldb"
    ! grep -n 'optimized out\|Traceback\|error:' "$dir/lldb" || fail 'lldb stumbles'
    grep -E '^(backward of|gradient of|norm|  *\[|node 7|  (in|out|dy|dx|keeps))' \
        "$dir/accumulate.gdb.out" >"$dir/expected"
    while IFS= read -r line; do
        grep -qxF -- "$line" "$dir/lldb" || fail "lldb does not say: $line"
    done <"$dir/expected"
    for word in 'they agree' '^  line   block_linear' '^backward of node 5, h.0.attn.add (samples' \
        'embedding f32\[2,32,32\] 8192 B saved for node 1$' '^tnan - run to the op' \
        'attn.add f32\[2,32,32\] 8192 B given back$'; do
        grep -q "$word" "$dir/lldb" || fail "lldb does not say: $word
$(cat "$dir/lldb")"
    done
    awk '/^the peak, / { getline; if ($0 ~ /32768 B/) found = 1 } END { exit !found }' "$dir/lldb" ||
        fail "tpeak's headline is not above its list: $(cat "$dir/lldb")"
}

# Ctrl-C stops a command that runs the program.
lldb_interrupted() {
    local pid
    lldb -x -b -o 'command source -s 1 tape/debug.lldb' -o 'tback 7' \
        -o 'treplay 3' -- "$debug" train --model tiny --layers 1 --steps 1000000 --quiet \
        >"$dir/interrupted" 2>&1 &
    pid=$!
    for ((i = 0; i < 50; i++)); do
        sleep 0.2
        ! grep -q 'lldb) treplay' "$dir/interrupted" || break
    done
    sleep 0.5
    kill -INT $pid
    for ((i = 0; i < 50; i++)); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.2
    done
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    grep -q 'node 3: not reached' "$dir/interrupted" ||
        fail "Ctrl-C does not stop treplay in lldb: $(cat "$dir/interrupted")"
}

if command -v lldb >/dev/null; then
    export PYTHONPATH
    PYTHONPATH=$(make -n lldb | sed -n "s/.*PYTHONPATH='\([^']*\)'.*/\1/p")
    if lldb -x -b -o 'script print(6 * 7)' 2>/dev/null | grep -q '^42'; then
        lldb_session
        lldb_interrupted
    else
        echo 'lldb has no Python here: not tried'
    fi
else
    echo 'no lldb here: its session is not tried'
fi
finish
