#!/usr/bin/env bash
# targets.sh NSIDE LIST FILE...: writes LIST, the pixels of HEALPix and the TARGETIDs of a fibermap, from the first of some
# images that can be read. Its first line says NSIDE, name, size and time of that file: while it holds, nothing is done.
set -euo pipefail
here=$(dirname "$0") nside=$1 list=$2
old=
[ ! -e "$list" ] || read -r old <"$list"
for file in "${@:3}"; do
    identity="$nside $(stat -L -c '%n %s %.Y' "$file")"
    [ "$old" != "$identity" ] || exit 0
done
for file in "${@:3}"; do
    if {
        echo "$nside $(stat -L -c '%n %s %.Y' "$file")"
        fits2h5 -q "$file" | h5table -q --csv -t /fibermap -c TARGETID,TARGET_RA,TARGET_DEC,OBJTYPE |
            awk -F, -v nside="$nside" -f "$here/healpix.awk"
    } >"$list.$$" 2>>"$list.$$.messages"; then
        mv "$list.$$" "$list"
        rm "$list.$$.messages"
        exit 0
    fi
done
cat "$list.$$.messages" >&2
rm -f "$list.$$" "$list.$$.messages" "$list"
