# fits2h5: spectra of other surveys and instruments, and their way through rvs-fit: every layout holds the same star at
# +37 km/s (tests/helpers/spec_make.c).

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --wavelength 4900,6700 --axis teff=5000,5500,6000 --axis logg=3.5,4.5 --axis feh=-1,0
    fits2h5 -q --vacuum stars -o library.h5
    rvs-template -q library.h5 -o any.h5 -s any:6380:6620:0.1:FWHM=1
    rvs-template -q library.h5 -o arms.h5 -s b:4980:5170:0.1:FWHM=1 -s r:6380:6620:0.1:FWHM=1
}

# column NAME,... FILE: values of columns of the table, a line a star.
column() {
    h5table --csv -c "$1" "$2" | tail -n +2
}

# star TEMPLATES FILE PIXELS: the star is found in FILE, with so many good pixels.
star() {
    rvs-fit -q -f --no-model -t "$BATS_FILE_TMPDIR/$1" -o rv.h5 "$2"
    column VRAD,VRAD_ERR,TEFF,TEFF_ERR,NPIX_TOT,RVS_WARN rv.h5 | awk -F, -v n="$3" '{ print FILENAME, $0 }
        ($1 - 37)^2 > (3.5 * $2)^2 || $2 > 1.5 || ($3 - 5500)^2 > (4 * $4)^2 || $5 != n || $6 != 0 { bad = 1 }
        END { exit bad || NR == 0 }'
}

# layout KIND ARM PIXELS [OPTION...]: fits2h5 knows it, keeps it without loss, and the star is in it.
layout() {
    spec_make "$1" "$1.fits"
    fits2h5 -q "${@:4}" -o "$1.h5" "$1.fits"
    h5check "$1.h5"
    h52fits "$1.h5" | cmp - "$1.fits"
    h5ls "$1.h5/spectra/$2/flux"
    star any.h5 "$1.h5" "$3"
}

# axis FILE ARM WORD: medium or frame of the wavelengths.
axis() {
    h5dump -A -d "/spectra/$2/wavelength" "$1" | grep "\"$3\""
}

@test "SDSS: a table, and the image of SDSS-I" {
    layout spec sdss 595
    layout spspec sdss 655
    axis spec.h5 sdss vacuum
    axis spec.h5 sdss barycentric
    # what SDSS's mask calls bad is said in this project's bits
    h5dump -A 0 -y -w 1 -d /spectra/sdss/mask spec.h5 | awk '/^ *[0-9]+,?$/ { n[$1 + 0]++ }
        END { exit !(n[1] == 5 && n[0] == 595) }'
    h5table --csv -t /fibermap -c TARGETID,FIBER,TARGET_RA,TARGET_DEC spspec.h5 | grep -x '266516020031,31,145.5,-1.25'
    [ "$(h5table --csv -t /fibermap -c TARGETID,FIBER,TARGET_RA,TARGET_DEC spspec.h5)" = \
        "$(h5table --csv -t /fibermap -c TARGETID,FIBER,TARGET_RA,TARGET_DEC spec.h5)" ]
}

@test "LAMOST: images, tables, medium resolution" {
    layout lamost lamost 655
    layout lamost-table lamost 655
    h5table --csv -t /fibermap -c TARGETID,OBJECT lamost.h5 | grep -x '1001,LAMOST J004114.61+063310.8'
    for kind in mrs mrs-table; do
        spec_make $kind $kind.fits
        fits2h5 -q $kind.fits -o $kind.h5
        h5check $kind.h5
        [ "$(h5ls $kind.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "b header r " ]
        star arms.h5 $kind.h5 950
        fits2h5 -q --exposures $kind.fits -o each.h5 -f
        [ "$(h5ls each.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "b b2 header r r2 " ]
        star arms.h5 each.h5 1906
    done
}

@test "APOGEE: sums, visits, what ASPCAP fitted" {
    layout apstar apogee 655
    layout aspcapstar apogee 655
    layout apvisit apogee3 645
    # visits are rows of one star
    fits2h5 -q --exposures apstar.fits -o visits.h5
    h5dump -H -d /spectra/apogee/flux visits.h5 | grep 'SIMPLE { ( 2, 660 )'
    [ "$(h5table --csv -t /fibermap -c TARGETID visits.h5 | tail -n +2 | sort -u | wc -l)" -eq 1 ]
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" --joint target -o joint.h5 visits.h5
    [ "$(column NEXP joint.h5)" = 2 ]
}

@test "GALAH: four cameras in four files are one row; the errors are relative" {
    for camera in 1 2 3 4; do spec_make galah $camera.fits $camera; done
    fits2h5 -q [1-4].fits -o four.h5
    h5check four.h5
    [ "$(h5ls four.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "b g header i r " ]
    h5dump -H -d /spectra/g/flux four.h5 | grep 'SIMPLE { ( 1, 400 )'
    axis four.h5 g air
    rvs-template -q "$BATS_FILE_TMPDIR/library.h5" -o "$BATS_FILE_TMPDIR/four.h5" -s b:6380:6470:0.1:FWHM=1 \
        -s g:6430:6520:0.1:FWHM=1 -s r:6480:6570:0.1:FWHM=1 -s i:6520:6620:0.1:FWHM=1
    star four.h5 four.h5 1580
    column CHISQ_TOT,NPIX_TOT rv.h5 | awk -F, '{ exit ($1 / $2 - 1)^2 > 0.15^2 }'
}

@test "ESO: vectors in one row; nanometre, air, flux in cgs units; errors that are none" {
    layout eso xshooter 1595
    axis eso.h5 xshooter air
    h5dump -d /spectra/xshooter/wavelength -c 1 eso.h5 | grep '(0): 6400$'
    h5dump -A -d /spectra/xshooter/flux eso.h5 | grep 'erg.cm'
    spec_make eso-noerr harps.fits
    run --separate-stderr fits2h5 -o harps.h5 harps.fits
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"harps.fits: no errors are given"* ]]
    star any.h5 harps.h5 1595
    column CHISQ_TOT,NPIX_TOT rv.h5 | awk -F, '{ exit ($1 / $2 - 1)^2 > 0.2^2 }'
}

@test "arrays with a scale in the header: linear, in micron, three kinds of logarithms; HDUs of variances" {
    layout linear spectrum 1595
    layout wave-log spectrum 695
    layout iraf-log spectrum 700
    layout log spectrum 700
    layout muse muse 495
    layout bands spectrum 1595 --air
    layout metre spectrum 1600
    LC_ALL=C sed 's/CUNIT1/CUNITX/' metre.fits >unsaid.fits
    fits2h5 -q -o unsaid.h5 unsaid.fits
    star any.h5 unsaid.h5 1600
    axis linear.h5 spectrum topocentric
    run --separate-stderr fits2h5 -f -o linear.h5 linear.fits
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"linear.fits: the motion of the Earth is in the wavelengths"*"(ESO DRS BERV = -12.5)"* ]]
    # the option has the last word
    spec_make iraf-log vacuum.fits
    fits2h5 -q --air -o air.h5 vacuum.fits
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" -o shifted.h5 air.h5
    column VRAD shifted.h5 | awk '{ exit !($1 > 110 && $1 < 130) }'
}

@test "scales that cannot be meant: a logarithm as CRVAL1 of WAVE-LOG, wavelengths no spectrum has, other frames" {
    spec_make iraf-log iraf.fits
    LC_ALL=C sed "s/'LOG-LINEAR'/'WAVE-LOG  '/; s/DC-FLAG /NO-FLAG /" iraf.fits >log10.fits
    fits2h5 -q --vacuum -o log10.h5 log10.fits
    star any.h5 log10.h5 700
    # millimetre in place of Angstrom
    spec_make wave-log wave.fits
    LC_ALL=C sed "s/'Angstrom'/'mm      '/" wave.fits >far.fits
    fits2h5 --list far.fits | grep 'far.fits: generic; .* wavelengths are 6.4e+10 to .* Angstrom: is their unit right?'
    fails_with 3 '*far.fits*' fits2h5 --as spectra -o x.h5 far.fits
    LC_ALL=C sed -E "s/(CRVAL1  = +)[0-9.E]/\1-/" wave.fits >below.fits
    fits2h5 --list below.fits | grep 'below.fits: generic; .* CRVAL1, -.* Angstrom, is no wavelength'
    spec_make text star.txt
    awk '{ $1 /= 100; print }' star.txt >short.txt
    fails_with 3 '*short.txt: arm spectrum: wavelengths of 64* Angstrom cannot be*' fits2h5 --air -o x.h5 short.txt
    spec_make eso eso.fits
    LC_ALL=C sed "s/'BARYCENT'/'LSRK    '/" eso.fits >lsr.fits
    fits2h5 --list lsr.fits | grep 'generic; .* (SPECSYS) is neither'
    LC_ALL=C sed "s/'BARYCENT'/'HELIOCEN'/" eso.fits >sun.fits
    fits2h5 -q -o sun.h5 sun.fits
    axis sun.h5 xshooter barycentric
}

@test "an unknown frame is written as unknown, and taken for topocentric with a warning" {
    spec_make eso eso.fits
    LC_ALL=C sed "s/SPECSYS = 'BARYCENT'/NOSYS   = 'BARYCENT'/" eso.fits >unsaid.fits
    run --separate-stderr fits2h5 -o unsaid.h5 unsaid.fits
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"unsaid.fits: the frame of the wavelengths is unknown"* ]]
    axis unsaid.h5 xshooter unknown
    h5check unsaid.h5
    run --separate-stderr rvs-fit -t "$BATS_FILE_TMPDIR/any.h5" -o rv.h5 unsaid.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"arm 'xshooter': it is not known whether wavelengths are barycentric: they are taken for topocentric"* ]]
    h5check rv.h5
    h5dump -A -d /rvfit/xshooter/wavelength rv.h5 | grep '"unknown"'
    # the same numbers as of topocentric ones, and no word of those
    h5edit unsaid.h5 attr /spectra/xshooter/wavelength frame topocentric
    run --separate-stderr rvs-fit -t "$BATS_FILE_TMPDIR/any.h5" -o topo.h5 unsaid.h5
    [[ $stderr != *"not known whether"* ]]
    cmp <(column VRAD,VRAD_ERR rv.h5) <(column VRAD,VRAD_ERR topo.h5)
    # one file of each kind: arms of their own; and there and back as DESI's spectra
    fits2h5 -q -o both.h5 eso.fits unsaid.fits
    axis both.h5 xshooter barycentric
    axis both.h5 xshooter2 unknown
    h52fits -q --as spectra both.h5 -o both.fits
    fits2h5 -q -o again.h5 both.fits
    axis again.h5 xshooter barycentric
    axis again.h5 xshooter2 unknown
    # rows of unknown frame are not joined with others
    fits2h5 -q -o known.h5 eso.fits
    fits2h5 -q -o unknown.h5 unsaid.fits
    fails_with 3 "*attribute frame is 'unknown', but 'barycentric'*" h5merge --by rows known.h5 unknown.h5 -o x.h5
}

@test "more stars than arms, each on a grid of its own" {
    spec_make text star.txt
    local k
    # slower and faster by 0.6 km/s each, and other numbers of pixels
    for k in {100..169}; do
        awk -v k="$k" 'NR == 1 || $1 + 0 == 0 || NR < 1500 - k { if ($1 + 0 > 0) $1 = sprintf("%.6f", $1 * (1 + (k - 135) * 2e-6)); print }' \
            star.txt >"s$k.txt"
    done
    fits2h5 -q --air -o many.h5 s1*.txt
    h5check many.h5
    [ "$(h5ls many.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "spectrum " ]
    h5ls many.h5/spectra/spectrum/wavelength | grep 'Dataset {70, '
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" -o rv.h5 many.h5
    h5check rv.h5
    # each is where it was put, with its own pixels and model
    column VRAD,VRAD_ERR,NPIX_TOT,RVS_WARN rv.h5 | awk -F, '{ v = 37 + (NR - 36) * 2e-6 * 299792.458; print $0, v
        bad += ($1 - v)^2 > (3.5 * $2)^2 || $4 != 0; if (NR > 1 && $3 >= last) bad++; last = $3 } END { exit bad || NR != 70 }'
    h5ls rv.h5/rvfit/spectrum/wavelength | grep 'Dataset {70, '
    # as one by one
    for k in 100 169; do
        fits2h5 -q -f --air -o one.h5 "s$k.txt"
        rvs-fit -q -f -t "$BATS_FILE_TMPDIR/any.h5" -o one-rv.h5 one.h5
        cmp <(column VRAD,VRAD_ERR,TEFF,CHISQ_TOT one-rv.h5) <(column VRAD,VRAD_ERR,TEFF,CHISQ_TOT rv.h5 | sed -n "$((k - 99))p")
    done
    # the same bits with any number of threads, and of some rows
    rvs-fit -q -j 1 -t "$BATS_FILE_TMPDIR/any.h5" -o again.h5 many.h5
    h5diff rv.h5 again.h5 /rvfit
    rvs-fit -q --rows 10:12 -w 6450,6550 -t "$BATS_FILE_TMPDIR/any.h5" -o part.h5 many.h5
    column VRAD,VRAD_ERR,NPIX_TOT part.h5 | awk -F, '{ v = 37 + (NR - 26) * 2e-6 * 299792.458
        bad += ($1 - v)^2 > (3.5 * $2)^2 || $3 > 900 || $3 < 700 } END { exit bad || NR != 2 }'
    # curves of the cross-correlation have the same velocities
    rvs-fit -q -f --ccf -t "$BATS_FILE_TMPDIR/any.h5" -o rv.h5 many.h5
    h5check rv.h5
    rvs-fit -q -f --ccf -t "$BATS_FILE_TMPDIR/any.h5" -o one-rv.h5 one.h5
    h5diff rv.h5 one-rv.h5 /ccf/velocity
    curve() { h5dump -A 0 -y -w 1 -d "/ccf/gain[$1,0,0;;1,1,900]" "$2" | grep -E '^ *[-0-9.e+]+,?$'; }
    cmp <(curve 69 rv.h5) <(curve 0 one-rv.h5)
    h5check --input many.h5 | grep 'rvs-fit, h5merge'
    # as FITS, there and back: wavelengths with a row a spectrum
    h52fits -q -o many.fits --as spectra many.h5
    fits2h5 --list many.fits | grep 'SPECTRUM_WAVELENGTH *image 70 x 1398'
    fits2h5 -q -o back.h5 many.fits
    h5check back.h5
    for q in wavelength flux ivar mask; do h5diff many.h5 back.h5 "/spectra/spectrum/$q"; done
    h5dump -A 0 -a /spectra/spectrum/wavelength/medium back.h5 | grep '"air"'
    h52fits -q -o models.fits --as rvmod rv.h5
    fits2h5 --list models.fits | grep 'SPECTRUM_WAVELENGTH *image 70 x 1398'
    # pictures: of one spectrum on its own wavelengths, of all
    specplot --kind fit --spectrum 69 -w 6500,6520 --script -o fit.gp many.h5 rv.h5
    h5dump -A 0 -y -w 1 -m %.4f -d '/spectra/spectrum/wavelength[69,0;;1,1398]' many.h5 | awk '$1 + 0 > 6500 && $1 + 0 < 6520 { print $1 + 0 }' |
        head -n 3 | while read -r w; do grep -q "^$w" fit.gp || { echo "no $w"; false; }; done
    # two files, bin by bin: each row on its own grid
    cp many.h5 twice.h5
    h5edit twice.h5 scale /spectra/spectrum/flux 2 range /spectra/spectrum/ivar 1400 1410 0
    specplot --kind compare --table many.h5 twice.h5 >compared
    h5dump -A 0 -y -w 1 -d /spectra/spectrum/ivar many.h5 | grep -cE '^ *[1-9]' >good
    awk -F '\t' -v good="$(cat good)" '$2 == "flux" { n = $3; m = $4 } $2 == "masked_second" { lost = $3 } $2 == "ivar" { i = $4 }
        END { print n, m, lost, i; exit !(n + lost == good && lost == 10 && m < -5 && i == 0) }' compared
    specplot --kind compare --spectrum 69 --script -o compare.gp many.h5 twice.h5
    grep -q 'multiplot' compare.gp
    # a file in which the same spectra have other rows, and one on one grid
    fits2h5 -q -f --air -o one.h5 s169.txt
    specplot --kind compare --table one.h5 one.h5 | awk -F '\t' '$2 == "flux" { exit !($3 > 1000 && $4 == 0) }'
    h5edit twice.h5 move /spectra/spectrum/wavelength 0.01
    fails_with 3 '*has other bins than twice.h5: give spectra that are on the same bins*' specplot --kind compare --table many.h5 twice.h5
    # joined by rows, with spectra of the same number of bins
    fits2h5 -q --air -o a.h5 s100.txt s101.txt
    fits2h5 -q --air -o b.h5 s100.txt s102.txt
    h5merge -q --by rows --allow repeated -o ab.h5 a.h5 b.h5
    h5check ab.h5
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" -o ab-rv.h5 ab.h5
    cmp <(column VRAD,VRAD_ERR ab-rv.h5) <(column VRAD,VRAD_ERR rv.h5 | awk '{ l[NR] = $0 } END { print l[1] "\n" l[2] "\n" l[1] "\n" l[3] }')
    h5merge -q --by rows --allow repeated -o rv2.h5 ab-rv.h5 ab-rv.h5
    h5check rv2.h5
    fits2h5 -q -f --air -o b.h5 s102.txt
    fails_with 3 '*has one grid, but a.h5 has a grid for each spectrum*' h5merge -q --by rows -o x.h5 a.h5 b.h5
}

@test "exposures of one star on different grids of an arm are fitted jointly" {
    spec_make text star.txt
    awk '{ if ($1 + 0 > 0) $1 += 0.03; print }' star.txt >other.txt
    fits2h5 -q --air -o two.h5 star.txt other.txt
    h5ls two.h5/spectra/spectrum/wavelength | grep 'Dataset {2, '
    rvs-fit -q --joint all --epochs -t "$BATS_FILE_TMPDIR/any.h5" -o rv.h5 two.h5
    h5check rv.h5
    # as from two files, in which they are arms of their own
    fits2h5 -q --air -o a.h5 star.txt
    fits2h5 -q --air -o b.h5 other.txt
    rvs-fit -q --joint all --epochs -t "$BATS_FILE_TMPDIR/any.h5" -o want.h5 a.h5 b.h5
    q=VRAD,VRAD_ERR,TEFF,NPIX_TOT,NEXP,CONST_CHISQ
    paste -d, <(column $q rv.h5) <(column $q want.h5) | awk -F, '{ for (k = 1; k <= NF / 2; k++) if (($k - $(k + NF / 2))^2 > (1e-6 * (1e-3 + $k))^2) bad = 1 } END { exit bad || NR != 1 }'
    # as the output calls them
    rvs-fit -q --joint all --arms spectrum2 -t "$BATS_FILE_TMPDIR/any.h5" -o second.h5 a.h5 b.h5
    [ "$(h5ls second.h5/rvfit | grep -c '^spectrum2* .*Group')" -eq 1 ]
    h5ls second.h5/rvfit/spectrum2
    rvs-fit -q --joint all -w spectrum:6450,6550 -w spectrum2:6450,6500 -t "$BATS_FILE_TMPDIR/any.h5" -o ranges.h5 a.h5 b.h5
    [ "$(h5ls ranges.h5/rvfit/spectrum/wavelength | tr -dc 0-9)" -gt "$((2 * $(h5ls ranges.h5/rvfit/spectrum2/wavelength | tr -dc 0-9) - 3))" ]
    fails_with 2 "*no arm 'spectrum3'*" rvs-fit --joint all --arms spectrum3 -t "$BATS_FILE_TMPDIR/any.h5" -o x.h5 a.h5 b.h5
    # the second is displaced by 0.03 Angstrom
    h5table --csv -t /rvfit/exposures -c VRAD rv.h5 | awk 'NR == 2 { a = $1 } NR == 3 { d = $1 - a } END { exit !(d > 0.9 && d < 1.9) }'
    h5dump -H -d /rvfit/spectrum/exposure_model rv.h5 | grep 'SIMPLE { ( 2, '
}

@test "the list tells what errors, masks and wavelengths become" {
    for kind in muse apstar espresso spec; do spec_make $kind $kind.fits; done
    fits2h5 --list muse.fits | grep 'STAT .* -> /spectra/muse/ivar$'
    fits2h5 --list muse.fits | grep 'DATA .* -> /spectra/muse/flux$'
    fits2h5 --list apstar.fits | grep '3 .* -> /spectra/apogee/mask$'
    fits2h5 --list espresso.fits | grep ' -> /spectra/espresso/wavelength$'
    # columns of a table
    fits2h5 --list spec.fits | grep 'COADD .* -> /spectra/sdss$'
}

@test "orders of echelle spectrographs, each an arm" {
    layout orders carmenes5 2475 --vacuum
    layout espresso espresso5 2475
    axis espresso.h5 espresso2 barycentric
    layout multispec spectrum5 2475
    layout e2ds harps5 2475
    axis e2ds.h5 harps3 air
    fits2h5 -q --orders 1:3 -o two.h5 espresso.fits
    [ "$(h5ls two.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "espresso espresso2 header " ]
    fails_with 2 '*--orders*' fits2h5 --orders 4:9 -o x.h5 espresso.fits
    # orders in which there is nothing
    layout blank spectrum3 1500 --vacuum
    run --separate-stderr fits2h5 -f --vacuum -o blank.h5 blank.fits
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"blank.fits: orders without wavelengths are left out: 3"* ]]
    [ "$(h5ls blank.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "header spectrum spectrum2 spectrum3 " ]
    fails_with 3 '*blank.fits: has no wavelengths*' fits2h5 --orders :2 -o x.h5 blank.fits
    # many of them, all with one setup; more than there is room for
    spec_make echelle many.fits 30
    fits2h5 -q --vacuum -o many.h5 many.fits
    rvs-template -q "$BATS_FILE_TMPDIR/library.h5" -o "$BATS_FILE_TMPDIR/wide.h5" -s any:4970:6620:0.1:FWHM=1
    star wide.h5 many.h5 9000
    spec_make echelle more.fits 70
    fails_with 3 '*more than 64 *--orders*' fits2h5 --vacuum -o x.h5 more.fits
    fits2h5 -q --vacuum --orders :64 -o most.h5 more.fits
    # damaged scales
    LC_ALL=C sed "s/9. 1. 0. 2 4/9. 1. 0. 6 4/" multispec.fits >other.fits
    fails_with 3 '*other.fits: *order 3*' fits2h5 -o x.h5 other.fits
    LC_ALL=C sed 's/WAT2_00/WAT3_00/' multispec.fits >none.fits
    fails_with 3 '*none.fits: *WAT2*' fits2h5 -o x.h5 none.fits
    LC_ALL=C sed 's/COEFF LL7 /COEFF LX7 /' e2ds.fits >gone.fits
    fails_with 3 '*gone.fits: order 1 *' fits2h5 -o x.h5 gone.fits
}

@test "texts: columns with names and without" {
    spec_make csv star.csv
    fits2h5 -q --air -o csv.h5 star.csv
    h5check csv.h5
    star any.h5 csv.h5 1595
    spec_make text star.txt
    fits2h5 -q --air -o text.h5 star.txt
    star any.h5 text.h5 1595
    h5dump -A 0 -y -w 1 -d /spectra/spectrum/mask text.h5 | awk '/^ *[0-9]+,?$/ { n[$1 + 0]++ }
        END { exit !(n[256] == 5 && n[0] == 1595) }'
    # both at once: on one grid, a row each
    fits2h5 -q --air -o both.h5 star.csv star.txt
    star any.h5 both.h5 1595
    [ "$(h5table --csv -t /fibermap -c FILENAME both.h5 | tail -n +2 | tr '\n' ' ')" = "star.csv star.txt " ]
    { head -n 100 star.txt && echo 'x y'; } >broken.txt
    fails_with 3 '*broken.txt:101: *' fits2h5 -o x.h5 broken.txt
    { tail -n 50 star.txt && head -n 50 star.txt; } >turned.txt
    fails_with 3 '*turned.txt: *wavelengths turn at pixel 50*' fits2h5 -o x.h5 turned.txt
    sed 's/,error/,ivar/' star.csv >ivar.csv
    fits2h5 -q --air -o ivar.h5 ivar.csv
    h5dump -A 0 -d /spectra/spectrum/ivar -c 1,1 ivar.h5 | grep '): 0.0125$'
}

@test "many files: --keep-going leaves out what cannot be read" {
    for i in 0 1; do spec_make spec $i.fits $i; done
    spec_make text star.txt
    head -c 9000 1.fits >cut.fits
    echo hello >junk.fits
    { tail -n 50 star.txt && head -n 50 star.txt; } >turned.txt
    fits2h5 -q --air --reproducible -o want.h5 0.fits star.txt 1.fits
    fails_with 3 '*turned.txt*' fits2h5 -o x.h5 turned.txt 0.fits
    run --separate-stderr fits2h5 -q --keep-going --air --reproducible -o got.h5 \
        turned.txt cut.fits 0.fits star.txt absent.fits 1.fits junk.fits
    [ "$status" -eq 3 ]
    for file in turned.txt cut.fits absent.fits junk.fits; do
        [ "$(grep -c "^fits2h5: $file: " <<<"$stderr")" -eq 1 ]
    done
    [ "$(tail -n 1 <<<"$stderr")" = 'fits2h5: 4 of the inputs could not be read: see above' ]
    [ "$(wc -l <<<"$stderr")" -eq 5 ]
    h5check got.h5
    for group in spectra fibermap fits; do h5diff want.h5 got.h5 $group; done
    h5dump -g /provenance got.h5 | grep 'files_left_out=4'
    # of spectra that cannot be read, no HDUs are kept
    run -0 h5ls got.h5/fits
    [[ $output != *turned* && $output == *0* ]]
    # into a pipe: the next program has all of it
    run bash -c 'set -o pipefail; fits2h5 -q -k --air --reproducible 0.fits cut.fits star.txt 1.fits | cat >pipe.h5'
    [ "$status" -eq 3 ]
    h5diff want.h5 pipe.h5 /spectra
    fits2h5 -q -k --air -o all.h5 0.fits 1.fits
    fails_with 3 '*no file could be read*' fits2h5 -k -o x.h5 cut.fits absent.fits
    fails_with 3 '*no spectrum could be read*' fits2h5 -k -o x.h5 turned.txt
    # what is no damage stops all the same
    fails_with 2 '*contradict*' fits2h5 -k --air --vacuum -o x.h5 0.fits
    # files of a library
    cp -r "$BATS_FILE_TMPDIR/stars" stars
    fits2h5 -q --vacuum stars -o want-library.h5
    specx-sim -q --library short --wavelength 5000,5100 --axis teff=5000,5500 --axis logg=3.5,4.5 --axis feh=-1,0
    for f in short/lte*; do
        cp "$f" stars/a-short.fits
        cp "$f" stars/z-short.fits
        head -c 4000 "$f" >stars/a-cut.fits
    done
    fails_with 3 '*a-cut.fits*' fits2h5 --vacuum stars -o x.h5
    run --separate-stderr fits2h5 -q -k --vacuum stars -o got-library.h5
    [ "$status" -eq 3 ]
    for f in a-cut.fits: a-short.fits:\ has z-short.fits:\ has; do
        [ "$(grep -c "^fits2h5: stars/$f " <<<"$stderr")" -eq 1 ]
    done
    [ "$(wc -l <<<"$stderr")" -eq 4 ]
    h5check got-library.h5
    h5diff want-library.h5 got-library.h5 /library
}

@test "many files in one call: rows on the grid that reaches over all of them" {
    for i in 0 1 2 3; do spec_make spec $i.fits $i; done
    spec_make spspec old.fit 7
    fits2h5 -q [0-3].fits old.fit -o many.h5
    h5check many.h5
    [ "$(h5ls many.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "header sdss " ]
    h5dump -H -d /spectra/sdss/flux many.h5 | grep 'SIMPLE { ( 5, 660 )'
    [ "$(h5table --csv -t /fibermap -c FIBER many.h5 | tail -n +2 | tr '\n' ' ')" = "31 32 33 34 38 " ]
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" -o rv.h5 many.h5
    [ "$(column NPIX_TOT rv.h5 | tr '\n' ' ')" = "595 605 615 625 655 " ]
    # each is what it is alone, but for the continuum, which spans the whole grid
    fits2h5 -q old.fit -o old.h5
    rvs-fit -q -t "$BATS_FILE_TMPDIR/any.h5" -o one.h5 old.h5
    [ "$(column VRAD,TEFF,CHISQ_TOT one.h5)" = "$(column VRAD,TEFF,CHISQ_TOT rv.h5 | tail -n 1)" ]
    # other instruments are other arms
    spec_make iraf-log other.fits
    spec_make lamost lamost.fits
    fits2h5 -q lamost.fits 0.fits other.fits -o mixed.h5
    [ "$(h5ls mixed.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "header lamost sdss spectrum " ]
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --format fits -o image.fits
    fails_with 2 '*both hold an image or spectra*' fits2h5 -o x.h5 0.fits image.fits
}

@test "rows of one file that nobody names are stars of their own" {
    layout rows spectrum 700 --vacuum
    [ "$(h5table --csv -t /fibermap -c FIBER rows.h5 | tail -n +2 | tr '\n' ' ')" = "0 1 2 " ]
    [ "$(h5table --csv -t /fibermap -c TARGETID rows.h5 | tail -n +2 | sort -u | wc -l)" -eq 3 ]
}

@test "what is no spectrum is kept, and why is said; choices need something to choose from" {
    spec_make muse star.fits
    LC_ALL=C sed 's/CRVAL1/CRVALX/' star.fits >dark.fits
    run --separate-stderr fits2h5 -o dark.h5 dark.fits
    [ "$status" -eq 0 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"dark.fits: HDU 1 (DATA) holds fluxes, but there are no wavelengths: kept as FITS HDUs only"* ]]
    fits2h5 --list dark.fits | grep 'dark.fits: generic; HDU 1'
    # neither is a list of lines
    spec_make lines lines.fits
    run --separate-stderr fits2h5 -o lines.h5 lines.fits
    [ "$status" -eq 0 ]
    [[ $stderr == *"HDU 1, but its wavelengths turn at pixel 6 "*"kept as FITS HDUs only"* ]]
    # a scale that counts pixels is none of wavelengths
    spec_make pixels pixels.fits
    fits2h5 --list pixels.fits | grep 'pixels.fits: generic'
    spec_make lamost-table table.fits
    LC_ALL=C sed "s/'WAVELENGTH'/'DISTANCE  '/" table.fits >nowave.fits
    fits2h5 --list nowave.fits | grep 'column of fluxes (FLUX), but none of wavelengths'
    fits2h5 --list table.fits | grep 'table.fits: spectrum; LAMOST$'
    fits2h5 --list table.fits | grep '/spectra/lamost$'
    fits2h5 --as spectra -o as.h5 table.fits
    fails_with 3 '*table.fits: has no single exposures*' fits2h5 --exposures -o x.h5 table.fits
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --format fits -o image.fits
    fails_with 2 '*--orders: *no spectrum*' fits2h5 --orders 1:2 -o x.h5 image.fits
    fails_with 2 '*--exposures: *no spectrum*' fits2h5 --exposures -o x.h5 image.fits
}
