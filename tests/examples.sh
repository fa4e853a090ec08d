#!/usr/bin/env bash
# The data set that the examples of the manual pages use, made in the current folder; man/README lists it. Small: one
# exposure of 8 fibres, 200 Angstrom of each of three cameras.
set -euo pipefail

declare -A range=([b]='5000,5200' [r]='6400,6600' [z]='8500,8700')

specx-sim -q --library stars --wavelength 4900,8800 --axis teff=5000,5500,6000 --axis logg=3.5,4.5 --axis feh=-1,0
fits2h5 -q stars -o library.h5
rvs-template -q library.h5 -o templates.h5 \
    --setup b:5000:5200:0.5:FWHM=1.54 --setup r:6400:6600:0.5:FWHM=1.41 --setup z:8500:8700:0.5:FWHM=1.6
for arm in b r z; do
    specx-sim -q --arm $arm --fibers 8 --sky-fibers 2 --no-sky --wavelength "${range[$arm]}" \
        --teff 5200:5800 --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 --vsini 0:10 --snr 40:60 \
        --truth truth-${arm}0.h5 --psf-output psf-${arm}0.fits -o preproc-${arm}0.fits
    fits2h5 -q preproc-${arm}0.fits psf-${arm}0.fits -o image-${arm}0.h5
    specx-extract -q image-${arm}0.h5 --wavelength "${range[$arm]},0.8" -o frame-${arm}0.h5
done
for n in 1 2; do
    specx-sim -q --arm r --fibers 8 --flat --throughput 0.1 --noise-seed $n --wavelength "${range[r]}" -o lamp.fits -f
    fits2h5 -q lamp.fits psf-r0.fits | specx-extract -q --wavelength "${range[r]},0.8" -o lamp-r0-$n.h5
done
rm lamp.fits
specx-sim -q --arc Ne --arm r --fibers 8 --wavelength 6300,6600 --format hdf5 -o arc-r0.h5
specx-sim -q --arm r --fibers 2 --wavelength 6400,6420 --raw amps=2 --format hdf5 -o raw-r0.h5
h5merge -q frame-b0.h5 frame-r0.h5 frame-z0.h5 -o spectra.h5
ln -s "$(cd "$(dirname "$0")/../share" && pwd)"/{reduce.mk,night/simulate.sh} .
mock_traces --shifts array.h5
mock_network payne.npz
rvs-fit -q --templates templates.h5 spectra.h5 -o rv.h5
rvs-fit -q -t templates.h5 --joint target --epochs -o epochs.h5 spectra.h5
rvs-template -q --norm median --setup r:6400:6600:0.4:FWHM=1 library.h5 -o sharp-r.h5
rvs-fit -q --templates sharp-r.h5 --resolution-matrix --with-template frame-r0.h5 -o stars-r0.h5
rm sharp-r.h5
