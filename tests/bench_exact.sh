#!/bin/sh
# bench_exact.sh - what the exact order of sums costs: steps of two programs in turn, the shipped one
# and one whose linears are one product per thread over all rows. Usage: bench_exact.sh A B.
set -e
shipped=$1 fast=$2 rounds=${ROUNDS:-7}
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

ms() { # program, model, batch
    "$1" bench --model "$2" --batch "$3" --threads 2 --json "$out"
    sed -n 's/^ *"step_seconds": \([^,]*\),*$/\1/p' "$out" | awk '{ print 1000 * $1 }'
}

printf '%-6s %6s %14s %14s %8s\n' model batch 'exact ms/step' 'one GEMM' ratio
for pair in 'nano 12' 'baby 4'; do
    # shellcheck disable=SC2086 # two words
    set -- $pair
    i=0
    while [ "$i" -lt "$rounds" ]; do
        echo "$(ms "$shipped" "$1" "$2") $(ms "$fast" "$1" "$2")"
        i=$((i + 1))
    done | awk '{ a[NR] = $1; b[NR] = $2; r[NR] = $1 / $2 }
        function median(v, n,    i, j, x) {
            for (i = 2; i <= n; i++) { x = v[i]; for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]; v[j + 1] = x }
            return v[int((n + 1) / 2)] }
        END { printf "%-6s %6s %14.1f %14.1f %8.3f\n", m, k, median(a, NR), median(b, NR), median(r, NR) }' m="$1" k="$2"
done
