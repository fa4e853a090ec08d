#!/usr/bin/env bash
# Makes the golden products of this version: tests/data/make-golden.sh [FOLDER]
# FOLDER is made; without it, tests/data/golden/VERSION. tests/data/README says what is kept there and why. Uses the
# programs of SPX_BUILD (build) and nothing but the simulators; the hook needs a Python with NumPy (SPX_PYTHON).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "${SPX_BUILD:-build}" && pwd)
folder=$(realpath -m "${1:-tests/data/golden/$(cat VERSION)}")
PATH=$build/bin:$build/tests/helpers:$PATH

if [ -e "$folder" ]; then
    echo "make-golden.sh: $folder: exists already, and golden products are never replaced: name another, $folder.1 for example" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
plain=(-q --reproducible -j 1)

# exposure NAME OPTION...: NAME.fits, its PSF NAME-psf.fits and its truth NAME-truth.h5, of stars that are the same in
# all exposures.
exposure() {
    specx-sim "${plain[@]}" --no-sky --sky-fibers 1 --step 0.5 --snr 80 --teff 5100:5900 --logg 3.7:4.3 --feh=-0.8:-0.2 \
        --alpha 0 --vsini 0:10 --psf-output "$1-psf.fits" --truth "$1-truth.h5" -o "$1.fits" "${@:2}"
}

# Small enough to be kept with its FITS files: a star and the sky, 20 Angstrom.
exposure small --arm b --fibers 2 --wavelength 5165,5185
fits2h5 "${plain[@]}" small.fits small-psf.fits -o image.h5
specx-extract "${plain[@]}" --wavelength 5165,5185,0.8 image.h5 -o frame.h5
mv small-truth.h5 truth.h5
sha256sum small.fits small-psf.fits >image.sha256

# Two cameras, for spectra that can be fitted.
exposure blue --arm b --fibers 3 --wavelength 5150,5230
exposure red --arm r --fibers 3 --wavelength 6550,6580
fits2h5 "${plain[@]}" blue.fits blue-psf.fits | specx-extract "${plain[@]}" --wavelength 5150,5230,1 -o blue.h5
fits2h5 "${plain[@]}" red.fits red-psf.fits | specx-extract "${plain[@]}" --wavelength 6550,6580,1 -o red.h5
h5merge "${plain[@]}" blue.h5 red.h5 -o spectra.h5

specx-sim "${plain[@]}" --library stars --step 0.25 --wavelength 5120,5260 --axis teff=5000,5500,6000 \
    --axis logg=3,4,5 --axis feh=-1,-0.5,0 --axis alpha=0
fits2h5 "${plain[@]}" stars -o library.h5
setup=b:5150:5230:0.6:FWHM=1.8
rvs-template "${plain[@]}" --setup $setup --train-nn --nn-hidden 4 --nn-epochs 20 --ccf-every 5 --ccf-vsini 0,50 \
    library.h5 -o templates.h5
rvs-template "${plain[@]}" --setup $setup --interpolator simplex --no-ccf --pca 0 library.h5 -o templates-simplex.h5
mock_network network.npz
npz2h5 "${plain[@]}" --labels teff:1000,logg,feh,vturb network.npz -o network.h5

fit=(rvs-fit "${plain[@]}" --templates templates.h5 --arms b "--vrange=-400,400" --npoly 3 --no-rotation)
"${fit[@]}" --ccf spectra.h5 -o rv.h5
"${fit[@]}" --joint target spectra.h5 spectra.h5 -o rv-joint.h5
"${fit[@]}" --joint target --epochs spectra.h5 spectra.h5 -o rv-epochs.h5
rvs-zero "${plain[@]}" --by none --least 2 rv-epochs.h5 -o zero.h5

# A lamp, and a frame that is divided by its flat.
specx-sim "${plain[@]}" --arm b --fibers 2 --wavelength 5165,5185 --flat --throughput 0.1 -o lamp.fits
fits2h5 "${plain[@]}" lamp.fits small-psf.fits | specx-extract "${plain[@]}" --wavelength 5165,5185,0.8 -o lamp.h5
specx-flat "${plain[@]}" --precision double lamp.h5 -o flat.h5
specx-flat "${plain[@]}" --apply flat.h5 frame.h5 -o flattened.h5

# Four stars with their templates, and their frame calibrated with them.
exposure bright --arm b --fibers 5 --wavelength 5150,5230
fits2h5 "${plain[@]}" bright.fits bright-psf.fits |
    specx-extract "${plain[@]}" --wavelength 5150,5230,0.8 -o flux-frame.h5
rvs-template "${plain[@]}" --norm none --setup b:5150:5230:0.4:FWHM=1 library.h5 -o sharp.h5
rvs-fit "${plain[@]}" --templates sharp.h5 --vrange=-400,400 --npoly 3 --no-rotation --resolution-matrix \
    --lsf-sigma 0.425 --with-template flux-frame.h5 -o flux-stars.h5
specx-flux "${plain[@]}" --smooth 1e4 --fit flux-stars.h5 flux-frame.h5 -o flux.h5

# Lines of the atmosphere, and stars that are fitted with them.
{
    echo '# wavelength and optical depths'
    awk 'BEGIN { for (w = 5140; w < 5240; w += 0.1) printf "%.1f %.4f %.4f\n", w, (w % 4 < 0.2) * 0.5, (w % 7 < 0.2) * 0.3 }'
} >lines.txt
rvs-telluric "${plain[@]}" lines.txt -o air.h5
rvs-fit "${plain[@]}" --templates sharp.h5 --vrange=-400,400 --npoly 3 --no-rotation --resolution-matrix \
    --tellurics air.h5 flux-frame.h5 -o tellurics.h5

# Traces come from other programs: no product, but a block of the schema.
mock_traces --shifts traces.h5
h5stack "${plain[@]}" --t0 250 --length 100 traces.h5 -o stack.h5
burgers "${plain[@]}" --cells 32 --viscosity 0.05 --dt 0.01 --steps 100 --every 5 --modes 0 -o burgers.h5
h5svd "${plain[@]}" --rank 3 --center burgers.h5:/burgers/snapshot -o svd.h5
h5reduce "${plain[@]}" --operation argmax burgers.h5:/burgers/snapshot -o reduce.h5
cat >hook.py <<'END'
import numpy

largest = []


def hook(step):
    largest.append(float(step["u"].max()))


def finish():
    return {"largest": numpy.array(largest)}
END
burgers "${plain[@]}" --cells 32 --viscosity 0.05 --dt 0.01 --steps 20 --modes 0 --hook hook.py -o insitu.h5

specx-sim "${plain[@]}" --arm z --fibers 4 --sky-fibers 2 --wavelength 8400,8460 -o sky-image.h5
specx-extract "${plain[@]}" -o sky-frame.h5 sky-image.h5
specx-sky "${plain[@]}" -o sky.h5 sky-frame.h5
specx-shift "${plain[@]}" --psf-only -o shift.h5 sky-image.h5

# An arc, and the PSF that was fitted to it.
specx-sim "${plain[@]}" --arc Ne --arm r --fibers 5 --wavelength 6200,6420 --shift 0.2,-0.1 --format hdf5 -o arc.h5
specx-psf "${plain[@]}" --start arc.h5 --trace-degree 3 --hermite-degree 2 --shape-degree 1,1 --hsize 5,4 \
    --bundle-size 5 -o psffit.h5 arc.h5

# What single traces have: ranges, bundles, flags.
fits2h5 "${plain[@]}" small-psf.fits -o psf.h5
cp psf.h5 small-psf.h5
psf_edit psf.h5 orders 5160:5185,5165:5190 valid 1 5166:5184 status 1 6 bundles 1,1 number 10
# A grid of spots.
spot_make small-psf.h5 grid.fits over=3 size=9 npos=2 nwave=2
fits2h5 "${plain[@]}" grid.fits -o psf-grid.h5

# A raw exposure of two amplifiers, and the image of its first rows.
specx-sim "${plain[@]}" --arm b --fibers 2 --wavelength 5165,5175 --raw amps=2,overscan=8,rows=3 -o raw.fits
fits2h5 "${plain[@]}" raw.fits -o raw.h5
printf 'amplifier %s\n' 'A data=[5:24,1:30] bias=[25:32,1:30] gain=GAINA' 'B data=[41:60,1:30] bias=[33:40,1:30] gain=GAINB' \
    >raw.layout
specx-preproc "${plain[@]}" --layout raw.layout raw.h5 -o preproc.h5
specx-preproc "${plain[@]}" --layout raw.layout --combine bias raw.h5 raw.h5 -o master.h5

h5table --csv rv.h5 >rv.csv
h5table --csv rv-joint.h5 >rv-joint.csv
h5table --csv truth.h5 >truth.csv
h5check --schema=text </dev/null | sed -n 's/^block \([^ ]* [^ ]*\) .*/\1/p' >schemas

products=(image frame flat flattened flux-frame flux-stars flux sky shift spectra library templates templates-simplex network rv rv-joint rv-epochs zero stack burgers svd reduce insitu truth psf psf-grid psffit raw preproc master air tellurics)
h5check "${products[@]/%/.h5}"
mkdir -p "$folder"
cp "${products[@]/%/.h5}" traces.h5 image.sha256 raw.layout rv.csv rv-joint.csv truth.csv schemas "$folder"
