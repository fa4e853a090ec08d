#!/usr/bin/env bash
# Runs what `make cuda-tests` built in a folder on this machine's GPU, without compiling anything: needs the CUDA driver
# and the shared libraries that the tests are linked with, but no compiler, CFITSIO, Bats or network.
# Usage: [SANITIZE=memcheck|racecheck|initcheck] tests/cuda/run.sh [BUILD-FOLDER [TEST...]]
# Names of tests may be patterns: 'test_rvfit*'. A sanitizer slows kernels down a hundred times: tests that have a small
# case then do that; racecheck takes minutes where there are thousands of launches: SANITIZE_OPTIONS='--launch-count 200'.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build/cuda}" && pwd)
shift $(($# > 0))
[ $# -gt 0 ] || set -- '*'
export SPX_TEST_DEVICE=cuda SPX_BACKENDS=$build/lib/specpipe
run=()
# shellcheck disable=SC2206
[ -z "${SANITIZE:-}" ] || run=(compute-sanitizer --tool "$SANITIZE" --error-exitcode 1 ${SANITIZE_OPTIONS:-})
shopt -s nullglob
tests=()
for pattern in "$@"; do
    # shellcheck disable=SC2231
    for t in "$build"/tests/kernels/$pattern "$build"/tests/cuda/$pattern; do
        [ ! -x "$t" ] || tests+=("$t")
    done
done
[ ${#tests[@]} -gt 0 ] || { echo "$build: no tests '$*': make cuda-tests BUILD=$build" >&2; exit 2; }
failed=0
for t in "${tests[@]}"; do
    name=${t#"$build"/tests/}
    words=("$t")
    [ ${#run[@]} -eq 0 ] || words+=(small)
    status=0
    "${run[@]}" "${words[@]}" >"$build/${t##*/}.log" 2>&1 || status=$?
    if [ $status -eq 77 ]; then
        echo "skipped on cuda: $name: $(cat "$build/${t##*/}.log")"
    elif [ $status -eq 0 ]; then
        echo "passed on cuda${SANITIZE:+, $SANITIZE}: $name"
    else
        cat "$build/${t##*/}.log"
        echo "FAILED on cuda${SANITIZE:+, $SANITIZE}: $name"
        failed=1
    fi
done
exit $failed
