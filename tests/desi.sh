#!/usr/bin/env bash
# desi.sh FOLDER: what specpipe-desi(7) needs, in FOLDER: $SPX_DESI, or else a simulated exposure with the same names,
# of ten fibres, whose frame was extracted in patches and has barycentric wavelengths, as DESI's have. Needs specx-sim,
# fits2h5, specx-extract, h52fits and h5edit on the PATH.
set -euo pipefail

if [ -n "${SPX_DESI:-}" ]; then
    ln -s "$(cd "$SPX_DESI" && pwd)" "$1"
    exit
fi
mkdir "$1"
cd "$1"
name=r0-00067784
factor=0.9999
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
specx-sim -q --arm r --fibers 10 --seed 67784 --expid 67784 --psf-output psf-$name.fits -o preproc-$name.fits
fits2h5 -q preproc-$name.fits psf-$name.fits |
    specx-extract -q --method patch -o "$work/frame.h5" \
        -w "$(awk -v h=$factor 'BEGIN { printf "%.9f,%.9f,%.12f", 5760 / h, 7620 / h, 0.8 / h }')"
h5edit "$work/frame.h5" scale /frame/wavelength $factor attr /frame/wavelength frame barycentric \
    strings /frame/header "$(printf 'HELIOCOR= %20s / barycentric factor%50s' $factor '' | cut -c 1-80)"
h52fits -q --as frame -o frame-$name.fits "$work/frame.h5"
gzip -1 preproc-$name.fits
