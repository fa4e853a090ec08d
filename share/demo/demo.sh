#!/usr/bin/env bash
# The main job of specpipe on a simulated exposure whose truth is known: raw CCD images of three cameras, with the sky,
# cosmic rays, traces that have moved and an unknown response, to radial velocities. Usage: demo.sh FOLDER [SEED]; the
# programs are found on the PATH. `make demo` runs it in demo-out/.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-demo-out}
mkdir -p "$folder"
cd "$folder"
rm -rf stars ./*.h5 ./*.fits ./*.txt ./*.csv ./*.png

fibres=75 sky=10 seed=${2:-1}
# The instrument, which all exposures share: traces are up to 0.1 pixel away from the PSF that is known, fibres differ by
# 10 %. And the exposure of the stars: 2 % that the flat does not know, sky lines of their own strengths, hits that
# nothing flags, and air that absorbs. The response of the cameras, with its steep ends, is the simulator's own.
instrument="--fibers $fibres --sky-fibers $sky --seed $seed --shift wave --throughput 0.1"
exposure="--fiber-scatter 0.02 --sky-lines 0.2 --no-flag-cosmics --tellurics 1"
# Wavelengths of the three cameras, Angstrom: minimum and maximum.
declare -A range=([b]='3600,5800' [r]='5760,7620' [z]='7520,9824')
# Lines for the zero point of the wavelengths: the sky has too few in camera b, which keeps that of its arc.
declare -A lines=([b]='none' [r]='sky' [z]='sky')
# The templates get a narrow line-spread function, sigma 0.5 Angstrom; rvs-fit brings them to the resolution of each
# spectrum with its own resolution matrix, which the extraction delivers.
setups="--setup b:3590:5810:0.4:FWHM=1.1774 --setup r:5750:7630:0.4:FWHM=1.1774 --setup z:7510:9834:0.4:FWHM=1.1774"

# Show a command and run it.
run() {
    printf '\n$ %s\n' "$1"
    eval "$1"
}

say() {
    printf '\n== %s\n' "$1"
}

say "A library of synthetic stars becomes templates: with their continuum for the calibration, without it for velocities"
run "specx-sim --library stars --wavelength 3450,9950 --axis teff=4500,5000,5500,6000,6500,7000 \\
    --axis logg=3,3.5,4,4.5,5 --axis feh=-1.5,-1,-0.5,0 --axis alpha=0,0.4"
run "fits2h5 --vacuum stars | tee stars.h5 | rvs-template --norm median -o continuum.h5 \\
    $setups"
run "rvs-template -o templates.h5 stars.h5 \\
    $setups"

say "The cameras b, r and z: an arc, a flat, and $fibres fibres with $((fibres - sky)) stars and $sky on the sky"
for arm in b r z; do
    run "specx-sim --arm $arm $instrument --arc all --cosmics 1 --noise-seed 101 --psf-output psf-${arm}0.fits -o arc-${arm}0.fits"
    run "specx-sim --arm $arm $instrument --flat --cosmics 1 --noise-seed 102 -o flat-${arm}0.fits"
    run "specx-sim --arm $arm $instrument $exposure \\
    --teff 4800:6800 --logg 3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 --velocity -300:300 --snr 20:80 \\
    --truth truth-${arm}0.h5 -o preproc-${arm}0.fits"
done

say "Where the traces are: the PSF follows the lines of the arc, twice because the first time finds most of it. How much light each fibre passes on: the flat"
for arm in b r z; do
    run "fits2h5 -q arc-${arm}0.fits psf-${arm}0.fits | specx-shift -q --lamp | \\
    specx-shift --lamp --psf-only -o psf-${arm}0.h5"
    run "fits2h5 -q flat-${arm}0.fits | specx-extract -q --wavelength ${range[$arm]},0.8 - psf-${arm}0.h5 | specx-flat -o flat-${arm}0.h5"
done

say "CCD images to spectra without sky: traces once more, extraction without hits, flat and sky"
for arm in b r z; do
    run "fits2h5 -q preproc-${arm}0.fits | specx-shift --lines ${lines[$arm]} - psf-${arm}0.h5 | \\
    specx-extract --reject 5 --wavelength ${range[$arm]},0.8 | tee frame-${arm}0.h5 | \\
    specx-sky --flat flat-${arm}0.h5 -o sframe-${arm}0.h5"
done

say "The response of the cameras: models of the stars, fitted without it and without telluric bands"
run "h5merge sframe-b0.h5 sframe-r0.h5 sframe-z0.h5 | rvs-fit --templates continuum.h5 --resolution-matrix \\
    --leave-out telluric --with-template -o standards.h5"
for arm in b r z; do
    run "specx-flux --fit standards.h5 -o cframe-${arm}0.h5 sframe-${arm}0.h5"
done

say "Cameras to one file, spectra to velocities"
run "h5merge cframe-b0.h5 cframe-r0.h5 cframe-z0.h5 -o spectra.h5"
run "rvs-fit --templates templates.h5 --resolution-matrix spectra.h5 | tee rv.h5 | h52fits -o rvtab.fits"
run "h5check truth-b0.h5 psf-b0.h5 flat-b0.h5 frame-b0.h5 sframe-b0.h5 cframe-b0.h5 spectra.h5 templates.h5 rv.h5"

say "Measured against true velocities"
h5table --csv -c TARGETID,FIBER,OBJTYPE,VRAD,TEFF,LOGG,FEH,ALPHAFE truth-r0.h5 >truth.csv
h5table --csv -c TARGETID,VRAD,VRAD_ERR,TEFF,TEFF_ERR,LOGG,LOGG_ERR,FEH,FEH_ERR,SN_R,RVS_WARN,ALPHAFE,ALPHAFE_ERR rv.h5 >rv.csv
awk -F, -f "$here/report.awk" truth.csv rv.csv | tee report.txt

say "One star before and after, and its model: the figure"
# Row of a value in a column of a table, counted from 0.
row_of() {
    h5table --csv -t "$2" -c "$3" "$1" | awk -v want="$4" 'NR > 1 && $1 == want { print NR - 2 }'
}
# One row of a dataset, one value a line.
values() {
    local select=()
    [ -z "${3:-}" ] || select=(-s "$3,0" -c "1,$4")
    h5dump -A 0 -y -w 1 -d "$2" "${select[@]}" "$1" |
        awk '/DATA [{]/ { data = 1; next } /[}]/ { data = 0 } data { gsub(/[ ,]/, ""); if ($0 != "") print }'
}
# The star of median signal-to-noise among those without a warning.
target=$(awk -F, 'NR > 1 && $11 == 0 { print $10, $1 }' rv.csv | sort -n | awk '{ id[NR] = $2 } END { print id[int((NR + 1) / 2)] }')
fitted=$(row_of rv.h5 /rvfit/table TARGETID "$target")
spectrum=$(row_of spectra.h5 /fibermap TARGETID "$target")
for arm in b r z; do
    values spectra.h5 /spectra/$arm/wavelength >wavelength.txt
    bins=$(wc -l <wavelength.txt)
    # wavelength; electrons as extracted, with the sky; calibrated flux, its ivar and model
    paste wavelength.txt <(values frame-${arm}0.h5 /frame/flux "$spectrum" "$bins") \
        <(values spectra.h5 /spectra/$arm/flux "$spectrum" "$bins") \
        <(values spectra.h5 /spectra/$arm/ivar "$spectrum" "$bins") \
        <(values rv.h5 /rvfit/$arm/model "$fitted" "$bins") | awk '$4 > 0' >star-$arm.txt
done
rm wavelength.txt
title=$(awk -F, -v id="$target" '$1 == id { printf "target %s: v = %.2f ± %.2f km/s, teff = %.0f K, logg = %.2f, [Fe/H] = %.2f", $1, $2, $3, $4, $6, $8 }' rv.csv)
gnuplot -e "star='$title'" "$here/figure.gp"

cat <<END

== Where everything is ($PWD)
arc-?0.fits flat-?0.fits preproc-?0.fits psf-?0.fits   CCD images and PSFs, and truth-?0.h5 what was put in
psf-?0.h5 flat-?0.h5          PSFs that have moved, flats
frame-?0.h5                   extracted spectra          sframe-?0.h5       without sky
standards.h5                  models of the stars        cframe-?0.h5       calibrated with them
spectra.h5                    the cameras together       rv.h5 rvtab.fits   velocities, parameters, models
stars/ templates.h5           library and templates      continuum.h5       templates with their continuum
report.txt                    the table above            demo.png           the figure
Look into them: h5table -u rv.h5; h5dump -H frame-r0.h5; h5dump -g /provenance rv.h5
$((SECONDS)) seconds
END
