# Which room of libcommon and kernels includes which: the table of README.md is kept; kernels name no options of programs
# (tests/rooms.sh).
# shellcheck shell=bash
load common

# plant FILE LINE: a copy of the tree where FILE begins with LINE.
plant() {
    rm -rf tree
    mkdir -p tree/tools
    cp -r "$SPX_ROOT/libcommon" "$SPX_ROOT/kernels" "$SPX_ROOT/README.md" tree
    cp -r "$SPX_ROOT/tools/common" tree/tools
    cp -rL "$SPX_ROOT/python" tree/python
    mkdir -p "$(dirname "tree/$1")"
    touch "tree/$1"
    sed -i "1i$2" "tree/$1" 2>/dev/null || :
    [ -s "tree/$1" ] || printf '%s\n' "$2" >"tree/$1"
}

# refused FILE LINE: it is, and the file is named.
refused() {
    plant "$1" "$2"
    run -1 "$SPX_ROOT/tests/rooms.sh" tree
    [[ $output == *"$1"* ]]
}

@test "every include is allowed" {
    run -0 "$SPX_ROOT/tests/rooms.sh"
    [[ $output == *"arrows between rooms" ]]
}

@test "an include upwards is refused" {
    refused libcommon/base/mem.c '#include "h5/table.h"'
    refused libcommon/products/image.c '#include "run/select.h"'
    refused libcommon/fits/scan.c '#include "psf/psf.h"'
    refused kernels/psf/psf.c '#include "app/opt.h"'
    refused kernels/psf/psf.c '#include "products/psf_h5.h"'
}

@test "a library outside its room is refused" {
    refused libcommon/products/image.h '#include <hdf5.h>'
    refused libcommon/products/psf_h5.c '#include <fitsio.h>'
    refused libcommon/products/site.c '#include <erfa.h>'
    refused libcommon/num/stat.c '#include <omp.h>'
    refused kernels/psf/psf_math.h '#include <hdf5.h>'
}

@test "a circle of headers is refused" {
    plant libcommon/base/err.h '#include "base/text.h"'
    run -1 "$SPX_ROOT/tests/rooms.sh" tree
    [[ $output == *circle* && $output == *base/err.h* ]]
}

@test "a room that README.md does not have is refused" {
    refused libcommon/attic/old.c '#include "base/mem.h"'
}

@test "a folder that README.md does not have, and packages of Python that not everybody has, are refused" {
    plant attic/old.c '#include "base/mem.h"'
    run -1 "$SPX_ROOT/tests/rooms.sh" tree
    [[ $output == *"attic/: not in the table"* ]]
    refused python/specpipe/tables.py 'import astropy'
    refused python/specpipe/tables.py '    import astropy'
    refused python/specpipe/bridges.py 'import matplotlib'
}

@test "a program is short: 350 lines at most" {
    run -0 awk 'FNR == 351 { print FILENAME }' "$SPX_ROOT"/tools/*.c
    [ -z "$output" ]
}
