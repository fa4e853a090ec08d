#!/usr/bin/env bash
# tests/rooms.sh [ROOT]: which room includes which, against the table "Where things are" of ROOT/README.md (the last
# column of the rooms of libcommon/); prints each include that is not allowed as `file: header: why`, else the number of
# arrows between rooms. Exit status 1: something is not allowed.
#
#   libcommon/ROOM/    headers of ROOM, and of rooms in its line of the table
#   kernels/           base/, num/, products/NAME.h and kernels
#   <hdf5.h>           h5/, NAME_h5.{c,h}, and headers of app, convert, merge and run: they hand on files that are open
#   <fitsio.h>         fits/
#   <erfa.h>           num/barycentre.c
#   options            no message in kernels/ names one: {parameter}s, all of them in tools/common/kernel_options.c
#   threads            base/, app/, run/, h5/{deferred,file,gather,inventory,read}.c (large arrays), pthread_once in
#                      h5/schema_parse.c and num/blas.c; kernels
#   headers            no circle
#   Python             scipy in python/specpipe/resolution.py; astropy, specutils, matplotlib in bridges.py
#   folders            each of the top level is in the table
set -u -o pipefail
cd "${1:-$(dirname "$0")/..}" || exit

includes=$(find libcommon kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort |
    xargs grep -H '^ *# *include *["<]' | sed 's/: *# *include */ /; s/[^">]*$//')

# README's rooms: NAME/ first, the rooms that it may include behind the last two blanks or more.
rooms=$(awk '$1 == "libcommon/" { on = 1; next } on && /^    [^ ]/ { exit }
             on && /^      [a-z0-9]+\// { n = split($0, part, /  +/); sub(/\//, "", $1); print $1, part[n] }' README.md)

problems=$(
    {
        printf '%s\n' "$rooms" | sed 's/^/room /'
        find libcommon -mindepth 1 -maxdepth 1 -type d | sed 's|libcommon/|folder |'
        printf '%s\n' "$includes" | sed 's/^/include /'
    } | awk '
        function not_allowed(why) { printf "%s: %s: %s\n", $2, $3, why }
        $1 == "room" { known[$2] = 1; for (i = 3; i <= NF; i++) may[$2, $i] = 1; next }
        $1 == "folder" { if (!($2 in known)) printf "libcommon/%s/: not in the table of README.md\n", $2; next }
        {
            split($2, at, "/")
            room = at[1] == "kernels" ? "kernels" : at[2]
            header = $3
            gsub(/["<>]/, "", header)
            split(header, of, "/")
        }
        $3 ~ /^"/ && room == "kernels" && of[1] in known {
            if (!(of[1] == "base" || of[1] == "num" || of[1] == "products" && header !~ /_h5\.h$/))
                not_allowed("kernels use base, num and the plain structs of products")
            next
        }
        $3 ~ /^"/ && room != "kernels" {
            if (!(of[1] in known))
                not_allowed("libcommon uses libcommon alone, by room")
            else if (of[1] != room && !((room, of[1]) in may))
                not_allowed(room " may not use " of[1] " (README.md)")
            next
        }
        header ~ /^hdf5/ && room != "h5" && $2 !~ /_h5\.[ch]$/ && !(room ~ /^(app|convert|merge|run)$/ && $2 ~ /\.h$/) {
            not_allowed("HDF5 is for h5 and NAME_h5.c")
        }
        header == "fitsio.h" { not_allowed("CFITSIO is for tests") }
        header ~ /^erfa/ && $2 != "libcommon/num/barycentre.c" { not_allowed("ERFA is for num/barycentre.c") }
        header ~ /^(omp|pthread|stdatomic|threads)\.h$/ && room !~ /^(base|app|run|kernels)$/ &&
            $2 !~ /^libcommon\/(h5\/(deferred|file|gather|inventory|read|schema_parse)|num\/blas)\.c$/ { not_allowed("no threads in this room") }'
    find . -mindepth 1 -maxdepth 1 -type d -name '[a-z]*' | sed 's|^\./||' | grep -vxE 'build|carry|demo-out' |
        while read -r folder; do
            grep -q "^    $folder/ " README.md || echo "$folder/: not in the table of README.md"
        done
    # packages that not everybody has are imported where they are used, in one file each
    grep -nE '^ *(import|from) +(scipy|astropy|specutils|matplotlib)' python/specpipe/*.py /dev/null |
        grep -vE '/resolution\.py:[0-9]+: +import scipy|/bridges\.py:[0-9]+: +(import|from) (astropy|specutils|matplotlib)' |
        sed 's/$/: not in this file, or not within a function/'
    # a header that includes itself through others
    printf '%s\n' "$includes" | awk '$2 ~ /^"/ && $1 ~ /\.(h|cuh)$/ {
        sub(/^(libcommon|kernels)\//, "", $1); gsub(/"/, "", $2); print $1, $2 }' | tsort 2>&1 >/dev/null |
        sed 's/^tsort: -: input contains a loop:/headers include each other in a circle:/; s/^tsort: /    /'
    # kernels know no command line: programs put options in place of {parameter}s
    texts=$(grep -rnoE --include='*.[ch]' --include='*.cu' --include='*.cuh' '"[^"]*"' kernels)
    grep -E -- '--[a-z]' <<<"$texts" | sed 's/$/: kernels name no options, but a {parameter}/'
    grep -oE '\{[a-z_]+\}' <<<"$texts" | LC_ALL=C sort -u | tr -d '{}' | while read -r parameter; do
        grep -q "{\"$parameter\", " tools/common/kernel_options.c ||
            echo "kernels: {$parameter}: not in tools/common/kernel_options.c"
    done
    sed -n 's/^    {"\([a-z_]*\)", .*/\1/p' tools/common/kernel_options.c | while read -r parameter; do
        grep -qF "{$parameter}" <<<"$texts" || echo "tools/common/kernel_options.c: $parameter: no message of kernels/ names it"
    done
)
if [ "$(wc -l <<<"$rooms")" -lt 2 ]; then
    problems="README.md: no table of rooms"
fi
if [ -n "$problems" ]; then
    printf '%s\n' "$problems"
    exit 1
fi
printf '%s\n' "$includes" | awk '$2 ~ /^"/ && $1 ~ /^libcommon/ {
    split($1, at, "/"); gsub(/"/, "", $2); split($2, of, "/")
    if (at[2] != of[1] && !seen[at[2], of[1]]++) n++ } END { print n + 0, "arrows between rooms" }'
