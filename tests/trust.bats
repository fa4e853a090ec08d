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

@test "calls of files fail" {
    attack write interrupted create close read open
}

@test "threads and memory fail" {
    attack thread map alloc alloc-on alloc-many
}

@test "calls of CUDA fail, and devices disappear" {
    [ -e "$SPX_BUILD/lib/specpipe/backend-cuda.so" ] || skip "built without nvcc"
    attack cuda cuda-lost
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
