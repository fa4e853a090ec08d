# specpipe-info: versions, backends and why they cannot be used, hooks.

load common

@test "versions, backends, hooks" {
    specpipe-info --device cpu >info.txt
    grep -qx "specpipe: $(cat "$SPX_ROOT/VERSION")" info.txt
    grep -qE '^hdf5: 1\.[0-9]+\.[0-9]+$' info.txt
    grep -qE '^zlib: [0-9.]+$' info.txt
    grep -qx 'backend cpu: part of each program' info.txt
    grep -q '^backend cuda: ' info.txt
    grep -q '^hook python: ' info.txt
    [ "$(tail -n 1 info.txt)" = 'device: cpu' ]
    # every line is key: value
    run ! grep -vE '^[a-z][a-z0-9: ]*: .' info.txt
}

@test "--json: the same lines" {
    specpipe-info --device cpu | grep -v 'memory are free' >info.txt
    specpipe-info --device cpu --json >info.json
    python3 -c 'import json
j = json.load(open("info.json"), object_pairs_hook=lambda p: p)
assert len(dict(j)) == len(j)
lines = [k + ": " + line for k, v in j for line in v.split("\n") if "memory are free" not in line]
assert sorted(lines) == sorted(open("info.txt").read().splitlines()), lines'
    run -5 specpipe-info --json --device cuda:77
    fails_with 2 '*--json: not with --clean*' specpipe-info --json --clean .
    fails_with 2 '*--json: not with --rules*' specpipe-info --json --rules text
}

@test "why a backend or hooks cannot be used" {
    SPX_BACKENDS=$PWD specpipe-info >info.txt
    grep -q '^backend cuda: not usable: .*--device cuda: ' info.txt
    grep -q '^hook python: not usable: .*no hooks' info.txt
    grep -qx 'device: cpu' info.txt
    run -5 env SPX_BACKENDS="$PWD" specpipe-info --device cuda
    run -5 specpipe-info --device cuda:77
    fails_with 2 '*no input*' specpipe-info x.h5
}

@test "the Python of hooks" {
    need_hook
    specpipe-info | grep -qE '^python: .*, version 3\.[0-9]+, library libpython3'
    SPX_PYTHON=/nowhere specpipe-info | grep -q '^python: not usable: .*SPX_PYTHON'
}
