#!/usr/bin/env bash
# tests/check.sh [SUITE...]: run the suites, print one line for each and what failed, and count. Called by `make check`,
# which sets MAKE, BUILD, UNIT, KERNELS, EMULATED, FUZZ, PLUGIN. Last line: `N passed, N failed[, N skipped]`; exit status 1
# when anything failed.
#
# Everything is built with -Werror: `make check WERROR=` does without, `WERROR=-Werror` in config.mk builds everything so.
#
# Suites: unit, kernels   C tests
#         bats            the programs
#         clang           everything compiles without a warning with clang too
#         debug           the library compiles without a warning with DEBUG=1 too: gcc warns of other things then
#         sanitize        C tests and fuzz corpora under AddressSanitizer and UndefinedBehaviorSanitizer
#         cuda            the CUDA backend compiles, and programs have what it uses (where nvcc is and there is one)
#         lint            scripts, formatting, static analysis, manual pages
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

if [ $# -eq 0 ]; then
    # sanitize before bats: its build is what tests/faults.bats uses.
    set -- unit kernels clang debug sanitize bats cuda lint
fi
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
export SPX_SHARED=${SPX_SHARED:-../shared}
export WERROR=${WERROR--Werror}
SPX_BUILD=$BUILD
case $SPX_BUILD in /*) ;; *) SPX_BUILD=$PWD/$SPX_BUILD ;; esac
export SPX_BUILD
results=$BUILD/check
rm -rf "$results"
mkdir -p "$results"

passed=0 failed=0 skipped=0

# report SUITE PASSED FAILED SKIPPED: the line of a suite.
report() {
    passed=$((passed + $2))
    failed=$((failed + $3))
    skipped=$((skipped + $4))
    printf '%-10s %4d passed, %d failed' "$1:" "$2" "$3"
    [ "$4" -eq 0 ] || printf ', %d skipped' "$4"
    printf '  (%d s)\n' $((SECONDS - start))
}

# step SUITE NAME COMMAND...: a command that has to succeed; shows what it printed only when it fails.
step() {
    local log=$results/$1-$2.log
    shift 2
    if "$@" >"$log" 2>&1; then
        return 0
    fi
    printf -- '---- failed: %s\n' "$*"
    tail -n 60 "$log"
    return 1
}

# build FLAGS...: quiet parallel make; under `make -j` with the jobs that were given there.
build() {
    case ${MAKEFLAGS:-} in
    *jobserver*) "$MAKE" -s --no-print-directory "$@" ;;
    *) "$MAKE" -s --no-print-directory -j"$jobs" "$@" ;;
    esac
}

# Runs one C test, leaves NAME.log and NAME.rc. The limit only ends a test that hangs.
one_ctest() {
    local log=$results/$1/${3//\//-}.log rc=0
    timeout -k 10 900 "$2/$3" "${@:4}" >"$log" 2>&1 </dev/null || rc=$?
    echo "$rc" >"${log%.log}.rc"
}
export -f one_ctest
export results

# ctests SUITE FOLDER NAME...: run programs side by side and report. A NAME of a fuzz target gets its corpus.
ctests() {
    local suite=$1 folder=$2 p=0 f=0 s=0 name base rc corpus
    shift 2
    mkdir -p "$results/$suite"
    # The last word of the pipe is expanded by the inner bash.
    # shellcheck disable=SC2016
    for name in "$@"; do
        corpus=tests/fuzz/corpus/${name#fuzz/fuzz_}
        case $name in
        fuzz/*) printf '%s\0%s\0%s\0%s\0' "$suite" "$folder" "$name" "$corpus" ;;
        *) printf '%s\0%s\0%s\0%s\0' "$suite" "$folder" "$name" "" ;;
        esac
    done | xargs -0 -r -n 4 -P "$jobs" bash -c 'one_ctest "$1" "$2" "$3" ${4:+"$4"}' one_ctest
    for name in "$@"; do
        base=$results/$suite/${name//\//-}
        rc=$(cat "$base.rc" 2>/dev/null || echo 255)
        case $rc in
        0) p=$((p + 1)) ;;
        77)
            s=$((s + 1))
            printf -- 'skipped: %s: %s\n' "$name" "$(tail -n 1 "$base.log")"
            ;;
        *)
            f=$((f + 1))
            printf -- '---- failed: %s (exit status %s)\n' "$name" "$rc"
            tail -n 40 "$base.log"
            ;;
        esac
    done
    report "$suite" "$p" "$f" "$s"
}

suite_unit() {
    # Names hold no blanks.
    # shellcheck disable=SC2086
    ctests unit "$BUILD/tests" $UNIT
}

suite_kernels() {
    # shellcheck disable=SC2086
    ctests kernels "$BUILD/tests" $KERNELS $EMULATED
}

suite_bats() {
    local tap=$results/bats.tap p f s flags=()
    if ! command -v bats >/dev/null; then
        echo "bats is not installed: run ./bootstrap check"
        report bats 0 1 0
        return
    fi
    # GNU Parallel's notice about citations belongs on a terminal, not in a log.
    export PARALLEL_HOME=$SPX_BUILD/parallel
    mkdir -p "$PARALLEL_HOME"
    touch "$PARALLEL_HOME/will-cite"
    if command -v parallel >/dev/null && parallel --version 2>/dev/null | grep -q '^GNU parallel'; then
        flags=(--jobs "$jobs" --no-parallelize-within-files)
    fi
    # The tests call make and programs: nothing of this make may reach them.
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL bats --tap "${flags[@]}" tests/*.bats >"$tap" 2>"$results/bats.err" </dev/null
    s=$(grep -c '^ok .*# skip' "$tap")
    p=$(($(grep -c '^ok ' "$tap") - s))
    f=$(grep -c '^not ok ' "$tap")
    # A file that could not be run, or a run that was cut short, has no line of its own.
    local planned
    planned=$(sed -n 's/^1\.\.\([0-9]*\)$/\1/p' "$tap" | head -n 1)
    if [ $((p + f + s)) -ne "${planned:-0}" ] || [ "${planned:-0}" -eq 0 ]; then
        f=$((f + 1))
        printf -- '---- failed: bats ran %d of %s tests\n' $((p + f + s - 1)) "${planned:-an unknown number of}"
        tail -n 20 "$results/bats.err"
    fi
    grep '^ok .*# skip' "$tap" | sed 's/^ok [0-9]* \(.*\) # skip/skipped: \1:/'
    # A failed test and what it printed.
    awk '/^(ok|1\.\.)/ { show = 0 } /^not ok/ { show = 1 } show' "$tap"
    report bats "$p" "$f" "$s"
}

suite_clang() {
    if ! command -v clang >/dev/null; then
        echo "skipped: clang is not installed"
        report clang 0 0 1
        return
    fi
    # -O0: the warnings do not need more.
    if step clang build build BUILD="$BUILD/clang" CC=clang OPT=-O0 NVCC= lib tests programs hook; then
        report clang 1 0 0
    else
        report clang 0 1 0
    fi
}

suite_debug() {
    if step debug build build BUILD="$BUILD/debug" DEBUG=1 NVCC= lib; then
        report debug 1 0 0
    else
        report debug 0 1 0
    fi
}

suite_sanitize() {
    local folder=$BUILD/sanitize
    if ! step sanitize build build sanitized; then
        report sanitize 0 1 0
        return
    fi
    # gcc 13 keeps wide vectors unaligned where it looks for uses after return, and they crash (gcc bug 110027).
    export ASAN_OPTIONS=exitcode=99:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    # shellcheck disable=SC2086
    ctests sanitize "$folder/tests" $UNIT $KERNELS $FUZZ
    unset ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS
}

suite_cuda() {
    # Without nvcc, or before there is a CUDA kernel, there is nothing to say.
    [ -n "$PLUGIN" ] || return 0
    if ! step cuda build build plugin || ! plugin_is_served; then
        report cuda 0 1 0
    else
        report cuda 1 0 0
    fi
}

# A backend uses the library inside the program that loads it, of which only what the program itself needs is there:
# every name that it uses has to be in all programs that open backends.
plugin_is_served() {
    local program missing=0 name
    nm -D --undefined-only build/lib/specpipe/backend-*.so | awk '$NF ~ /^spx_/ {print $NF}' | sort -u >"$results/needed"
    for program in build/bin/*; do
        nm -D --defined-only "$program" | awk '{print $NF}' | sort -u >"$results/served"
        grep -qx spx_backend_open "$results/served" || continue
        while read -r name; do
            printf -- '---- failed: %s lacks %s, which the CUDA backend uses\n' "$program" "$name"
            missing=1
        done < <(comm -23 "$results/needed" "$results/served")
    done
    return "$missing"
}

suite_lint() {
    local p=0 f=0 s=0 kind program
    for kind in shell:shellcheck format:clang-format c:cppcheck man:mandoc python:mypy; do
        program=${kind#*:}
        kind=${kind%%:*}
        if ! command -v "$program" >/dev/null; then
            echo "skipped: lint-$kind: $program is not installed"
            s=$((s + 1))
        elif [ "$kind" = format ] && ! command -v clang-format-14 >/dev/null && ! clang-format --version | grep -q 'version 14\.'; then
            echo "skipped: lint-format: versions of clang-format differ, and the tree is formatted with 14"
            s=$((s + 1))
        elif step lint "$kind" build "lint-$kind"; then
            p=$((p + 1))
        else
            f=$((f + 1))
        fi
    done
    report lint "$p" "$f" "$s"
}

start=$SECONDS
if ! step build build build all tests; then
    # Without programs there is nothing to test.
    [ -z "$WERROR" ] || echo "(if these are new warnings of your compiler: make check WERROR=)"
    report build 0 1 0
else
    report build 1 0 0
    for suite in "$@"; do
        start=$SECONDS
        if declare -F "suite_$suite" >/dev/null; then
            "suite_$suite"
        else
            echo "there is no suite '$suite'"
            report "$suite" 0 1 0
        fi
    done
fi

printf '%d passed, %d failed' "$passed" "$failed"
[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
printf '\n'
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
