# shellcheck shell=bash
# Provides command lines of the programs on small input, for tests of failures (tests/faults.bats, tests/trust): `writers`,
# every program that writes; -o FILE follows. `readers` print. $d is the data folder (tests/examples.sh). They are
# evaluated where they are used.
# shellcheck disable=SC2016,SC2034
writers=(
    'fits2h5 -q $d/preproc-r0.fits $d/psf-r0.fits'
    'h52fits -q $d/frame-b0.h5'
    'h5merge -q $d/frame-b0.h5 $d/frame-r0.h5'
    'h5reduce -q -j 1 $d/frame-b0.h5:/frame/flux'
    'h5stack -q -j 1 $d/array.h5'
    'h5svd -q -k 3 $d/frame-b0.h5:/frame/flux'
    'burgers -q --cells 40 --steps 30'
    'npz2h5 -q -l teff:1000,logg,feh,vturb $d/payne.npz'
    'rvs-fit -q -j 1 --templates $d/templates.h5 $d/spectra.h5'
    'rvs-telluric -q --simulated 6860,6900'
    'rvs-template -q -j 1 $d/library.h5 --setup r:6400:6600:0.5:FWHM=1.8'
    'rvs-zero -q --by fiber --least 1 $d/epochs.h5'
    'specx-extract -q -j 1 $d/image-r0.h5 --wavelength 6400,6420,0.8 --spectra 0:2'
    'specx-flat -q -j 1 $d/lamp-r0-1.h5'
    'specx-flux -q -j 1 --fit $d/stars-r0.h5 $d/frame-r0.h5'
    'specx-preproc -q -j 1 $d/raw-r0.h5'
    'specx-psf -q -j 1 --start $d/arc-r0.h5 --trace-degree 2 --hermite-degree 2 --shape-degree 0,0 $d/arc-r0.h5'
    'specx-shift -q -j 1 $d/image-r0.h5 --wavelength 6420,6580,0.8 --psf-only'
    'specplot -q --script $d/frame-b0.h5'
    'specx-sim -q -j 1 --wavelength 6400,6410 --fibers 2 --format hdf5'
    'specx-sim -q -j 1 --wavelength 6400,6410 --fibers 2 --format fits'
    'specx-sky -q -j 1 $d/frame-b0.h5'
)
readers=(
    'h5table --csv $d/rv.h5'
    'h5check $d/frame-b0.h5'
)
