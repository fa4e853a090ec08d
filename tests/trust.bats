# Nothing is silently wrong when the machine fails: one call of the system fails, each in turn, and the program either ends
# with status 4 and a message, leaving nothing behind, or its product has the same bytes. Here a sample of the calls;
# `make trust` takes all of them (SPX_STRIDE=1).

load common

setup_file() {
    example_data
}

# Programs that write (tests/faults.bats has their list), and those that print; $d is the data folder.
# The lists are expanded where they are used.
# shellcheck disable=SC2016
eval "$(sed -n '/^writers=(/,/^)/p' "$SPX_ROOT/tests/faults.bats")"
# shellcheck disable=SC2016
readers=(
    'h5table --csv $d/rv.h5'
    'h5check $d/frame-b0.h5'
)

# shellcheck disable=SC2034,SC2154
# sweep CLASS STRIDE [on]: all programs, each STRIDE-th call of the class.
sweep() {
    local class=$1 stride=${SPX_STRIDE:-$2} on=${3:+:on} d=$BATS_FILE_TMPDIR/data inject=$SPX_BUILD/tests/trust/inject.so
    local w n total out status bad=0 tried=0
    [ -e "$inject" ] || skip "built with sanitizers: they have the calls already"
    export OMP_NUM_THREADS=1 TMPDIR=$PWD/tmp
    mkdir tmp
    for w in "${writers[@]}" "${readers[@]}"; do
        eval "set -- $w"
        out=$PWD/product
        case " ${readers[*]} " in *" $w "*) ;; *) set -- "$@" --reproducible -o "$out" ;; esac
        LD_PRELOAD=$inject SPX_INJECT_COUNT=count "$@" >stdout.right 2>stderr || {
            echo "$*: fails by itself"
            cat stderr
            return 1
        }
        mv count "$BATS_TEST_TMPDIR/count"
        total=$(sed -n "s/^$class //p" "$BATS_TEST_TMPDIR/count")
        [ ! -e "$out" ] || mv "$out" "$BATS_TEST_TMPDIR/right"
        mv stdout.right "$BATS_TEST_TMPDIR/stdout.right"
        rm -f stderr
        for ((n = 1; n <= total; n += stride)); do
            status=0
            timeout 60 env LD_PRELOAD="$inject" SPX_INJECT=$class:$n$on "$@" >"$BATS_TEST_TMPDIR/stdout" \
                2>"$BATS_TEST_TMPDIR/stderr" || status=$?
            tried=$((tried + 1))
            case $status in
                0) if [ -e "$out" ]; then cmp "$out" "$BATS_TEST_TMPDIR/right"; else
                    cmp "$BATS_TEST_TMPDIR/stdout" "$BATS_TEST_TMPDIR/stdout.right"
                fi || bad=$((bad + 1)) ;;
                4) if [ -e "$out" ] || [ ! -s "$BATS_TEST_TMPDIR/stderr" ]; then
                    echo "status 4 with an output or without a message"
                    false
                fi ;;
                *) false ;;
            esac || {
                echo "$class $n$on of $total: status $status: $*"
                head -3 "$BATS_TEST_TMPDIR/stderr"
                bad=$((bad + 1))
            }
            rm -f "$out"
            if [ -n "$(find . -mindepth 1 ! -name tmp)" ]; then
                echo "$class $n$on: left behind: $(find . -mindepth 1 ! -name tmp)"
                bad=$((bad + 1))
                rm -rf tmp/*
            fi
            [ "$bad" -lt 10 ] || return 1
        done
    done
    echo "$tried tries" >&3
    [ "$bad" -eq 0 ]
}

@test "a read that fails is status 4, or makes no difference" {
    sweep pread 7
}

@test "a file that cannot be opened" {
    sweep open 3
}

@test "an allocation that fails, in whatever library" {
    sweep alloc 701
}

@test "no memory from a point on" {
    sweep alloc 1499 on
}
