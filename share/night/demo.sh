#!/usr/bin/env bash
# demo.sh FOLDER: simulates a night (simulate.sh, which says what the environment sets), reduces it (reduce.mk), and compares
# velocities and parameters with the truth. `make simulate-night` runs it in night-out/.
set -euo pipefail
# PETALS=1 and the like of `make simulate-night` are no settings of reduce.mk.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
here=$(cd "$(dirname "$0")" && pwd)
SECONDS=0
"$here/simulate.sh" "$1"
cd "$1"
echo "simulated in $SECONDS s"
SECONDS=0
make -s -f "$here/../reduce.mk" NIGHT="${NIGHT:-20201214}" -j"$(nproc)" || echo "(failures were asked for: FAULTS= simulates a night without)"
echo "reduced in $SECONDS s"
for rv in redux/*/rv-[0-9]*.h5; do
    tile=${rv##*-}
    for truth in truth/r*-"$tile"; do
        printf '\n%s against %s: ' "$rv" "$truth"
        awk -F, -f "$here/../demo/report.awk" \
            <(h5table --csv -c TARGETID,FIBER,OBJTYPE,VRAD,TEFF,LOGG,FEH,ALPHAFE "$truth") \
            <(h5table --csv -c TARGETID,VRAD,VRAD_ERR,TEFF,TEFF_ERR,LOGG,LOGG_ERR,FEH,FEH_ERR,ALPHAFE,ALPHAFE_ERR,SN_R,RVS_WARN "$rv") |
            sed '1,/^$/d'
    done
done
