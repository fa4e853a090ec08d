# h52fits: stored files are restored exactly; blocks become files that other programs read.

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --format fits --psf-output psf.fits -o image.fits
    fits2h5 -q image.fits psf.fits | specx-extract -q -w 6505,6535,0.8 >frame.h5
}

# back FILE: through fits2h5 and h52fits; the same cards, values and bytes.
back() {
    fits2h5 -q "$@" "$file" >kept.h5
    h52fits -f -o back.fits kept.h5
    fits_same "$file" back.fits
    case $file in *.gz) gzip -dc "$file" ;; *) cat "$file" ;; esac | cmp - back.fits
    rm kept.h5
}

@test "all types of images and columns come back exactly" {
    local file kind
    for kind in types tiles wide; do
        fits_make $kind $kind.fits
        file=$kind.fits
        back
        back --generic
    done
}

@test "the FITS files of the test data come back exactly" {
    need_shared data/formats data/rv data/extract
    local file n=0
    for file in "$SPX_SHARED"/data/{formats,rv,rv/phoenix_subset,extract}/*.fit*; do
        back
        n=$((n + 1))
    done
    [ "$n" -ge 24 ]
}

@test "through a pipe, and again from what came back" {
    fits_make types types.fits
    fits2h5 -q types.fits | h52fits | fits2h5 -q | h52fits >twice.fits
    cmp types.fits twice.fits
}

@test "a record of the provenance that cannot be read is not one that is absent" {
    cp "$BATS_FILE_TMPDIR/frame.h5" damaged.h5
    h5edit damaged.h5 shape /provenance/001 3
    fails_with 3 '*damaged.h5:/provenance/001: is not fixed-length text*' h52fits damaged.h5 -o x.fits
}

@test "where several files were kept, one is chosen" {
    local d=$BATS_FILE_TMPDIR
    fits2h5 -o both.h5 "$d/image.fits" "$d/psf.fits"
    fails_with 2 '*keeps 2 FITS files*--file*' h52fits -o out.fits both.h5
    h52fits --file 1 -o psf.fits both.h5
    cmp psf.fits "$d/psf.fits"
    h52fits --file image -f -o image.fits both.h5
    cmp image.fits "$d/image.fits"
    h52fits --file psf.fits both.h5 | cmp - "$d/psf.fits"
    h52fits --as psf both.h5 | cmp - "$d/psf.fits"
    h52fits --as preproc both.h5 | cmp - "$d/image.fits"
    h52fits --list both.h5 >list
    grep -q -- '--file 0  image  image.fits  image' list
    fails_with 2 '*--file 2*' h52fits --file 2 -o out.fits both.h5
    fails_with 2 '*--file other*' h52fits --file other -o out.fits both.h5
}

@test "a frame becomes a DESI frame, and comes back" {
    h52fits -o frame.fits "$BATS_FILE_TMPDIR/frame.h5"
    fits2h5 -o again.h5 frame.fits
    h5check again.h5
    local part
    for part in flux ivar mask wavelength resolution chi2pix pixmask_fraction fiber; do
        h5diff "$BATS_FILE_TMPDIR/frame.h5" again.h5 /frame/$part
    done
    h5diff "$BATS_FILE_TMPDIR/frame.h5" again.h5 /fibermap
    h5diff "$BATS_FILE_TMPDIR/frame.h5" again.h5 /scores
    fits2h5 --list frame.fits >list
    grep -q 'frame.fits: frame' list
    head -c 5760 frame.fits | fold -w 80 >cards
    grep -q "^EXTNAME = 'FLUX" cards
    grep -q "^BUNIT   = 'electron/Angstrom'" cards
    grep -q "^CAMERA  = 'r0" cards
    grep -q "^NSPEC   = *4 " cards
    grep -q "^WAVEMIN = *6505" cards
    grep -q "^WAVESTEP= *0.8" cards
    grep -q "^HELIOCOR= *1.0" cards
    grep -q "^IN_IMG  = 'image.fits'" cards
    grep -q "^IN_PSF  = 'psf.fits'" cards
    grep -q "^HISTORY specx-extract" cards
    # units as FITS writes powers
    LC_ALL=C grep -aoE "TUNIT[0-9] += '[^']*'" frame.fits | grep -qF "'Angstrom**(-1/2)'"
    # the same bytes every time
    h52fits "$BATS_FILE_TMPDIR/frame.h5" | cmp - frame.fits
}

@test "a unit that is words is no BUNIT, and comes back" {
    cp "$BATS_FILE_TMPDIR/frame.h5" words.h5
    h5edit words.h5 attr /frame/flux units 'relative flux'
    h52fits -q -o frame.fits words.h5
    h52fits -q --as spectra -o spectra.fits words.h5
    LC_ALL=C grep -aoE "(BUNIT   |FLUXUNIT)= '[^']*'" frame.fits | tr '\n' ' ' >cards
    [ "$(cat cards)" = "FLUXUNIT= 'relative flux' BUNIT   = 'Angstrom' " ]
    fits2h5 -q -o frame.h5 frame.fits
    h5dump -a /frame/flux/units frame.h5 | grep -q '"relative flux"'
    fits2h5 -q -o spectra.h5 spectra.fits
    h5dump -a /spectra/r/flux/units spectra.h5 | grep -q '"relative flux"'
}

@test "a frame as spectra" {
    h52fits --as spectra -o spectra.fits "$BATS_FILE_TMPDIR/frame.h5"
    fits2h5 -o spectra.h5 spectra.fits
    h5check spectra.h5
    local part
    for part in flux ivar wavelength resolution; do
        same_values "$BATS_FILE_TMPDIR/frame.h5" /frame/$part spectra.h5 /spectra/r/$part
    done
    # units are those of each HDU, the image's no longer those of the primary, which has no data
    LC_ALL=C grep -aoE "(SIMPLE  =|EXTNAME = '[A-Z_]+|BUNIT   = '[^']*')" spectra.fits >cards
    [[ $(tr '\n' ' ' <cards) == *"'R_FLUX BUNIT   = 'electron/Angstrom' EXTNAME = 'R_IVAR BUNIT   = 'electron-2 Angstrom2' "* ]]
    [[ $(sed -n 2p cards) == EXTNAME* ]]
    # the brick of each place on the sky, as desiutil numbers them
    fits2h5 -q --generic spectra.fits | h5table --csv -t /fits/spectra/HDU001_FIBERMAP/data -c TARGET_RA,TARGET_DEC,BRICKID |
        awk -F, 'NR > 1 && !($3 > 0 && $3 <= 662174) { bad = 1 } END { exit bad || NR != 5 }'
    # what the wavelengths are has survived
    h5dump -a /spectra/r/wavelength/frame spectra.h5 | grep topocentric
}

@test "image and PSF blocks without their FITS files" {
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --format hdf5 -o sim.h5
    h52fits -o image.fits sim.h5
    h52fits --as psf -o psf.fits sim.h5
    fits2h5 -o again.h5 image.fits psf.fits
    h5check again.h5
    local part
    for part in /image/data /image/ivar /image/mask /fibermap /psf/xtrace /psf/ytrace /psf/coeff; do
        h5diff sim.h5 again.h5 $part
    done
}

@test "velocities become rvtab and rvmod" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/spec-3128-54776-0008.fits
    fits2h5 -q "$SPX_SHARED/data/rv/kurucz_stds_v5.fit" >library.h5
    rvs-template -q --library-resolution R=1900 --setup sdss:3790:9280:1:R=1800 -o templates.h5 library.h5
    fits2h5 -q "$SPX_SHARED/data/rv/spec-3128-54776-0008.fits" | rvs-fit -q -t templates.h5 >v.h5
    h52fits -o rvtab.fits v.h5
    fits2h5 --list rvtab.fits >list
    grep -q 'RVTAB  *table 1 rows' list
    grep -q 'FIBERMAP  *table 1 rows' list
    fits2h5 -q rvtab.fits >rvtab.h5
    [ "$(h5table --csv -c VRAD,TEFF -t /fits/rvtab/HDU001_RVTAB/data rvtab.h5)" = "$(h5table --csv -c VRAD,TEFF v.h5)" ]
    # as rvspecfit has it: SUCCESS is logical, redshift columns are there
    h5dump -H -d /fits/rvtab/HDU001_RVTAB/data rvtab.h5 | tr -d '\n' | grep -q 'H5T_ENUM { *H5T_STD_I8[BL]E; *"FALSE" *0; *"TRUE" *1; *} *"SUCCESS"'
    [ "$(h5table --csv -c SUCCESS -t /fits/rvtab/HDU001_RVTAB/data rvtab.h5 | tail -n 1)" = \
        "$(h5table --csv -c RVS_WARN v.h5 | tail -n 1 | sed 's/^0$/1/; t; s/.*/0/')" ]
    h5table --csv -c RR_Z,RR_SPECTYPE,RR_SUBTYPE -t /fits/rvtab/HDU001_RVTAB/data rvtab.h5 >redshifts
    head -c 2880 rvtab.fits | fold -w 80 | grep -q "^TMPLCON0= 'sdss"
    h52fits --as rvmod -o rvmod.fits v.h5
    fits2h5 --list rvmod.fits >list
    grep -q 'SDSS_WAVELENGTH  *image 3815' list
    grep -q 'SDSS_MODEL  *image 1 x 3815' list
    fits2h5 -q rvmod.fits >rvmod.h5
    same_values v.h5 /rvfit/sdss/model rvmod.h5 /fits/rvmod/HDU002_SDSS_MODEL/data
}

@test "files that were tampered with are refused" {
    local d=$BATS_FILE_TMPDIR
    fits2h5 -q -o kept.h5 "$d/psf.fits"
    cp kept.h5 bad.h5
    h5edit bad.h5 shape /fits/psf/HDU001_YTRACE/data 3,3
    fails_with 3 '*HDU001_YTRACE/data*' h52fits -o out.fits bad.h5
    cp kept.h5 bad.h5
    h5edit bad.h5 delete /fits/psf/HDU001_YTRACE
    fails_with 3 '*is missing*' h52fits -o out.fits bad.h5
    cp kept.h5 bad.h5
    h5edit bad.h5 delete /fits/psf/HDU002_PSF/header
    fails_with 3 '*HDU002_PSF/header*' h52fits -o out.fits bad.h5
    cp kept.h5 bad.h5
    h5edit bad.h5 delete /fits/psf/HDU002_PSF/data
    fails_with 3 '*HDU002_PSF*not its data*' h52fits -o out.fits bad.h5
    cp kept.h5 bad.h5
    h5edit bad.h5 delete-attr /fits/psf/HDU002_PSF index
    h52fits bad.h5 | fits2h5 --list - >list # an HDU less
    [ "$(wc -l <list)" -eq 3 ]
}

@test "what cannot be written is refused" {
    local d=$BATS_FILE_TMPDIR
    fails_with 3 '*rvfit*' h52fits --as rvtab -o out.fits "$d/frame.h5"
    fails_with 3 '*image*' h52fits --as preproc -o out.fits "$d/frame.h5"
    fails_with 3 '*--as generic*' h52fits --as generic -o out.fits "$d/frame.h5"
    fails_with 2 '*one input file*' h52fits -o out.fits "$d/frame.h5" "$d/frame.h5"
    fails_with 3 '*empty*' h52fits -o out.fits - </dev/null
    head -c 2000 "$d/frame.h5" >cut.h5
    fails_with 3 '*cut.h5*' h52fits -o out.fits cut.h5
    cp "$d/frame.h5" same.h5
    fails_with 2 '*both input and output*' h52fits -f -o same.h5 same.h5
    fails_with 4 '*' h52fits -o nowhere/out.fits same.h5
    if [ -w /dev/full ]; then
        # shellcheck disable=SC2016
        run --separate-stderr bash -c 'h52fits "$1" >/dev/full' bash "$d/frame.h5"
        [ "$status" -eq 4 ]
    fi
}

@test "calibrated frames, sky, flat and coadd in DESI's layouts" {
    example_data
    local d=$BATS_FILE_TMPDIR/data
    specx-sim -q --arm r --fibers 12 --sky-fibers 5 --wavelength 6400,6600 --snr 40 --format hdf5 -o sky.h5
    specx-extract -q -w 6400,6600,0.8 -o frame.h5 sky.h5
    specx-sky -q -o s.h5 frame.h5
    specx-sky -q --keep-sky -o kept.h5 frame.h5
    specx-flux -q --fit "$d/stars-r0.h5" -o c.h5 "$d/frame-r0.h5"
    specx-flat -q -o flat.h5 "$d/lamp-r0-1.h5" "$d/lamp-r0-2.h5"
    # what a file can become
    h52fits --list s.h5 >list
    grep -q -- '--as sframe' list
    run ! grep -q -- '--as cframe' list
    h52fits --list c.h5 | grep -q -- '--as cframe'
    fails_with 3 '*not flux-calibrated*specx-flux*' h52fits --as cframe -o x.fits s.h5
    fails_with 3 '*no sky was subtracted*' h52fits --as sframe -o x.fits frame.h5
    fails_with 3 '*no sky was subtracted*' h52fits --as sframe -o x.fits kept.h5
    fails_with 3 '*' h52fits --as sky -o x.fits frame.h5
    # frames come back as they were
    h52fits --as sframe -o sframe.fits s.h5
    h52fits --as cframe -o cframe.fits c.h5
    fits2h5 -q sframe.fits -o sframe.h5
    fits2h5 -q cframe.fits -o cframe.h5
    h5check sframe.h5 cframe.h5
    local part
    for part in flux ivar mask resolution; do
        h5diff s.h5 sframe.h5 /frame/$part
        h5diff c.h5 cframe.h5 /frame/$part
    done
    # sky and flat: HDUs, shapes and values
    h52fits --as sky -o sky.fits s.h5
    fits2h5 --list sky.fits >list
    for part in SKY IVAR MASK WAVELENGTH FIBERMAP; do grep -qE "^ +[0-9]+  $part " list; done
    fits2h5 -q --generic -o sky-back.h5 sky.fits
    same_values s.h5 /sky/model sky-back.h5 /fits/sky/HDU000_SKY/data
    h52fits -o flat.fits flat.h5
    fits2h5 --list flat.fits >list
    for part in FIBERFLAT IVAR MASK MEANSPEC WAVELENGTH FIBERMAP; do grep -qE "^ +[0-9]+  $part " list; done
    fits2h5 -q --generic -o flat-back.h5 flat.fits
    same_values flat.h5 /flat/flat flat-back.h5 /fits/flat/HDU000_FIBERFLAT/data
    same_values flat.h5 /flat/mask flat-back.h5 /fits/flat/HDU002_MASK/data
    # coadds have a row a target, with the columns that readers ask for
    h52fits --as coadd -o coadd.fits "$d/spectra.h5"
    fits2h5 -q coadd.fits -o coadd.h5
    h5check coadd.h5
    h5table --csv -t /fibermap -c COADD_FIBERSTATUS,COADD_NUMEXP coadd.h5 | tail -n +2 | sort -u >columns
    [ "$(cat columns)" = 0,1 ]
    for part in flux ivar wavelength resolution; do
        same_values "$d/spectra.h5" /spectra/z/$part coadd.h5 /spectra/z/$part
    done
    h5merge -q --by rows --allow repeated -o twice.h5 "$d/spectra.h5" "$d/spectra.h5"
    fails_with 3 '*has several spectra*h5merge --coadd*' h52fits --as coadd -o x.fits twice.h5
}
