#!/usr/bin/env bash
# coadd.sh SEEDS CASE...: exposures of the same stars, from images to velocities, by simple and optimal coadds and by
# joint fits (rvs-fit --joint target). SEEDS: FIRST:LAST, LAST included, 40 stars of S/N 20 to 60 an Angstrom each, 700
# Angstrom of arm r. One line a case and way: median and 1.4826 MAD of (v - truth)/error with their statistical errors;
# error in units of the joint fit's (mean); median and 1.4826 MAD of (v - v(joint))/error; of the coadds, chi squared of the
# last exposure against the others, and bins that were rejected, in per mille.
#
# Four exposures with one PSF, unless it is said otherwise. Cases:
#     equal masks widths wide-1.3 wide-1.5 deep   5 % of the bins masked; lines 1, 1.05, 1.1, 1.15 wide; two exposures, the
#                                                 second wider, and four times as deep
#     ivar moved sky hits flagged grey tilt       the last one has errors half as large as they are, or wavelengths 0.1 bin
#                                                 off; 3 % of the sky is left; 0.4 % of the bins are 8 to 100 errors too
#                                                 bright; cosmic rays that are flagged; factors of 30 % that scales mend;
#                                                 factors that depend on wavelength, 20 %
set -euo pipefail
seeds=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/science/common.bash
. "$here/common.bash"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
range=6300,7000
make_templates templates.h5 r:6280:7020:0.4:FWHM=1.1774

# expose NAME NUMBER PSF [SIM-OPTION...]: an exposure, extracted with the PSF that it is drawn with (right) or with that of
# the options without --shift (old)
expose() {
    local name=$1 number=$2 psf=()
    specx-sim -q -f --arm r --seed "$seed" --expid "$number" --noise-seed $((100 * seed + number)) --wavelength $range \
        --teff 4800:6800 --logg 3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 --snr 20:60 --cosmics 0 --bad-columns 0 \
        "${light[@]}" "${@:4}" --truth truth.h5 -o image.h5
    if [ "$3" = right ]; then
        h5edit image.h5 delete /psf
        psf=(truth.h5)
    fi
    specx-extract -q -f -w "$range,0.8" -o "$name.h5" image.h5 "${psf[@]}"
}

# four CASE PSF [SIM-OPTION...]: exposures CASE1 ... CASE4
four() {
    local e
    for e in 1 2 3 4; do
        expose "$1$e" "$e" "$2" "${@:3}"
    done
}

# compare CASE FILE...: coadds and fits of a case's exposures
compare() {
    local case=$1 way
    shift
    column TARGETID,VRAD truth.h5 /truth/table | sort -k 1,1 >truth
    for way in joint simple optimal; do
        if [ $way = joint ]; then
            rvs-fit -q -f -t templates.h5 --resolution-matrix --no-model --joint target -o rv.h5 "$@"
        else
            h5merge -q -f --coadd $way --allow-topocentric -o coadd.h5 "$@"
            rvs-fit -q -f -t templates.h5 --resolution-matrix --no-model -o rv.h5 coadd.h5
            column EXPID,COADD_CHI2_R,COADD_REJECTED_R,COADD_GOOD_R coadd.h5 /exp_fibermap |
                awk -v last=$# '{ if ($1 == last || last == 2) { c += $2; n++ } r += $3; g += $4 }
                    END { print c / n, 1000 * r / (r + g) }' >>"$case-$way.exposures"
        fi
        column TARGETID,VRAD,VRAD_ERR rv.h5 /rvfit/table | sort -k 1,1 >fit-$way
        # target, truth, v, error, v and error of the joint fit
        join truth fit-$way | join - fit-joint >>"$case-$way"
    done
}

for ((seed = ${seeds%:*}; seed <= ${seeds#*:}; seed++)); do
    light=(--no-sky --fibers 40 --sky-fibers 0)
    four equal old
    for case in "$@"; do
        files=("$case"1.h5 "$case"2.h5 "$case"3.h5 "$case"4.h5)
        case $case in
        equal) ;;
        masks | hits)
            for e in 1 2 3 4; do
                cp "equal$e.h5" "$case$e.h5"
                paste -d' ' <(values "equal$e.h5" /frame/flux) <(values "equal$e.h5" /frame/ivar) |
                    awk -v seed="$seed$e" -v hits="$([ "$case" = masks ] || echo 1)" '
                        BEGIN { srand(seed) }
                        rand() < (hits ? 0.004 : 0.05) {
                            if (hits && $2 > 0) print "set /frame/flux", NR - 1, $1 + (8 + 92 * rand()) / sqrt($2)
                            if (!hits) print "set /frame/mask", NR - 1, 4
                        }' | xargs -n 2000 h5edit "$case$e.h5"
            done
            ;;
        widths)
            for e in 1 2 3 4; do
                expose "widths$e" $e right --shift "0,0,0,$(awk -v e=$e 'BEGIN { print 0.05 * (e - 1) }')"
            done
            ;;
        wide-*)
            expose "$case" 2 right --shift "0,0,0,0${case#wide-1}"
            files=(equal1.h5 "$case.h5")
            ;;
        deep)
            expose deep 2 right --shift 0,0,0,0.3 --exptime 3600 --snr 40:120
            files=(equal1.h5 deep.h5)
            ;;
        ivar)
            cp equal4.h5 ivar.h5
            h5edit ivar.h5 scale /frame/ivar 4
            files=(equal1.h5 equal2.h5 equal3.h5 ivar.h5)
            ;;
        moved) # a row is 0.6 Angstrom
            expose moved 4 old --shift 0,0.1333
            files=(equal1.h5 equal2.h5 equal3.h5 moved.h5)
            ;;
        sky)
            light=(--fibers 50 --sky-fibers 10)
            four sky old --fiber-scatter 0.03
            for e in 1 2 3 4; do
                specx-sky -q --scale none --terms 1,0,0 "sky$e.h5" -o rest.h5
                mv rest.h5 "sky$e.h5"
            done
            light=(--no-sky --fibers 40 --sky-fibers 0)
            ;;
        flagged) four flagged old --cosmics 100 ;;
        grey) four grey old --fiber-scatter 0.3 ;;
        tilt)
            for e in 1 2 3 4; do
                expose "tilt$e" $e old --throughput 0.2 --instrument-seed $e
            done
            ;;
        *)
            echo "coadd.sh: there is no case $case" >&2
            exit 2
            ;;
        esac
        compare "$case" "${files[@]}"
    done
done

printf '   %-9s %-8s %-29s %-7s %-14s %s\n' case way 'pulls (median, scatter)' 'error' 'from joint' 'chi2, rejected'
for case in "$@"; do
    for way in simple optimal joint; do
        printf '   %-9s %-8s ' "$case" $way
        awk '{ print ($3 - $2) / $4 }' "$case-$way" | robust |
            awk '{ printf "%+.2f +- %.2f  %.2f +- %.2f  ", $1, 1.25 * $2 / sqrt($3), $2, 1.17 * $2 / sqrt($3) }'
        awk '{ r += $4 / $6; n++ } END { printf "%7.4f  ", r / n }' "$case-$way"
        if [ $way = joint ]; then
            echo
            continue
        fi
        awk '{ print ($3 - $5) / $6 }' "$case-$way" | robust | awk '{ printf "%+.3f %.3f", $1, $2 }'
        awk '{ c += $1; r += $2; n++ } END { printf "    %.3f  %.2f\n", c / n, r / n }' "$case-$way.exposures"
    done
done
