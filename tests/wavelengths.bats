# How wavelengths are meant: medium, frame and units are obeyed or refused, never taken for something else.

load common

setup_file() {
    example_data
}

# fit FILE: velocities, without the message.
fit() {
    rvs-fit -q -f --vrange -500,500 --templates "$BATS_FILE_TMPDIR/data/templates.h5" "$1" -o rv.h5
    h5table --csv -c VRAD,VRAD_ERR,TEFF rv.h5
}

@test "words in any case, and no others" {
    local d=$BATS_FILE_TMPDIR/data w
    cp "$d/frame-r0.h5" air.h5
    h5edit air.h5 attr /frame/wavelength medium air
    fit air.h5 >air
    run ! cmp air <(fit "$d/frame-r0.h5")
    for w in AIR Air; do
        h5edit air.h5 attr /frame/wavelength medium $w
        fit air.h5 | cmp - air
    done
    for w in nonsense 'air ' ''; do
        h5edit air.h5 attr /frame/wavelength medium "$w"
        fails_with 3 "*air.h5:/frame/wavelength: attribute 'medium' is '$w': should be vacuum or air*" \
            rvs-fit -q --templates "$d/templates.h5" air.h5 -o x.h5
    done
    cp "$d/frame-r0.h5" frame.h5
    h5edit frame.h5 attr /frame/wavelength frame Topocentric
    fit frame.h5 | cmp - <(fit "$d/frame-r0.h5")
    h5edit frame.h5 attr /frame/wavelength frame galactic
    fails_with 3 "*frame.h5:/frame/wavelength: attribute 'frame' is 'galactic': should be topocentric or barycentric*" \
        rvs-fit -q --templates "$d/templates.h5" frame.h5 -o x.h5
    cp "$d/library.h5" library.h5
    h5edit library.h5 attr /library/wavelength medium water
    fails_with 3 "*library.h5:/library/wavelength: attribute 'medium' is 'water'*" \
        rvs-template -q library.h5 --setup r:6400:6600:0.5:FWHM=1.8 -o x.h5
}

@test "units of wavelengths in HDF5" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-r0.h5" u.h5
    fit u.h5 >right
    h5edit u.h5 attr /frame/wavelength units '0.1 nm'
    fit u.h5 | cmp - right
    h5edit u.h5 attr /frame/wavelength units nm
    run -3 --separate-stderr rvs-fit -q --templates "$d/templates.h5" u.h5 -o x.h5
    # shellcheck disable=SC2154
    [[ $stderr == *64000* || $stderr == *'no arm'* || $stderr == *setup* ]]
    h5edit u.h5 attr /frame/wavelength units banana
    fails_with 3 "*u.h5:/frame/wavelength: has units 'banana': should be Angstrom, nm, um, mm, cm or m" \
        rvs-fit -q --templates "$d/templates.h5" u.h5 -o x.h5
}

@test "units of wavelengths in FITS" {
    local d=$BATS_FILE_TMPDIR/data
    h52fits -q "$d/frame-r0.h5" -o frame.fits
    fits2h5 -q frame.fits -o right.h5
    LC_ALL=C sed "s|^|&|; s|BUNIT   = 'Angstrom'|BUNIT   = 'nm      '|" frame.fits >nm.fits
    run ! cmp -s frame.fits nm.fits
    fits2h5 -q nm.fits -o nm.h5
    h5dump -d /frame/wavelength -s 0 -c 1 right.h5 | grep -q '(0): 6400'
    h5dump -d /frame/wavelength -s 0 -c 1 nm.h5 | grep -q '(0): 64000'
    LC_ALL=C sed "s|BUNIT   = 'Angstrom'|BUNIT   = 'furlong '|" frame.fits >furlong.fits
    fails_with 3 "*furlong.fits: HDU WAVELENGTH: BUNIT is 'furlong': should be Angstrom*" \
        fits2h5 -q furlong.fits -o x.h5
}

@test "templates whose wavelengths are not those of their attributes" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/templates.h5" t.h5
    h5edit t.h5 move /templates/r/wavelength 0.01 # half a km/s
    fails_with 3 "*t.h5:/templates/r/wavelength: element 0 is * Angstrom, the attributes*" \
        rvs-fit -q --templates t.h5 "$d/frame-r0.h5" -o x.h5
}
