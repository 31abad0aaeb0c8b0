#!/bin/sh
# The examples do what their expected outputs in tests/examples say, and every example has one.
# What they print is the same on every machine: exact integers, or so few digits that no BLAS moves
# them. After a change that is meant, run build/release/examples/NAME > tests/examples/NAME.txt.
cd "$(dirname "$0")/.." || exit 1
programs=${MEMTAPE_EXAMPLES:-build/release/examples}
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
trap 'exit 1' INT TERM
export OMP_WAIT_POLICY=passive # tests share the cores: a thread that waits must not spin

failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

try() { # name, threads
    OMP_NUM_THREADS=$2 "$programs/$1" >"$place/out" 2>"$place/err"
    status=$?
    [ "$status" = 0 ] || fail "$1 with $2 threads: exit status $status"
    [ ! -s "$place/err" ] || fail "$1 with $2 threads complains: $(cat "$place/err")"
    diff "tests/examples/$1.txt" "$place/out" || fail "$1 with $2 threads: < expected, > printed"
}

ran=0
for source in examples/*.c; do
    name=${source#examples/}
    name=${name%.c}
    [ -x "$programs/$name" ] || { fail "$programs/$name is not there: make examples"; continue; }
    [ -s "tests/examples/$name.txt" ] || { fail "tests/examples/$name.txt is not there"; continue; }
    try "$name" 1
    try "$name" 3
    ran=$((ran + 1))
done
for expected in tests/examples/*.txt; do
    name=${expected#tests/examples/}
    [ -f "examples/${name%.txt}.c" ] || fail "$expected has no example"
done
[ "$ran" -gt 0 ] || fail 'no example ran'
[ "$failures" = 0 ] && exit 0
echo "$failures failed"
exit 1
