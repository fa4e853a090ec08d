#!/usr/bin/env bash
# tests/fuzz/search.sh [TARGET...]: libFuzzer on the targets of $SPX_BUILD (`make fuzz`), each for $SECONDS_EACH seconds
# (60), from its corpus in tests/fuzz/corpus and what earlier searches found, which stays in $SPX_BUILD/found. Prints a
# table: target, runs, edges of the code that were reached, reports. An input that crashes is kept: $SPX_BUILD/TARGET-*.
set -u -o pipefail
root=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
SPX_BUILD=${SPX_BUILD:-$root/build/fuzz}
bad=0
if [ $# = 0 ]; then
    for f in "$root"/tests/fuzz/fuzz_*.c; do
        f=${f##*/fuzz_}
        set -- "$@" "${f%.c}"
    done
fi
# libhdf5 leaks: tests/lsan.supp
export LSAN_OPTIONS=suppressions=$root/tests/lsan.supp:print_suppressions=0 OMP_NUM_THREADS=1
row() { printf '| %-8s | %9s | %6s | %7s |\n' "$@"; }
row target runs edges reports
row -------- --------: -----: ------:
for target; do
    found=$SPX_BUILD/found/$target log=$SPX_BUILD/$target.log
    mkdir -p "$found"
    "$SPX_BUILD/tests/fuzz/search_$target" -max_total_time="${SECONDS_EACH:-60}" -timeout=20 -rss_limit_mb=4096 \
        -artifact_prefix="$SPX_BUILD/$target-" "$found" "$root/tests/fuzz/corpus/$target" >"$log" 2>&1
    reports=$(grep -c 'SUMMARY: ' "$log")
    row "$target" "$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p; t' "$log" | tail -n 1)" \
        "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)" "$reports"
    if [ "$reports" -gt 0 ]; then
        bad=1
        grep -m 3 -e 'SUMMARY: ' -e 'Test unit written' "$log"
    fi
done
exit $bad
