#!/usr/bin/env bash
# run.sh FILE... - runs test programs and test scripts, and adds up what they say.
#
# A program counts as many tests as cmocka says it ran; one that crashes adds a failure, and so
# does one that ran no test. A script counts as one: exit status 0 passed, 77 skipped, else failed.
# One line each, the output of what failed, and in the end `N passed, N failed` alone on a line.

jobs=${TEST_JOBS:-2}
limit=${TEST_LIMIT:-$([ -n "$MEMTAPE_LONG" ] && echo 3600 || echo 600)} # seconds, for one file
export OMP_WAIT_POLICY=passive # two programs share the cores: a thread that waits must not spin

count() { # occurrences of a text in a file
    awk -v text="$1" 'index($0, text) { n++ } END { print n + 0 }' "$2"
}

# Runs one file; writes "passed failed skipped" to $tmp/$number.count, and its report in one piece.
run_one() { # number, file
    local out=$tmp/$1.out err=$tmp/$1.err name=${2#build/} passed=0 failed=0 skipped=0 status ran
    local command=("$2") note=
    case $2 in */*) ;; *) command=("./$2") ;; esac
    [ -x "$2" ] || command=(sh "$2")
    command -v timeout >/dev/null && command=(timeout -k 10 "$limit" "${command[@]}")
    TIMEFORMAT=%R
    { time "${command[@]}" >"$out" 2>"$err" </dev/null; } 2>"$tmp/$1.time"
    status=$?
    case $2 in
    *.sh)
        case $status in
        0) passed=1 ;;
        77) skipped=1 note=", $(tail -n 1 "$out" | cut -c 1-60)" ;;
        *) failed=1 ;;
        esac
        ;;
    *)
        ran=$(count '[ RUN      ] ' "$out")
        passed=$(count '[       OK ] ' "$out")
        skipped=$(count '[  SKIPPED ] ' "$out")
        failed=$((ran - passed - skipped))
        [ "$ran" -gt 0 ] || note=', ran no test'
        if [ "$failed" -le 0 ]; then # it may still fail outside a test, or say nothing at all
            failed=0
            [ "$status" = 0 ] && [ "$ran" -gt 0 ] || failed=1
        fi
        ;;
    esac
    [ "$status" != 124 ] || note="$note, stopped after $limit s"
    [ "$status" -lt 128 ] || note="$note, killed by signal $((status - 128))"
    echo "$passed $failed $skipped" >"$tmp/$1.count"
    {
        printf '%-4s %7.1f s  %s: %d passed' "$([ "$failed" = 0 ] && echo ok || echo FAIL)" \
            "$(tail -n 1 "$tmp/$1.time")" "$name" "$passed"
        [ "$failed" = 0 ] || printf ', %d failed' "$failed"
        [ "$skipped" = 0 ] || printf ', %d skipped' "$skipped"
        printf '%s\n' "$note"
        [ "$failed" = 0 ] || sed 's/^/    /' "$out" "$err"
    } >"$tmp/$1.report"
    cat "$tmp/$1.report"
}

if [ "$1" = --one ]; then # a call from below
    tmp=$2
    run_one "$3" "$4"
    exit 0
fi

[ $# -gt 0 ] || { echo '0 passed, 0 failed'; exit 1; } # nothing ran: a failure
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
number=0
for file in "$@"; do
    number=$((number + 1))
    printf '%s\0%s\0' "$number" "$file"
done | xargs -0 -n 2 -P "$jobs" bash "$0" --one "$tmp"

total_passed=0 total_failed=0 total_skipped=0
for ((number = 1; number <= $#; number++)); do
    passed=0 failed=1 skipped=0 # of a file whose run left no count
    [ ! -f "$tmp/$number.count" ] || read -r passed failed skipped <"$tmp/$number.count"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
done
line="$total_passed passed, $total_failed failed"
[ $total_skipped = 0 ] || line="$line, $total_skipped skipped"
echo "$line"
[ $total_failed = 0 ] && [ $total_passed -gt 0 ]
