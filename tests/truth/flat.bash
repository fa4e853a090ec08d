# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the tables of flat fields and of the response. truth.sh sources this file.

# flat_frames "OPTIONS OF specx-sim": truth.h5 and frame-1.h5 ... frame-3.h5, three exposures of a lamp, 50 fibres, 600
# Angstrom of arm z; with options, also frame-exact.h5, one without noise and hits: beside masked pixels the flux is another
# one where spots are not those of the PSF, by 0.2 of the errors of three exposures
flat_frames() {
    local n
    rm -f frame-exact.h5
    for n in 1 2 3 ${1:+exact}; do
        # The options are words.
        # shellcheck disable=SC2086,SC2046
        specx-sim -q --arm z --fibers 50 --wavelength 8900,9500 --flat --throughput 0.1 $1 --seed $((seed + 2)) \
            $([ "$n" = exact ] && echo --no-noise --cosmics 0 --bad-columns 0 || echo "--noise-seed $((10 * seed + n - 10))") -f --format hdf5 --truth truth.h5 -o image.h5
        specx-extract -q -f -w 8910,9490,0.8 image.h5 -o "frame-$n.h5"
    done
}

# flat_row KNOTS "LIMITS OF flat_truth" PROTOTYPE DESISPEC: the flat of these frames against throughputs; behind it, where
# the PSF is wrong, pulls against the flat without noise: light that spots lose is lost in all exposures, and belongs into
# a flat
flat_row() {
    local line noise='' ok=1
    specx-flat -q -f --floor 0 --knots "$1" --precision double frame-?.h5 -o flat.h5
    # The limits are words.
    # shellcheck disable=SC2086
    line=$(flat_truth $2 flat.h5 truth.h5) || ok=0
    if [ -e frame-exact.h5 ]; then
        specx-flat -q -f --floor 0 --knots "$1" --precision double frame-exact.h5 -o exact.h5
        noise="; $(flat_truth --scatter 1.2 --median 0.2 flat.h5 exact.h5 | sed -E 's/.*scatter ([0-9.]*)[0-9] .*/\1/')" || ok=0
    fi
    row "  knots of $1 Angstrom" "$(sed -E 's/.*error ([0-9.]+) % [(]expected ([0-9.]+) %[)].*scatter ([0-9.]*)[0-9] .*$/\1 (\2), \3/' <<<"$line")$noise" \
        "$3" "$4"
    [ $ok = 1 ] || bad 1
}

# 650 to 2 100 independent numbers: limits are 3 times the error of the scatter; with a wrong PSF, half more than was found.
flat_case() {
    printf '\n== flat: error, %% rms (expected), scatter of pulls; against flats without noise: 3 exposures of 50 fibres, arm z\n'
    row 'right PSF' specpipe prototype desispec
    flat_frames ''
    flat_row 15 '--rms 0.25 --scatter 1.1' '0.25 (0.25), 1.00' -
    flat_row 30 '--rms 0.18 --scatter 1.12' '0.18 (0.18), 1.01' -
    flat_row 60 '--rms 0.135 --scatter 1.14' '0.129 (0.128), 1.00' -
    flat_row 120 '--rms 0.11 --scatter 1.2' '0.097 (0.096), 1.01' -
    row 'traces and widths that have moved' '' '' ''
    flat_frames '--shift wave'
    flat_row 15 '--rms 0.3 --scatter 1.5' 0.26 '1.23 (1.34), each bin'
    flat_row 30 '--rms 0.25 --scatter 1.7 --median 0.4' 0.20 -
    flat_row 60 '--rms 0.21 --scatter 1.9' '0.158, 1.25' -
    flat_row 120 '--rms 0.19 --scatter 2.3 --median 0.4' 0.134 -
    row 'fringes of 3 %' '' '' ''
    flat_frames '--fringes 0.03'
    flat_row 15 '--rms 0.25 --scatter 1.1' - -
    row 'spots of another family, wings of 2 %' '' '' ''
    flat_frames '--spots moffat --tails 0.02'
    flat_row 60 '--rms 0.27 --scatter 2.1 --median 0.4' - -
}

# flux_row ARM RANGE STARS SNR OFF IN PULL PROTOTYPE DESISPEC: error of the response in per cent, off telluric bands and
# within, with its pulls (medians; rms; rms with the floor, which calibrated spectra have in their errors), by STARS fitted
# stars of that signal-to-noise ratio; limits of both, and of rms off bands (in them 1.3). Quadratic means over six exposures. Off bands
# the error is a tilt and little else, by the mean error of the stars' temperatures: one exposure's pulls are of one sign at
# either end, so that 1.4826 MAD, a half more than their size then, is no scatter. Stars lie within the library: with
# [alpha/Fe] 0, its least, fits can be wrong to one side alone, and temperatures in z are 29 +- 3 K too high in the mean,
# 0.3 errors at any signal-to-noise ratio, which the scatter of the stars does not tell; with nodes of [Fe/H] 1 dex apart
# single stars are wrong by 64 K without any noise, with 0.5 dex by 2 K.
flux_row() {
    local arm=$1 range=$2 stars=$3 n
    for n in {0..5}; do
        specx-sim -q -f --arm "$arm" --seed $((seed + n)) --fibers $((stars + 4)) --sky-fibers 4 --no-sky --tellurics 1 \
            --teff 5600:6800 --logg 3.7:4.4 --feh -1.5:-0.3 --alpha 0.1:0.3 --snr "$4" --truth truth.h5 -o image.h5
        specx-extract -q -f -o frame.h5 image.h5
        rvs-fit -q -f -t templates.h5 --resolution-matrix -w "$range" --leave-out telluric --with-template -o rv.h5 frame.h5
        specx-flux -q -f --fit rv.h5 -o cframe.h5 frame.h5
        flux_truth frame.h5 cframe.h5 truth.h5 | tee matrix.txt | grep -v matrix
    done | awk '{ n[$1]++; e[$1] += $2 * $2; m[$1] += $3; s[$1] += $5 * $5; f[$1] += $6 * $6 }
        END { for (k in n) print k, sqrt(e[k] / n[k]), m[k] / n[k], sqrt(s[k] / n[k]), sqrt(f[k] / n[k]) }' | sort -r >flux.txt
    row "arm $arm, $stars stars, S/N $4" "$(awk '{ printf "%s%.2f (%+.2f %.2f %.2f)", (NR > 1 ? "; " : ""), $2, $3, $4, $5 }' flux.txt)" "$8" "$9"
    bad "$(awk '$1 == "off" { print $2 " > '"$5"' || " $4 " > '"$7"' || " $5 " > 1" }' flux.txt) || $(awk '$1 == "in" { print $2 " > '"$6"' || " $4 " > 1.3 || " $5 " > 1.1" }' flux.txt)"
}

flux_case() {
    local matrix
    printf '\n== flux: response from stars, %% rms off telluric bands; in bands (pulls: median, rms; with the floor), six exposures\n'
    specx-sim -q --library flux-stars --wavelength 5600,10000 --axis teff=5400,5800,6200,6600,7000 --axis logg=3.5,4,4.5 \
        --axis feh=-2,-1.5,-1,-0.5,0
    fits2h5 -q flux-stars | rvs-template -q --norm median -s r:5670:7710:0.4:FWHM=1.1774 -s z:7430:9914:0.4:FWHM=1.1774 \
        -o templates.h5
    rm -r flux-stars
    row '' specpipe prototype desispec
    flux_row r 6335,6855 10 25:40 0.45 1.8 1.7 '0.42; 1.45' -
    flux_row r 6335,6855 20 25:40 0.35 1.2 1.7 '0.33; 1.1' '1.2; 1.2'
    flux_row r 6335,6855 40 25:40 0.45 1.0 1.7 '0.40; 0.90' -
    flux_row z 7750,8920 20 25:40 0.35 1.2 1.7 - -
    matrix=$(cat matrix.txt)
    # Pulls without the floor: off bands 1.14 over 12 exposures; nodes of 1 dex in [Fe/H], which all stars share, make 1.96
    # of it. In bands the error is what a grid of bins leaves of lines, 2.9 times that by noise, and is known as such.
    flux_row r 6335,6855 20 400:640 0.05 0.3 1.7 - -
    echo "$matrix" >matrix.txt
    row "matrix R' of these spectra, S/N 20: off; in bands" "$(awk '$1 == "matrix" { printf "%s%s", (n++ > 0 ? "; " : ""), $3 }' matrix.txt)" \
        '0.0000' -
    row '  R unchanged; worst' "$(awk '$1 == "matrix" { printf "%s%s", (n++ > 0 ? "; " : ""), $4; if ($5 > most) most = $5 }
        END { print "; " most }' matrix.txt)" '0.001; 0.011; 0.24' -
    bad "$(awk '$1 == "matrix" && $3 > 1e-4 { b = 1 } END { print b + 0 }' matrix.txt)"
}
