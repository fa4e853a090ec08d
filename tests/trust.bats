# Nothing is silently wrong when the machine fails or an input is hostile: each class of attacks (tests/trust/README) with
# as many tries as take a few seconds. `make trust` makes all of them.

load common

setup_file() {
    example_data
}

# attack CLASS...: no try goes wrong.
attack() {
    [ -e "$SPX_BUILD/tests/trust/inject.so" ] || skip "built with sanitizers: they have the calls already"
    TRUST_DATA=$BATS_FILE_TMPDIR/data "$SPX_ROOT/tests/trust/run.sh" -c -o "$PWD/kept" "$@" | tee table >&2
    sed -n '3,$s/^/# /p' table >&3
}

@test "every class of attacks is here" {
    diff <("$SPX_ROOT/tests/trust/run.sh" -l | sort) \
        <(sed -n 's/^ *attack \(.*\)/\1/p' "$SPX_ROOT/tests/trust.bats" | tr ' ' '\n' | sort)
}

@test "every class of attacks has a row in the table of results" {
    diff <("$SPX_ROOT/tests/trust/run.sh" -l | sort) \
        <(awk -F ' *[|] *' 'NR > 2 { print $2 }' "$SPX_ROOT/tests/trust/results" | sort)
}

# without_memory N COMMAND...: its N-th allocation fails; 0: none, and `total` is how many there are.
without_memory() {
    local n=$1
    shift
    [ -e "$SPX_BUILD/tests/trust/inject.so" ] || skip "built with sanitizers: they have the calls already"
    run --separate-stderr env OMP_NUM_THREADS=1 "LD_PRELOAD=$SPX_BUILD/tests/trust/inject.so" \
        "SPX_INJECT=alloc:$n" "SPX_INJECT_COUNT=$PWD/count" "$@"
    total=$(sed -n 's/^alloc //p' count)
}

@test "memory that runs out after the last product of a queue changes nothing" {
    local total k n
    local extract=(specx-extract -q -j 1 --wavelength '6400,6410,0.8' --spectra 0:2 -f -o out/
        "$BATS_FILE_TMPDIR/data/image-r0.h5")
    mkdir out
    without_memory 0 "${extract[@]}"
    n=$total
    for k in 0 3 9; do
        rm out/*
        without_memory $((n - k)) "${extract[@]}"
        [ "$status" -eq 0 ]
        # shellcheck disable=SC2154
        [ -z "$stderr" ]
        h5check out/*
    done
}

@test "an input that cannot be closed is named" {
    [ -e "$SPX_BUILD/tests/trust/inject.so" ] || skip "built with sanitizers: they have the calls already"
    local extract=(specx-extract -q -j 1 --wavelength '6400,6410,0.8' --spectra 0:2 -f -o out.h5
        "$BATS_FILE_TMPDIR/data/image-r0.h5") how=("LD_PRELOAD=$SPX_BUILD/tests/trust/inject.so" "SPX_INJECT_COUNT=$PWD/count")
    env "${how[@]}" "${extract[@]}"
    run --separate-stderr env "${how[@]}" "SPX_INJECT=close:$(sed -n 's/^close //p' count):EIO" "${extract[@]}"
    [ "$status" -eq 4 ]
    # shellcheck disable=SC2154
    [ "${#stderr_lines[@]}" -eq 1 ]
    [[ $stderr == "specx-extract: $BATS_FILE_TMPDIR/data/image-r0.h5: closing failed: "* ]]
}

@test "h5check says once that there is no memory" {
    local total n k
    without_memory 0 h5check "$BATS_FILE_TMPDIR/data/frame-b0.h5"
    n=$total
    for ((k = 1; k <= n; k += 97)); do
        without_memory $k h5check "$BATS_FILE_TMPDIR/data/frame-b0.h5"
        [ "$status" -eq 4 ]
        # shellcheck disable=SC2154
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
}

@test "calls of files fail" {
    attack write interrupted create close read open
}

@test "threads and memory fail" {
    attack thread map alloc alloc-on alloc-many
}

@test "calls of CUDA fail, and devices disappear" {
    [ -e "$SPX_BUILD/lib/specpipe/backend-cuda.so" ] || skip "built without nvcc"
    attack cuda cuda-lost cuda-full
}

@test "limits on memory, stacks, files and disks" {
    attack space stack size files full
}

@test "ends in the middle, several writers, outputs that are inputs" {
    attack kill writers same
}

@test "damaged and hostile input" {
    attack flip fits hdf5 npz texts parsers options names
}

@test "compressed images are damaged" {
    attack tile-keys tile-bytes fits-sums heaps
}

@test "wrong science input" {
    attack science
}
