#!/usr/bin/env bash
# Truth test of the extraction: simulated exposures, extracted and compared with what was put in (helpers/frame_truth).
# Usage: truth.sh FOLDER [CASE...]: report.txt and, with gnuplot, a picture of each case (grid b r z artefacts real
# faint faint-data faint-model hits flat flat-shifted flat-fringes flat-spots sky sky-shifted shift shift-arc flux
# night; `real` needs SPX_SHARED). TRUTH_SEEDS=FIRST:LAST: exposures of night, 1:2 without it.
# The programs and helpers are found on the PATH. `make truth` runs all in BUILD/truth. Exit status 1: a case is beyond
# its limits.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
shift
cases=" ${*:-grid b r z artefacts real faint faint-data faint-model hits flat flat-shifted flat-fringes flat-spots sky sky-shifted shift shift-arc flux night} "
rm -f ./*.h5 ./*.txt ./*.png
failed=0
SPX_SHARED=${SPX_SHARED:-}
limits=(--mean 0.01 --sd 0.01 --corr 0.02)

# truth_case NAME TEXT "OPTIONS OF specx-sim" "OPTIONS OF specx-extract" [LIMITS...]
truth_case() {
    local name=$1 text=$2 sim=$3 extract=$4
    shift 4
    [[ $cases == *" $name "* ]] || return 0
    printf '\n== %s: %s\n   specx-sim %s\n' "$name" "$text" "${sim//"$SPX_SHARED"/\$SPX_SHARED}"
    # The options are words.
    # shellcheck disable=SC2086
    specx-sim -q $sim --format hdf5 --truth "$name-truth.h5" -o "$name-image.h5"
    # shellcheck disable=SC2086
    specx-extract -q $extract --precision double -o "$name-frame.h5" "$name-image.h5"
    frame_truth "$@" "$name-frame.h5" "$name-truth.h5" "$name.txt" || failed=1
    if command -v gnuplot >/dev/null; then
        gnuplot -e "table='$name.txt'; name='$name: $text'; out='$name.png'" "$here/truth.gp"
    fi
    rm "$name-image.h5" "$name-frame.h5" "$name-truth.h5"
}

# flat_case NAME TEXT "OPTIONS OF specx-sim" KNOTS [LIMITS...]: flat of three exposures, 50 fibres, 600 Angstrom of arm z.
flat_case() {
    local name=$1 text=$2 sim=$3 knots=$4 n
    shift 4
    [[ $cases == *" $name "* ]] || return 0
    printf '\n== %s: %s\n   specx-sim --flat %s; specx-flat --knots %s\n' "$name" "$text" "$sim" "$knots"
    for n in 1 2 3; do
        # The options are words.
        # shellcheck disable=SC2086
        specx-sim -q --arm z --fibers 50 --wavelength 8900,9500 --flat --throughput 0.1 $sim --seed 3 --noise-seed "$n" \
            -f --format hdf5 --truth "$name-truth.h5" -o "$name-image.h5"
        specx-extract -q -w 8910,9490,0.8 "$name-image.h5" -o "$name-frame-$n.h5"
    done
    specx-flat --floor 0 --knots "$knots" --precision double "$name"-frame-?.h5 -o "$name-flat.h5"
    flat_truth "$@" "$name-flat.h5" "$name-truth.h5" || failed=1
    rm "$name"-*.h5
}

# sky_case NAME TEXT "PROTOTYPE'S FIGURES" [OPTION OF specx-sim...]: chi squared of held-out sky fibres off lines, on lines
# and in the brightest bins, three exposures of arm z; limits: 1 + 0.02, 1.06, 1.06 and three statistical errors. Picture:
# a held-out fibre before and after.
sky_case() {
    local name=$1 text=$2 prototype=$3 line fibre
    shift 3
    [[ $cases == *" $name "* ]] || return 0
    printf '\n== %s: %s\n   tests/science/sky.sh z 1:3 %s\n' "$name" "$text" "$*"
    line=$(SKY_KEEP=$name "$here/science/sky.sh" z 1:3 "$@")
    printf '   %s\n   prototype, all of the arm: %s\n' "$line" "$prototype"
    awk -v line="$line" 'BEGIN {
        sub(/.*: off /, "", line)
        split(line, x, " ")
        exit !(x[1] > 0.98 - 3 * x[3] && x[1] < 1.02 + 3 * x[3] && x[5] < 1.06 + 3 * x[7] && x[9] < 1.06 + 3 * x[11])
    }' || { echo '   TOO LARGE' && failed=1; }
    fibre=$(h5table --csv -t /sky/table -c ROLE "$name-s.h5" | awk '$1 == "HELDOUT" { print NR - 2; exit }')
    h5table --csv --spectrum "$fibre" "$name-f.h5" | tail -n +2 >"$name-before.txt"
    h5table --csv --spectrum "$fibre" "$name-s.h5" | tail -n +2 >"$name-after.txt"
    if command -v gnuplot >/dev/null; then
        gnuplot <<END
set terminal pngcairo size 1200,700
set output '$name.png'
set datafile separator ','
set multiplot layout 2,1 title '$name: $text'
set ylabel 'electrons / Å'
plot '$name-before.txt' using 1:2 with steps lc rgb '#404040' title 'sky fibre $fibre, held out'
set xlabel 'wavelength (Å)'
set ylabel 'flux √ivar'
set yrange [-6:6]
plot '$name-after.txt' using 1:(\$2 * sqrt(\$3)) with steps lc rgb '#2050a0' title 'what is left, in units of its error'
unset multiplot
END
    fi
    rm "$name"-?.h5 "$name"-before.txt "$name"-after.txt
}

# Values of a dataset, one a line.
values() {
    h5dump -A 0 -y -w 1 -d "$2" "$1" | awk '/DATA [{]/ { d = 1; next } /[}]/ { d = 0 } d { gsub(/[ ,]/, ""); if ($0 != "") print }'
}

# shift_case NAME TEXT ARM "OPTIONS OF specx-sim" "OPTIONS OF specx-shift" RMS-OF-X RMS-OF-Y: what specx-shift leaves of
# --shift wave; limits in pixels. Pulls are rms over fibres and wavelengths, which are correlated.
shift_case() {
    local name=$1 text=$2 arm=$3 sim=$4 options=$5 q limit
    [[ $cases == *" $name "* ]] || return 0
    printf '\n== %s: %s\n   specx-sim --arm %s --fibers 75 --shift wave %s; specx-shift %s\n' "$name" "$text" "$arm" "$sim" "$options"
    # The options are words.
    # shellcheck disable=SC2086
    specx-sim -q --arm "$arm" --fibers 75 --shift wave --cosmics 1 $sim --truth "$name-truth.h5" -o "$name-image.h5"
    # shellcheck disable=SC2086
    specx-shift -q --psf-only $options -o "$name-psf.h5" "$name-image.h5"
    for q in x:dx:$6 y:dy:$7 wx:width_x:1 wy:width_y:1; do
        IFS=: read -r q found limit <<<"$q"
        awk -v q="$q" -v limit="$limit" '
            function values(file, a,    n, line) {
                while ((getline line <file) > 0) a[++n] = line
                return n
            }
            BEGIN {
                nw = values(ARGV[1], w); n = values(ARGV[2], s); values(ARGV[3], e); nt = values(ARGV[4], wt); values(ARGV[5], t)
                for (i = 0; i < n / nw; i++)
                    for (k = 1; k <= nw; k++) {
                        for (j = 1; j < nt - 1 && wt[j + 1] < w[k]; j++) ;
                        f = (w[k] - wt[j]) / (wt[j + 1] - wt[j])
                        true = (1 - f) * t[i * nt + j] + f * t[i * nt + j + 1]
                        d = s[i * nw + k] - true
                        sum += d; sum2 += d * d; truth2 += true * true
                        if (e[i * nw + k] > 0) { pull2 += (d / e[i * nw + k])^2; np++ }
                    }
                rms = sqrt(sum2 / n)
                printf "   %-2s put in %.4f rms, left %.4f (mean %.4f), pull %.2f rms%s\n", q, sqrt(truth2 / n), rms, sum / n, \
                    np ? sqrt(pull2 / np) : 0, (rms > limit ? "  TOO LARGE" : "")
                exit (rms > limit)
            }' <(values "$name-psf.h5" /shift/wavelength) <(values "$name-psf.h5" "/shift/$found") \
            <(values "$name-psf.h5" "/shift/${found}_error") <(values "$name-truth.h5" /truth/shift/wavelength) \
            <(values "$name-truth.h5" "/truth/shift/$q") || failed=1
    done
    rm "$name"-*.h5
}

# flux_case ARM RANGE STARS OFF IN: error of the response in per cent, off telluric bands and within, with its pulls, by STARS
# fitted stars of S/N 25 to 40; limits of both.
flux_case() {
    local arm=$1 range=$2 stars=$3
    [[ $cases == *" flux "* ]] || return 0
    specx-sim -q -f --arm "$arm" --fibers $((stars + 4)) --sky-fibers 4 --no-sky --tellurics 1 --teff 5600:6800 --logg 3.7:4.4 \
        --feh -1.5:-0.3 --alpha 0 --snr 25:40 --truth flux-truth.h5 -o flux-image.h5
    specx-extract -q -f -o flux-frame.h5 flux-image.h5
    rvs-fit -q -f -t flux-templates.h5 --resolution-matrix -w "$range" --with-template -o flux-rv.h5 flux-frame.h5
    specx-flux -q -f --fit flux-rv.h5 -o flux-cframe.h5 flux-frame.h5
    flux_truth flux-frame.h5 flux-cframe.h5 flux-truth.h5 >flux.txt
    awk -v name="$arm, $stars stars" -v off="$4" -v in_bands="$5" '
        { printf "   %-14s %s\n", name, $0 }
        $1 == "off" && $2 > off || $1 == "in" && $2 > in_bands { bad = 1 }
        END { if (bad) print "   TOO LARGE"; exit bad }' flux.txt || failed=1
    rm flux-truth.h5 flux-image.h5 flux-frame.h5 flux-rv.h5 flux-cframe.h5
}

{
    truth_case grid "spectra that consist of the bins of the extraction" "--arm r --fibers 50 --step 0.8" "" "${limits[@]}"
    for arm in b r z; do
        truth_case "$arm" "stars and sky lines on a 0.1 Angstrom grid" "--arm $arm --fibers 50" "" "${limits[@]}"
    done
    truth_case artefacts "an amplifier gap, bad columns, saturated blocks and many cosmic rays" \
        "--arm z --fibers 50 --cosmics 300 --bad-columns 20 --saturated 5 --nans 50 --gap 1500:1510" "" "${limits[@]}"
    psf=$SPX_SHARED/data/extract/psf-r0-00067784.fits
    if [ -e "$psf" ]; then
        truth_case real "the same through the PSF of a real camera" "--psf $psf --fibers 0:50" "--spectra 0:50" "${limits[@]}"
    fi
    truth_case faint "faint stars without sky, variance from the model" "--arm r --fibers 50 --no-sky --mag 21:25" "" "${limits[@]}"
    truth_case faint-data "the same, variance from the noisy data" "--arm r --fibers 50 --no-sky --mag 21:25 --ivar data" ""
    truth_case faint-model "the same, with --variance model" "--arm r --fibers 50 --no-sky --mag 21:25 --ivar data" \
        "--variance model" --mean 0.02 --sd 0.02 --corr 0.02
    truth_case hits "cosmic rays that nobody has flagged, rejected" \
        "--arm r --fibers 50 --cosmics 150 --no-flag-cosmics" "--reject 5" "${limits[@]}"
    # 650 to 2 100 independent numbers: 3 times the error of the scatter; with a wrong PSF, half more than was found
    flat_case flat "a smooth lamp" "" 60 --rms 0.135 --scatter 1.14
    flat_case flat-fringes "fringes of 3 %" "--fringes 0.03" 15 --rms 0.25 --scatter 1.1
    flat_case flat-shifted "traces and widths that have moved" "--shift wave" 60 --rms 0.21 --scatter 1.9
    flat_case flat-spots "spots of another family, wings of 2 %" "--spots moffat --tails 0.02" 60 --rms 0.27 --scatter 2.1 --median 0.4
    sky_case sky "sky and stars, right PSF" "off 0.995, on 1.003, brightest 1 % 0.963"
    sky_case sky-shifted "traces that have moved, throughputs that flats do not know" \
        "off 0.992, on 0.994, brightest 1 % 0.932" --shift wave:0.05 --fiber-scatter 0.02
    shift_case shift "the sky and stars of an exposure; prototype x 0.0013, y 0.0051, desispec 0.0028 and 0.0104 (250 fibres)" \
        z "--sky-fibers 25 --snr 3:30" "" 0.004 0.012
    shift_case shift-arc "an arc" z "--arc all" "--lamp" 0.003 0.02
    if [[ $cases == *" flux "* ]]; then
        printf '\n== flux: response from stars, %%: rms error, median and scatter of pulls\n'
        printf '   prototype: 0.42 and 1.45 (10 stars), 0.33 and 1.1 (20); desispec 1.2 and 1.2 (20)\n'
        specx-sim -q --library flux-stars --wavelength 5600,10000 --axis teff=5400,5800,6200,6600,7000 --axis logg=3.5,4,4.5 \
            --axis feh=-2,-1,0
        fits2h5 -q flux-stars | rvs-template -q --norm none -s r:5670:7710:0.4:FWHM=1.1774 -s z:7430:9914:0.4:FWHM=1.1774 \
            -o flux-templates.h5
        flux_case r 5900,6850 10 0.45 1.8
        flux_case r 5900,6850 20 0.35 1.2
        flux_case z 7750,8920 20 0.35 1.2
        rm -rf flux-stars flux-templates.h5
    fi
    if [[ $cases == *" night "* ]]; then
        printf '\n== night: images to velocities, one effect at a time (tests/science/night.sh %s)\n' "${TRUTH_SEEDS:-1:2}"
        "$here/science/night.sh" "${TRUTH_SEEDS:-1:2}" plain moved shifted hits scatter moffat disc tails between fringes \
            fringes-15 stars || failed=1
    fi
    exit "$failed"
} 2>&1 | tee report.txt
