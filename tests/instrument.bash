# shellcheck shell=bash
# Provides the steps of specpipe-instrument(7) with a made-up instrument: bundles of unequal size, numbered from the right,
# wavelengths that fall with the row, four amplifiers, lamps of its own.

# expose NAME OPTION...: a raw exposure, pre-processed if there is a bias: NAME.h5.
expose() {
    specx-sim -q "${camera[@]}" --throughput 0.1 --raw amps=4,bias=3,gain=0.9 -f -o raw.fits "${@:2}"
    fits2h5 -q -f -o "raw-$1.h5" raw.fits
    [ ! -e bias.h5 ] || specx-preproc -q --bias bias.h5 -o "$1.h5" "raw-$1.h5"
}

# extract FILE: on standard output.
extract() { specx-extract -q -w 6110,6490,1.2 --variance model "${@:2}" "$1" psf.h5; }

# calibrate BUNDLES: bias.h5, psf.h5 and fiberflat.h5, with flat, arc and lines.
calibrate() {
    local k bundles=$1
    camera=(--arm r --camera "pitch=6,gap=16,dispersion=0.8,width=1.25,mirrored=1,falling=1" --bundles "$bundles"
        -w "6100,6500" --instrument-seed 3)
    for k in 1 2 3; do
        expose "bias-$k" --bias --noise-seed "$k"
    done
    specx-preproc -q --combine bias -o bias.h5 raw-bias-*.h5
    expose flat --flat --noise-seed 4
    printf 'Xx %s\n' 6060.24 6078.85 6121.37 6139.69 6188.11 6214.53 6231.74 6266.96 6301.42 6322.86 6351.21 6398.73 6419.35 \
        6437.51 6482.13 6523.68 6541.92 >lines.txt
    awk '{ printf "%.2f 0\n%.2f %.0f\n%.2f 0\n", $2 - .01, $2, 1e6 * (1 + NR % 5), $2 + .01 }' lines.txt >lamp.txt
    seq $((${bundles//,/+})) | sed 's/.*/lamp.txt/' >lamps
    expose arc --no-sky --noise-seed 5 lamps
    specx-psf -q --flat flat.h5 --bundles "$bundles" --first-fiber right --centre 6300 --dispersion 0.8 --lines lines.txt \
        --trace-degree 4 -o psf.h5 arc.h5
    extract flat.h5 | specx-flat -q -o fiberflat.h5
}

# make_star_templates: templates.h5, two bins wide.
make_star_templates() {
    specx-sim -q --library stars -w 6050,6550 --axis teff=5000,5500,6000 --axis logg=3.5,4,4.5 --axis feh=-1,-0.5,0 \
        --axis alpha=0
    fits2h5 -q stars | rvs-template -q --setup r:6110:6491:0.6:FWHM=2.4 -o templates.h5
}

# measure_stars SEED: an exposure of stars and noise of their own. A line a star: velocity, error, truth.
measure_stars() {
    expose "science-$1" --seed "$1" --noise-seed "$1" --snr 60:90 --teff 5200:5800 --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 \
        --truth truth.h5 -f
    extract "science-$1.h5" --reject 5 | specx-sky -q --flat fiberflat.h5 |
        rvs-fit -q --templates templates.h5 --resolution-matrix -f -o rv.h5 -
    h5table -q --csv -c FIBER,VRAD truth.h5 >truth.csv
    h5table -q --csv -c FIBER,VRAD,VRAD_ERR rv.h5 |
        awk -F, 'NR == FNR { v[$1] = $2; next } FNR > 1 { print $2, $3, v[$1] }' truth.csv -
}
