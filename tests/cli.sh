# cli.sh - what the tests of the command line share. They source it from the top of the tree.
#
# $memtape is the program, $dir a fresh directory with a name that careless code trips over, and
# $text a small text in it. A test calls fail for each broken law and finish at the end.

memtape=${MEMTAPE:-build/release/memtape}
[ -x "$memtape" ] || { echo "$memtape is not there: make"; exit 1; }
case $memtape in /*) ;; *) memtape=$PWD/$memtape ;; esac
export OMP_WAIT_POLICY=passive # tests share the cores: a thread that waits must not spin
unset OMP_NUM_THREADS

place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
trap 'exit 1' INT TERM
dir="$place/it's a Prüfung"
mkdir "$dir" || exit 1
text="$dir/te xt.txt"
awk 'BEGIN {
    for (i = 0; i < 160; i++)
        print i % 7, "times", i, "cats sat on", (i * i) % 11, "mats."
}' >"$text"

failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

finish() {
    [ "$failures" = 0 ] && exit 0
    echo "$failures failed"
    exit 1
}

# A model that costs nothing; further options after it.
small='--layers 1 --heads 2 --width 16 --context 16'

# Runs the program; its words go to $dir/log.
run() {
    "$memtape" "$@" >"$dir/log" 2>&1 || fail "status $?: memtape $*: $(cat "$dir/log")"
}

same() { # what it is, two files
    cmp "$2" "$3" >"$dir/log" 2>&1 || { fail "$1 differs: $(cat "$dir/log")"; }
}

# A report in JSON as lines "path value", so that awk and grep can look things up.
flat() {
    awk '{
        line = $0
        sub(/^ */, "", line)
        sub(/,$/, "", line)
        key = ""
        if (match(line, /^"[^"]*": /)) {
            key = substr(line, 2, RLENGTH - 4)
            line = substr(line, RLENGTH + 1)
        }
        if (line == "{" || line == "[") { path[++depth] = key; next }
        if (line == "}" || line == "]") { depth--; next }
        full = ""
        for (i = 2; i <= depth; i++)
            full = full path[i] "."
        print full key, line
    }' "$1"
}

value() { # file, path
    flat "$1" | awk -v path="$2" '
        $1 == path { print $2; found = 1 }
        END { if (!found) print "none" }'
}

# A log without what a clock decides.
timeless() {
    sed 's/, "seconds": [^,}]*//; s/, "tokens_per_second": [^,}]*//' "$1"
}

is_json() { # what it is, file
    if command -v python3 >/dev/null; then
        PYTHONIOENCODING=utf-8:strict python3 -m json.tool <"$2" >/dev/null 2>"$dir/log" ||
            fail "$1 is no JSON: $(cat "$dir/log")"
    else
        [ "$(grep -c '[{[]$' "$2")" = "$(grep -c '^ *[]}],*$' "$2")" ] || fail "$1 is no JSON"
    fi
}
