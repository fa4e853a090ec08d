#!/usr/bin/env bash
# The main job of specpipe on a simulated exposure whose truth is known: CCD images of three cameras to radial
# velocities. Usage: demo.sh FOLDER; the programs are found on the PATH. `make demo` runs it in demo-out/.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-demo-out}
mkdir -p "$folder"
cd "$folder"
rm -rf stars ./*.h5 ./*.fits ./*.txt ./*.csv ./*.png

fibres=50 sky=6 seed=11
# Wavelengths of the three cameras, Angstrom: minimum and maximum. The steep edges of the dichroics are left out:
# without a flux calibration no smooth continuum follows them.
declare -A range=([b]='3600,5600' [r]='5850,7420' [z]='7720,9800')
# The templates get a narrow line-spread function, sigma 0.5 Angstrom; rvs-fit brings them to the resolution of each
# spectrum with its own resolution matrix, which the extraction delivers.
fwhm=1.1774

# Show a command and run it.
run() {
    printf '\n$ %s\n' "$1"
    eval "$1"
}

say() {
    printf '\n== %s\n' "$1"
}

say "A library of synthetic stars becomes templates for the three cameras"
run "specx-sim --library stars --wavelength 3500,9900 --axis teff=4500,5000,5500,6000,6500,7000 \\
    --axis logg=3,3.5,4,4.5,5 --axis feh=-1.5,-1,-0.5,0 --axis alpha=0,0.4"
run "fits2h5 --vacuum stars | rvs-template -o templates.h5 \\
    --setup b:${range[b]/,/:}:0.4:FWHM=$fwhm --setup r:${range[r]/,/:}:0.4:FWHM=$fwhm --setup z:${range[z]/,/:}:0.4:FWHM=$fwhm"

say "One exposure of $fibres fibres ($((fibres - sky)) stars, $sky sky), seen by the cameras b, r and z"
for arm in b r z; do
    run "specx-sim --arm $arm --fibers $fibres --sky-fibers $sky --no-sky --seed $seed \\
    --teff 4800:6800 --logg 3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 --velocity -300:300 --snr 20:80 \\
    --truth truth-${arm}0.h5 --psf-output psf-${arm}0.fits -o preproc-${arm}0.fits"
done

say "CCD images to spectra, each camera through a pipe"
for arm in b r z; do
    run "fits2h5 preproc-${arm}0.fits psf-${arm}0.fits | specx-extract --wavelength ${range[$arm]},0.8 -o frame-${arm}0.h5"
done

say "Cameras to one file, spectra to velocities"
run "h5merge frame-b0.h5 frame-r0.h5 frame-z0.h5 -o spectra.h5"
run "rvs-fit --templates templates.h5 --resolution-matrix spectra.h5 | tee rv.h5 | h52fits -o rvtab.fits"
run "h5check truth-b0.h5 frame-b0.h5 spectra.h5 templates.h5 rv.h5"

say "Measured against true velocities"
h5table --csv -c TARGETID,FIBER,OBJTYPE,VRAD,TEFF,LOGG,FEH truth-r0.h5 >truth.csv
h5table --csv -c TARGETID,VRAD,VRAD_ERR,TEFF,TEFF_ERR,LOGG,LOGG_ERR,FEH,FEH_ERR,SN_R,RVS_WARN rv.h5 >rv.csv
awk -F, -f "$here/report.awk" truth.csv rv.csv | tee report.txt

say "One star and its model, and the residuals: the figure"
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
    paste wavelength.txt <(values spectra.h5 /spectra/$arm/flux "$spectrum" "$bins") \
        <(values spectra.h5 /spectra/$arm/ivar "$spectrum" "$bins") \
        <(values rv.h5 /rvfit/$arm/model "$fitted" "$bins") >star-$arm.txt
done
rm wavelength.txt
title=$(awk -F, -v id="$target" '$1 == id { printf "target %s: v = %.2f ± %.2f km/s, teff = %.0f K, logg = %.2f, [Fe/H] = %.2f", $1, $2, $3, $4, $6, $8 }' rv.csv)
gnuplot -e "star='$title'" "$here/figure.gp"

cat <<END

== Where everything is ($PWD)
preproc-?0.fits psf-?0.fits   CCD images and PSFs        truth-?0.h5        what was put in
frame-?0.h5                   extracted spectra          spectra.h5         the cameras together
stars/ templates.h5           library and templates      rv.h5 rvtab.fits   velocities, parameters, models
report.txt                    the table above            demo.png           the figure
Look into them: h5table -u rv.h5; h5dump -H frame-r0.h5; h5dump -g /provenance rv.h5
$((SECONDS)) seconds
END
