#!/usr/bin/env bash
# tests/trust/run.sh [-s STRIDE | -c] [-j JOBS] [-o FOLDER] [CLASS...]: attacks the programs of $SPX_BUILD and prints a table: class,
# tries, wrong, soft. Exit status 1 when a try went wrong. `make trust` calls it; tests/trust.bats calls it with -c.
#
#     -s STRIDE   each STRIDE-th try only (1: all)
#     -c          the stride that each class has in `make check`
#     -j JOBS     processes among which the tries are divided (default: one a processor)
#     -o FOLDER   where results are kept (default: $SPX_BUILD/trust)
#     -l          list the classes
#     -t          the table of all results that are kept, without a try
#
# TRUST_DATA is a folder for the data of tests/examples.sh, which are made there unless they are. SEED=N is another
# sequence of random damages. CLASS.tries, where results are kept, has a line for each try that was wrong or soft.
# Classes are the functions class_NAME of the files *.bash here: README.
set -u -o pipefail
shopt -s nullglob
SPX_ROOT=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
SPX_BUILD=${SPX_BUILD:-$SPX_ROOT/build}
case $SPX_BUILD in /*) ;; *) SPX_BUILD=$SPX_ROOT/$SPX_BUILD ;; esac
SPX_SHARED=${SPX_SHARED:-$SPX_ROOT/../shared}
export SPX_ROOT SPX_BUILD SPX_SHARED SEED=${SEED:-1} LC_ALL=C
PATH=$SPX_BUILD/bin:$SPX_BUILD/tests/helpers:$PATH

declare -a classes=()
declare -A check_stride=() about=() file_of=()
# class NAME STRIDE TEXT: declares the class of class_NAME(); STRIDE is that of `make check`.
# shellcheck disable=SC2317
class() {
    classes+=("$1")
    check_stride[$1]=$2
    about[$1]=$3
    file_of[$1]=${BASH_SOURCE[1]}
}
# shellcheck source=tests/trust/lib.sh
. "$SPX_ROOT/tests/trust/lib.sh"
# shellcheck disable=SC1090
for f in "$SPX_ROOT"/tests/trust/*.bash; do . "$f"; done

stride=1 check=0 table=0 kept=$SPX_BUILD/trust jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
while getopts s:cj:o:lt option; do
    case $option in
    s) stride=$OPTARG ;;
    c) check=1 ;;
    j) jobs=$OPTARG ;;
    o) kept=$OPTARG ;;
    l)
        printf '%s\n' "${classes[@]}"
        exit
        ;;
    t) table=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- "${classes[@]}"
for c in "$@"; do
    [ -n "${about[$c]:-}" ] || {
        echo "no class '$c': ${classes[*]}" >&2
        exit 2
    }
done
mkdir -p "$kept" || exit

# row CLASS TRIES WRONG SOFT STRIDE SECONDS ABOUT
row() { printf '| %-12s | %6s | %5s | %5s | %6s | %7s | %s |\n' "$@"; }
head_of_table() {
    row class tries wrong soft stride seconds attack
    row ------------ -----: ----: ----: -----: ------: ---
}
# row_of CLASS: its result that is kept.
row_of() {
    local -a figures
    read -ra figures <"$kept/$1.table"
    row "$1" "${figures[@]}" "${about[$1]}"
}

if [ $table = 1 ]; then
    head_of_table
    for c in "${classes[@]}"; do
        [ ! -e "$kept/$c.table" ] || row_of "$c"
    done
    exit
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/trust.XXXXXX") || exit
# Folders that a try has made unwritable go, too.
trap 'chmod -R u+rwx "$work" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
ulimit -c 0 # crashes are expected: no core files
TRUST_DATA=${TRUST_DATA:-$work/data}
if [ ! -e "$TRUST_DATA/stars-r0.h5" ]; then # the last that tests/examples.sh makes
    mkdir -p "$TRUST_DATA"
    (cd "$TRUST_DATA" && bash "$SPX_ROOT/tests/examples.sh") || exit
fi
export d=$TRUST_DATA

# part CLASS K STRIDE: the tries of a class that are the K-th process's.
part() {
    # shellcheck disable=SC2034
    trust_part=$2 trust_stride=$3 trust_n=0 trust_results=$work/$1.$2.results
    : >"$trust_results"
    mkdir "$work/$1.$2" && cd "$work/$1.$2" || return
    export TMPDIR=$PWD/tmp
    # shellcheck disable=SC1090
    . "${file_of[$1]}" # its functions, not those of another file with the same names
    "class_$1"
    echo end >>"$trust_results"
}

bad=0
head_of_table
for c in "$@"; do
    [ $check = 0 ] || stride=${check_stride[$c]}
    begun=$SECONDS pids=()
    for ((k = 0; k < jobs; k++)); do
        part "$c" "$k" "$stride" >"$work/$c.$k.log" 2>&1 </dev/null &
        pids+=($!)
    done
    wait "${pids[@]}"
    for ((k = 0; k < jobs; k++)); do
        [ "$(tail -n 1 "$work/$c.$k.results")" = end ] ||
            printf 'wrong\tthe class ended early: %s\n' "$(tail -n 3 "$work/$c.$k.log" | tr '\n' ' ')" >>"$work/$c.$k.results"
    done
    cat "$work/$c".*.results | grep -v '^end$' | sort >"$kept/$c.all"
    grep -v '^ok$' "$kept/$c.all" >"$kept/$c.tries"
    printf '%d %d %d %d %d\n' "$(wc -l <"$kept/$c.all")" "$(grep -c '^wrong' "$kept/$c.tries")" \
        "$(grep -c '^soft' "$kept/$c.tries")" "$stride" $((SECONDS - begun)) >"$kept/$c.table"
    row_of "$c"
    if grep -q '^wrong' "$kept/$c.tries" || [ ! -s "$kept/$c.all" ]; then
        bad=1
        grep '^wrong' "$kept/$c.tries" | head -n 12
        [ -s "$kept/$c.all" ] || echo "no try was made"
    fi
    rm -f "$kept/$c.all"
    chmod -R u+rwx "$work/$c".* && rm -rf "$work/$c".*
done
exit $bad
