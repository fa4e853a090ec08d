#!/usr/bin/env bash
# night.sh SEEDS CASE...: simulated exposures of arms r and z (parts of them), reduced from images to velocities, with one
# effect at a time: one line a case, with chi squared of the sky (each sky fibre as if it had been a target; off lines, on
# lines, brightest 1 % of bins; both arms), and median and 1.4826 MAD of pulls, with their statistical errors. SEEDS:
# FIRST:LAST, LAST included, each 60 stars of S/N 20 to 60 and 15 sky fibres. The programs are found on the PATH.
#
#     night.sh 1:2 plain moved shifted            traces as the PSF says; moved; moved, and followed by specx-shift
#     night.sh 1:2 moffat disc tails fringes      the code's own assumptions are false
set -euo pipefail
seeds=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/science/common.bash
. "$here/common.bash"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
declare -A range=([r]='6000,7000' [z]='8250,8950')

make_templates templates.h5 r:5990:7010:0.4:FWHM=1.1774 z:8240:8960:0.4:FWHM=1.1774

# one CASE "SIM-OPTIONS" "FLAT'S SIM-OPTIONS" KNOTS SHIFT(yes|no)
one() {
    local name=$1 sim=$2 flat=$3 knots=$4 follow=$5 seed arm
    rm -f truth.csv rv.csv sky.txt
    for ((seed = ${seeds%:*}; seed <= ${seeds#*:}; seed++)); do
        for arm in r z; do
            # The options are words.
            # shellcheck disable=SC2086
            specx-sim -q -f --arm $arm --seed "$seed" --fibers 75 --sky-fibers 15 --wavelength "${range[$arm]}" --cosmics 0 \
                --teff 4800:6800 --logg 3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 --snr 20:60 --throughput 0.05 $sim \
                --truth truth-$arm.h5 -o image-$arm.h5
            # shellcheck disable=SC2086
            specx-sim -q -f --arm $arm --seed "$seed" --noise-seed $((1000 + seed)) --fibers 75 --wavelength "${range[$arm]}" \
                --cosmics 0 --throughput 0.05 --flat $flat -o lamp-$arm.h5
            if [ "$follow" = yes ]; then
                specx-shift -q -f -o moved-$arm.h5 image-$arm.h5
                mv moved-$arm.h5 image-$arm.h5
            fi
            specx-extract -q -w "${range[$arm]},0.8" lamp-$arm.h5 | specx-flat -q -f --knots "$knots" -o flat-$arm.h5
            specx-extract -q --reject 5 -w "${range[$arm]},0.8" image-$arm.h5 |
                specx-sky -f --flat flat-$arm.h5 -o sframe-$arm.h5 2>>sky.txt
        done
        h5merge -q -f sframe-r.h5 sframe-z.h5 -o spectra.h5
        rvs-fit -q -f -t templates.h5 --resolution-matrix -o rv.h5 spectra.h5
        h5table --csv -c TARGETID,FIBER,OBJTYPE,VRAD,TEFF,LOGG,FEH truth-r.h5 | tail -n +$((seed > ${seeds%:*} ? 2 : 1)) >>truth.csv
        h5table --csv -c TARGETID,VRAD,VRAD_ERR,TEFF,TEFF_ERR,LOGG,LOGG_ERR,FEH,FEH_ERR,SN_R,RVS_WARN rv.h5 |
            tail -n +$((seed > ${seeds%:*} ? 2 : 1)) >>rv.csv
    done
    awk -F, -f "$here/../../share/demo/report.awk" truth.csv rv.csv >report.txt || true # 1: beyond the demo's limits
    grep -q '^ *velocity' report.txt || {
        echo "night.sh: $name: no stars" >&2
        exit 1
    }
    awk -v name="$name" '
        FNR == NR {
            if (match($0, /off [0-9.]+, on [0-9.]+, top [0-9.]+/)) {
                split(substr($0, RSTART, RLENGTH), x, /[ ,]+/)
                off += x[2]; on += x[4]; top += x[6]; n++
            }
            next
        }
        $1 == "velocity" { v = sprintf("%6.2f km/s  %s +- %s  %s +- %s", $3, $5, $7, $8, $10) }
        $1 == "teff" { t = sprintf("%s +- %s  %s +- %s", $5, $7, $8, $10) }
        END { printf "   %-10s %5.3f %5.3f %5.3f  %s  teff %s\n", name, off / n, on / n, top / n, v, t }' sky.txt report.txt
}

printf '   %-10s %-17s  %s\n' case 'sky: off on top' 'velocity: scatter, pulls (median, scatter); pulls of teff'
for name in "$@"; do
    case $name in
    plain) one plain '' '' 60 no ;;
    moved) one moved '--shift wave' '--shift wave' 60 no ;;
    shifted) one shifted '--shift wave' '--shift wave' 60 yes ;;
    hits) one hits '--cosmics 25 --no-flag-cosmics' '' 60 no ;;
    scatter) one scatter '--fiber-scatter 0.02 --sky-lines 0.2' '' 60 no ;;
    moffat) one moffat '--spots moffat' '--spots moffat' 60 no ;;
    disc) one disc '--spots disc' '--spots disc' 60 no ;;
    tails) one tails '--tails 0.02' '--tails 0.02' 60 no ;;
    between) one between '--step 0.0437' '' 60 no ;;
    fringes) one fringes '--fringes 0.03' '--fringes 0.03' 60 no ;;
    fringes-10) one fringes-10 '--fringes 0.03' '--fringes 0.03' 10 no ;; # three knots a period of 28 Angstrom in r
    stars) one stars '--star-error 0.02' '' 60 no ;;
    *)
        echo "night.sh: there is no case $name" >&2
        exit 2
        ;;
    esac
done
