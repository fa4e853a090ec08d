# Compatibility, proved by the code of others: their readers take our files, and our programs theirs (make check-interop).

load ../common
load common

setup_file() {
    example_data
    cd "$BATS_FILE_TMPDIR/data" || return
    {
        specx-sim -q --arm r --fibers 12 --sky-fibers 5 --wavelength 6400,6600 --snr 40 --format hdf5 -o sim.h5
        specx-extract -q -w 6400,6600,0.8 -o raw.h5 sim.h5
        specx-sky -q -o sky.h5 raw.h5
        specx-flux -q --fit stars-r0.h5 -o calibrated.h5 frame-r0.h5
        specx-flat -q -o flat.h5 lamp-r0-1.h5 lamp-r0-2.h5
        write frame frame raw.h5
        write sframe sframe sky.h5
        write sky sky sky.h5
        write cframe cframe calibrated.h5
        write fiberflat fiberflat flat.h5
        write frame lamp lamp-r0-1.h5
        write spectra spectra spectra.h5
        write coadd coadd spectra.h5
        write spectra physical calibrated.h5
        write rvtab rvtab rv.h5
        write rvmod rvmod rv.h5
        write rvtab epochs epochs.h5
        write preproc preproc image-r0.h5
        write psf psf image-r0.h5
        rm {preproc,psf}-?0.fits
    } >&2
}

# write KIND NAME PRODUCT: NAME.fits as h52fits makes it.
write() { h52fits -q --as "$1" -o "$2.fits" "$3"; }

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return
    cp -R "$BATS_FILE_TMPDIR/data/." .
}

@test "astropy reads every kind of file: standard, checksums, all values" {
    need_package astropy.io.fits h5py
    script astropy_reads ./*.fits
}

@test "fitsio reads every kind of file, the same values as astropy" {
    need_package fitsio astropy.io.fits
    script fitsio_reads ./*.fits
}

@test "specutils reads spectra and coadds of DESI's layout by itself" {
    need_package specutils h5py
    script specutils_reads
}

@test "what specutils writes becomes spectra" {
    need_package specutils
    script specutils_writes
    fits2h5 -q -o one.h5 written.fits
    h5check one.h5
    script specutils_writes one.h5
    # and back, with the units of flux and inverse variance
    h5merge -q --by rows -o merged.h5 one.h5
    h52fits -q --as spectra -o back.fits merged.h5
    script specutils_writes one.h5 back.fits
}

@test "rvspecfit fits our coadds: its velocities are ours; its tables come back, and its scripts read ours" {
    need_package rvspecfit rvspecfit.desi.desi_fit
    script rvspecfit_fits "$python"
    fits2h5 -q -o theirs.h5 out/rvtab_coadd.fits
    fits2h5 -q -o model.h5 out/rvmod_coadd.fits
    h5check theirs.h5 model.h5
    h52fits theirs.h5 | cmp - out/rvtab_coadd.fits
    h52fits model.h5 | cmp - out/rvmod_coadd.fits
}

@test "desispec reads frames, spectra, skies and flats; its sky subtraction, flat and coaddition take them" {
    need_desispec
    script desispec_reads
}

@test "what desispec writes comes back: frames and spectra" {
    need_desispec
    script desispec_writes
    fits2h5 -q -o frame-back.h5 d-frame.fits
    fits2h5 -q -o spectra-back.h5 d-spectra.fits
    fits2h5 -q -o coadd-back.h5 d-coadd.fits
    h5check frame-back.h5 spectra-back.h5 coadd-back.h5
    local part
    for part in flux ivar mask wavelength resolution; do
        h5diff raw.h5 frame-back.h5 /frame/$part
        same_values spectra.h5 /spectra/z/$part spectra-back.h5 /spectra/z/$part # it says its own unit
    done
    # our program takes their coadd
    rvs-fit -q -t templates.h5 -o v.h5 coadd-back.h5
    [ "$(h5table --csv -c SUCCESS v.h5 | grep -c 1)" -eq 6 ]
}

@test "bricks are those of desiutil, all over the sky" {
    need_package desiutil.brick astropy.table
    script bricks sky
    fits2h5 -q places.fits | h5merge -q --by rows -o places.h5
    h52fits -q --as spectra -o ours.fits places.h5
    script bricks compare
}
