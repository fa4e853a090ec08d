# shellcheck shell=bash
# Limits on a run: address space, stack, size of files, processor time, open files. The run ends with status 4, a message
# and the old output, or with the same products.
# shellcheck disable=SC2154,SC2034

# limit OPTION VALUE...: all commands with each value of an option of prlimit. One that dies before main() has begun, in the
# dynamic loader or the kernel, is no try: it says nothing, or the loader does. Later, a crash says so.
limit() {
    local c value
    for c in "${cases[@]}"; do
        with=()
        right_run "$c" || continue
        for value in "${@:2}"; do
            turn || continue
            disturbed "$c" prlimit "--$1=$value"
            if { [ "$status" -ge 126 ] && [ "$status" -le 139 ]; } &&
                { [ ! -s stderr ] || grep -q 'loading shared libraries\|cannot allocate TLS\|failed to execute\|exec' stderr; }; then
                rm -rf out
                continue
            fi
            # libgomp is initialized before main(), and ends the program; later that has status 4 (base/ending.h)
            if [ "$status" -eq 1 ] && grep -q '^libgomp: Out of memory' stderr && ! grep -q "^${c%% *}: " stderr; then
                rm -rf out
                continue
            fi
            judge "$c" "$1=$value"
        done
    done
}

# from FIRST LAST PERCENT: whole numbers that grow by so much.
from() { awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { for (; a <= b; a *= 1 + p / 100) printf "%d\n", a }'; }

class space 701 "the address space is limited, to each size from 8 MB to 2 GB"
# shellcheck disable=SC2046
class_space() {
    export OMP_NUM_THREADS=2
    limit as $(from 8e6 2e9 2)
}

class stack 211 "the stack is limited, to each size from 16 KiB to 2 MiB, and the stack of threads"
# shellcheck disable=SC2046
class_stack() {
    local kib
    export OMP_NUM_THREADS=3
    limit stack $(from 16384 2097152 6)
    for kib in 16 24 64 200; do
        export OMP_STACKSIZE=${kib}K
        limit stack 8388608
    done
    unset OMP_STACKSIZE
}

class size 61 "a file may not grow beyond each size"
# shellcheck disable=SC2046
class_size() { limit fsize 0 1 $(from 512 4e6 20); }

class files 31 "open files are limited"
class_files() { limit nofile 3 4 5 6 7 8 9 10 11 12 14 16 20; }
