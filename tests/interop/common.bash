# shellcheck shell=bash
# Provides what the Bats files of this folder share: a Python with the packages of others, and what is missing of them.

# SPX_INTEROP, a Python: where it is not set, `make check-interop` has tried to make one in $SPX_BUILD/interop.
python=${SPX_INTEROP:-$SPX_BUILD/interop/bin/python}

# need_package MODULE...: skip the test where the Python lacks a module, with the reason.
need_package() {
    local m why
    for m in "$@"; do
        why=$("$python" -c "import $m" 2>&1) || skip "no $m in $python: $(tail -n 1 <<<"$why")"
    done
}

# need_desispec: SPX_DESISPEC names a checkout of desispec (or is `installed`), whose packages the Python has.
need_desispec() {
    [ -n "${SPX_DESISPEC:-}" ] || skip "SPX_DESISPEC does not name a checkout of desispec"
    if [ "$SPX_DESISPEC" != installed ]; then
        [ -d "$SPX_DESISPEC/py/desispec" ] || skip "no py/desispec in SPX_DESISPEC ($SPX_DESISPEC)"
        export PYTHONPATH=$SPX_DESISPEC/py${PYTHONPATH:+:$PYTHONPATH}
    fi
    need_package desispec.io desispec.coaddition desispec.sky
}

# script NAME ARGUMENT...: runs NAME.py of this folder, which asserts, and says nothing when all is right.
script() {
    run env OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 DESI_LOGLEVEL=error "$python" "$SPX_ROOT/tests/interop/$1.py" "${@:2}"
    # Bats sets both.
    # shellcheck disable=SC2154
    [ "$status" -eq 0 ] || {
        echo "$output"
        return 1
    }
}
