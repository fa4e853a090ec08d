# h5merge --coadd: exposures of the same targets become one spectrum each (the arithmetic: tests/kernels/test_coadd.c).

load common

# Three exposures of 8 fibres in two cameras, 60 Angstrom each, on barycentric wavelengths: s... stars, noise differs.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    local arm e
    local -A range=([r]='6400,6460' [z]='8500,8560')
    for e in 1 2 3; do
        for arm in r z; do
            specx-sim -q -f --arm $arm --fibers 8 --sky-fibers 2 --no-sky --snr 20:40 --wavelength "${range[$arm]}" \
                --expid $e --noise-seed $e --format hdf5 -o image.h5
            specx-extract -q --reproducible image.h5 --wavelength "${range[$arm]},0.8" -o $arm$e.h5
        done
    done
    specx-extract -q image.h5 --wavelength 8500,8560,0.7 -o step.h5
}

from() {
    local f
    for f in "$@"; do cp "$BATS_FILE_TMPDIR/$f.h5" . || return; done
}

# values FILE DATASET [OPTION...]: the numbers alone.
values() {
    h5dump -A 0 -y -w 1 -d "$2" "${@:3}" "$1" | sed -n '/DATA {/,/}/p' | tr -d ' ,' | grep -v '[{}]' | grep .
}

coadd() {
    h5merge -q --allow-topocentric --coadd "$@"
}

@test "exposures of two cameras, by any method: schema, tables, one row a target" {
    from r1 r2 r3 z1 z2 z3
    local method n
    for method in simple optimal auto; do
        coadd $method r1.h5 z1.h5 r2.h5 z2.h5 r3.h5 z3.h5 -o $method.h5
        h5check $method.h5
        [ "$(h5table -t /fibermap $method.h5 | wc -l)" -eq 9 ]
        [ "$(h5table -t /exp_fibermap $method.h5 | wc -l)" -eq 25 ]
        [ "$(h5table -t /fibermap -c COADD_NUMEXP --csv $method.h5 | sort | uniq -c | xargs)" = '8 3 1 COADD_NUMEXP' ]
        n=$([ $method = simple ] && echo 11 || echo 15)
        h5ls $method.h5/spectra/r | grep -q "resolution *Dataset {8, $n, 76}"
    done
    [ "$(h5table -t /fibermap -c COADD_OPTIMAL_R --csv optimal.h5 | tail -n 8 | sort | uniq -c | xargs)" = '8 1' ]
    # Exposures of one camera have equal widths.
    [ "$(h5table -t /fibermap -c COADD_OPTIMAL_R --csv auto.h5 | tail -n 8 | sort | uniq -c | xargs)" = '8 0' ]
    h5diff auto.h5 simple.h5 /spectra/r/flux
    [ "$(h5table -t /exp_fibermap -c EXPID,COADD_INPUT --csv auto.h5 | head -n 4 | xargs)" = \
        'EXPID,COADD_INPUT 1,r1.h5 2,r2.h5 3,r3.h5' ]
    h5dump -y -d /spectra/header simple.h5 >header
    run ! grep -q EXPID header
    h5table --provenance simple.h5 | grep -q 'rejected_bins'
}

@test "diagonals of the resolution matrix" {
    from r1 r2
    coadd optimal r1.h5 r2.h5 -o few.h5
    coadd optimal --diagonals 41 r1.h5 r2.h5 -o many.h5
    h5check many.h5
    h5ls many.h5/spectra/r | grep -q 'resolution *Dataset {8, 41, 76}'
    h5diff few.h5 many.h5 /spectra/r/ivar
    # A row of fewer diagonals is divided by the sum that is left of it: row 38 of spectrum 3, diagonals 13 of 15, 26 of 41.
    local d row=()
    for d in few:15:13:36 many:41:26:36; do
        IFS=: read -r name n b j <<<"$d"
        row+=("$(values "$name.h5" /spectra/r/resolution -s "3,$b,$j" -c 1,1,1)")
    done
    awk -v a="${row[0]}" -v b="${row[1]}" 'BEGIN { exit !(b != 0 && (a / b - 1)^2 < 1e-6) }'
    coadd auto --diagonals 11 r1.h5 r2.h5 -o same.h5
    h5ls same.h5/spectra/r | grep -q 'resolution *Dataset {8, 11, 76}'
    fails_with 2 '*--diagonals 9: give an odd number of at least 11*' coadd optimal --diagonals 9 r1.h5 r2.h5 -o x.h5
    fails_with 2 '*--diagonals 20: give an odd number*' coadd optimal --diagonals 20 r1.h5 r2.h5 -o x.h5
    fails_with 2 '*--diagonals: goes with --coadd optimal or auto*' coadd simple --diagonals 41 r1.h5 r2.h5 -o x.h5
    fails_with 2 '*--diagonals: goes with --coadd optimal or auto*' h5merge --diagonals 41 r1.h5 -o x.h5
}

@test "one exposure stays as it is, to the byte" {
    from r1
    coadd simple r1.h5 -o one.h5
    local d
    for d in flux ivar mask resolution wavelength; do
        cmp <(values one.h5 /spectra/r/$d) <(values r1.h5 /frame/$d)
    done
}

@test "the same bits in any order of files, in small chunks, with any number of threads, through a pipe" {
    from r1 r2 r3 z1 z2 z3
    coadd optimal r1.h5 z1.h5 r2.h5 z2.h5 r3.h5 z3.h5 -o a.h5
    coadd optimal -j 3 r1.h5 r2.h5 r3.h5 z1.h5 z2.h5 z3.h5 -o b.h5
    h5diff a.h5 b.h5 /spectra
    coadd optimal --max-mem 40M r1.h5 z1.h5 r2.h5 z2.h5 r3.h5 z3.h5 -o c.h5
    h5diff a.h5 c.h5 /spectra
    # shellcheck disable=SC2002
    cat r2.h5 | coadd optimal r1.h5 z1.h5 - z2.h5 r3.h5 z3.h5 | cat >d.h5
    h5diff a.h5 d.h5 /spectra
    cmp <(coadd auto --reproducible r1.h5 r2.h5) <(coadd auto --reproducible r1.h5 r2.h5)
}

@test "spectra are coadded like the frames that they are of" {
    from r1 r2 z1 z2
    h5merge -q r1.h5 z1.h5 -o s1.h5
    h5merge -q r2.h5 z2.h5 -o s2.h5
    h5merge -q --by rows s1.h5 s2.h5 -o rows.h5
    coadd optimal r1.h5 z1.h5 r2.h5 z2.h5 -o frames.h5
    coadd optimal s1.h5 s2.h5 -o spectra.h5
    h5diff frames.h5 spectra.h5 /spectra/r
    coadd optimal rows.h5 -o row.h5
    h5diff frames.h5 row.h5 /spectra/z
    # Coadds of coadds count their exposures.
    coadd simple z1.h5 z2.h5 -o twice.h5
    from z3
    coadd simple z3.h5 -o third.h5
    coadd simple twice.h5 third.h5 -o again.h5
    h5check again.h5
    [ "$(h5table -t /fibermap -c COADD_NUMEXP --csv again.h5 | tail -n 1)" = 3 ]
}

@test "a hit in one exposure is left out, and counted" {
    from r1 r2 r3
    cp r2.h5 hit.h5
    h5edit hit.h5 set /frame/flux 100 1e5
    coadd simple r1.h5 r2.h5 r3.h5 -o clean.h5
    coadd simple r1.h5 hit.h5 r3.h5 -o rejected.h5
    coadd simple --reject 0 r1.h5 hit.h5 r3.h5 -o kept.h5
    # Bin 100 is bin 24 of fibre 1, the second exposure of the second target.
    [ "$(h5table -t /exp_fibermap -c COADD_REJECTED_R --csv rejected.h5 | tail -n +2 | xargs | cut -d ' ' -f 4-6)" = '0 1 0' ]
    [ "$(h5diff -d 100 rejected.h5 clean.h5 /spectra/r/flux | grep -c difference)" -eq 0 ]
    run -1 h5diff -d 100 kept.h5 clean.h5 /spectra/r/flux
}

@test "bins that all exposures lack: flux 0, ivar 0, the masks of all" {
    from r1 r2
    h5edit r1.h5 set /frame/mask 10 4
    h5edit r2.h5 set /frame/mask 10 8
    h5edit r1.h5 set /frame/mask 20 4
    h5edit r1.h5 set /frame/ivar 30 0
    h5edit r2.h5 set /frame/ivar 30 0
    coadd simple r1.h5 r2.h5 -o c.h5
    h5check c.h5
    [ "$(values c.h5 /spectra/r/mask -s 0,0 -c 1,40 | sort -n | uniq -c | xargs)" = '38 0 1 12 1 256' ]
    local d
    for d in flux ivar; do
        [ "$(values c.h5 /spectra/r/$d -s '0,10' -c 1,1)" = 0 ]
    done
}

@test "targets are told by TARGETID, else by tile and fibre" {
    local e
    for e in 1 2; do
        specx-sim -q -f --arm r --fibers 4 --no-sky --wavelength 6400,6420 --expid $e --noise-seed $e --format hdf5 -o i.h5
        specx-extract -q i.h5 --wavelength 6400,6420,0.8 -o n$e.h5
        cp n$e.h5 m$e.h5
        h5edit n$e.h5 delete /fibermap
    done
    fails_with 3 '*n1.h5:/fibermap: has neither TARGETID nor FIBER*' coadd simple n1.h5 n2.h5 -o x.h5
    coadd simple m1.h5 m2.h5 -o c.h5
    [ "$(h5table -t /fibermap -c TARGETID --csv c.h5 | wc -l)" -eq 5 ]
}

@test "targets whose exposures are of different places on the sky are named" {
    from r1 r2
    run --separate-stderr h5merge --allow-topocentric --coadd simple r1.h5 r2.h5 -o right.h5
    [ "$status" -eq 0 ]
    [[ $stderr != *warning* ]]
    local name
    for name in r1.h5 r2.h5; do # as where nobody has filled it in
        edit_h5 $name "t = f['fibermap'][...]; t['TARGETID'][:4] = 0; f['fibermap'][...] = t"
    done
    run --separate-stderr h5merge --allow-topocentric --coadd simple r1.h5 r2.h5 -o one.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'warning: 1 of 5 targets have exposures more than an arcminute apart on the sky, such as TARGETID 0:'* ]]
}

@test "exposures that are not of one spectrum are named: other units, another sign, stars mixed up" {
    local e change
    for e in 1 2; do
        specx-sim -q -f --arm r --fibers 8 --no-sky --wavelength 6400,6500 --snr 40:60 --expid $e --noise-seed $e --format hdf5 -o i.h5
        specx-extract -q i.h5 --wavelength 6405,6495,0.8 -o u$e.h5
    done
    # with its flux d and ivar v changed
    edit() {
        edit_h5 edited.h5 "g = f['frame']; d, v = g['flux'][...], g['ivar'][...]; $1
g['flux'][...], g['ivar'][...] = d, v" u2.h5
    }
    for change in '' 'd *= 1.5; v /= 2.25'; do
        edit "$change"
        run -0 --separate-stderr h5merge --allow-topocentric --coadd auto -f -o c.h5 u1.h5 edited.h5
        [[ $stderr != *warning:* ]] || { echo "$change: $stderr"; return 1; }
    done
    for change in 'd *= 1e-17' 'd *= -1' 'd[:] = d[::-1].copy()'; do
        edit "$change"
        run -0 --separate-stderr h5merge --allow-topocentric --coadd auto -f -o c.h5 u1.h5 edited.h5
        [[ $stderr == *"warning: "*" spectra of single exposures, such as of EXPID "*" in arm r, are not the target's that the others show"* ]] ||
            { echo "$change: $stderr"; return 1; }
    done
}

@test "exposures of a bad status are left out, unless a target has no others" {
    from r1 r2 r3
    # 4 (broken fibre) and 256 in one exposure of target 0 and 1, in all of target 2; 8 (restricted reach) is harmless
    h5edit r1.h5 column /fibermap FIBERSTATUS 0,256,4,8,0,0,0,0
    h5edit r2.h5 column /fibermap FIBERSTATUS 4,0,16,0,0,0,0,0
    h5edit r3.h5 column /fibermap FIBERSTATUS 0,0,4,0,0,0,0,0
    h5edit r2.h5 scale /frame/flux 3
    local method
    for method in simple optimal; do
        coadd $method r1.h5 r2.h5 r3.h5 -o c.h5 -f
        h5check c.h5
        [ "$(h5table -t /fibermap -c COADD_NUMEXP,COADD_FIBERSTATUS --csv c.h5 | xargs)" = \
            'COADD_NUMEXP,COADD_FIBERSTATUS 2,0 2,0 3,20 3,8 3,0 3,0 3,0 3,0' ]
        [ "$(h5table -t /exp_fibermap --csv c.h5 | wc -l)" -eq 23 ]
        coadd $method r1.h5 r3.h5 -o good.h5 -f
        cmp <(values c.h5 /spectra/r/flux -s 0,0 -c 1,76) <(values good.h5 /spectra/r/flux -s 0,0 -c 1,76)
        h5table --provenance c.h5 | grep -q exposures_of_bad_status=2
        # Coadds of coadds, and files of DESI, have the status, too.
        coadd $method c.h5 -o again.h5 -f
        [ "$(h5table -t /fibermap -c COADD_FIBERSTATUS --csv again.h5 | xargs)" = 'COADD_FIBERSTATUS 0 0 20 8 0 0 0 0' ]
        h52fits -q --as coadd -f c.h5 -o c.fits
        fits2h5 -q -f c.fits -o back.h5
        [ "$(h5table -t /fibermap -c COADD_FIBERSTATUS --csv back.h5 | xargs)" = 'COADD_FIBERSTATUS 0 0 20 8 0 0 0 0' ]
    done
}

@test "exposures in other units are refused" {
    from r1 r2
    h5edit r2.h5 attr /frame/flux units '10^-17 erg/(s cm^2 Angstrom)' attr /frame/ivar units '(10^-17 erg/(s cm^2 Angstrom))^-2'
    fails_with 3 "*r2.h5:/frame: has flux in '10^-17 erg/(s cm^2 Angstrom)', but 'electron/Angstrom' in the inputs before*" \
        coadd simple r1.h5 r2.h5 -o x.h5
}

@test "what cannot be coadded is refused, with file and remedy" {
    from r1 r2 step z3
    cp r1.h5 again.h5
    fails_with 3 '*r1.h5:/frame: has topocentric wavelengths*specx-extract --barycentric*' \
        h5merge --coadd simple r1.h5 r2.h5 -o x.h5
    # Nothing moves in one exposure.
    h5merge -q --coadd simple r1.h5 -o alone.h5
    fails_with 3 '*r1.h5: is an input twice*' coadd simple r1.h5 r1.h5 -o x.h5
    fails_with 3 '*again.h5: exposure 1 of fibre 0 is in r1.h5 already*' coadd simple r1.h5 again.h5 -o x.h5
    fails_with 3 '*step.h5:/frame: has another number of bins*--wavelength*' coadd simple z3.h5 step.h5 -o x.h5
    h5edit r2.h5 set /frame/wavelength 0 6400.1
    fails_with 3 '*r2.h5:/frame: has other wavelengths*' coadd simple r1.h5 r2.h5 -o x.h5
    cp r1.h5 none.h5
    h5edit none.h5 delete /frame
    fails_with 3 '*none.h5: holds nothing that can be coadded*' coadd simple r1.h5 none.h5 -o x.h5
    cp r1.h5 wide.h5
    h5edit wide.h5 delete /frame/resolution
    fails_with 3 '*wide.h5:/frame: has another number of diagonals*' coadd simple r1.h5 wide.h5 -o x.h5
    fails_with 2 '*--coadd optimal: the spectra have no resolution matrix*--coadd simple*' coadd optimal wide.h5 -o x.h5
    coadd auto wide.h5 -o c.h5
    h5check c.h5
    fails_with 2 '*--reject: goes with --coadd only*' h5merge --reject 3 r1.h5 z3.h5 -o x.h5
    fails_with 2 '*--scale: goes with --coadd only*' h5merge --scale grey r1.h5 z3.h5 -o x.h5
    fails_with 2 '*--by: does not go with --coadd*' h5merge --coadd simple --by rows r1.h5 z3.h5 -o x.h5
}

@test "an exposure that is not there: an error, or a note in the product" {
    from r1 r3
    fails_with 3 '*gone.h5: cannot open*' coadd simple r1.h5 gone.h5 -o x.h5
    fails_with 3 '*none of the inputs is there: gone.h5 lost.h5' h5merge -q --coadd simple --allow-missing gone.h5 lost.h5 -o x.h5
    run --separate-stderr coadd simple --allow-missing gone.h5 r1.h5 r3.h5 lost.h5 -o some.h5
    [ "$status" -eq 0 ]
    h5dump -a /spectra/missing_inputs some.h5 | grep -qF '"gone.h5 lost.h5"'
    coadd simple r1.h5 r3.h5 -o all.h5
    h5diff some.h5 all.h5 /spectra/r
    h5check some.h5
}

@test "targets of a text alone: the rows of the coadd of all" {
    from r1 r2
    coadd simple r1.h5 r2.h5 -o all.h5
    h5table --csv -t /fibermap -c TARGETID all.h5 | sed -n '4p;6p' >targets
    coadd simple --targetid-file targets r1.h5 r2.h5 -o two.h5
    h5check two.h5
    diff targets <(h5table --csv -t /fibermap -c TARGETID two.h5 | tail -n +2)
    local n k=0 d
    for n in 2 4; do
        for d in flux ivar resolution; do
            cmp <(values all.h5 /spectra/r/$d -s "$n$([ $d = resolution ] && echo ,0),0" -c "1$([ $d = resolution ] && echo ,11),75") \
                <(values two.h5 /spectra/r/$d -s "$k$([ $d = resolution ] && echo ,0),0" -c "1$([ $d = resolution ] && echo ,11),75")
        done
        k=$((k + 1))
    done
    echo 123 >none
    fails_with 3 '*r1.h5:/fibermap: has no target of none*' coadd simple --targetid-file none r1.h5 r2.h5 -o x.h5
    fails_with 2 '*--targetid-file: goes with --coadd only*' h5merge -q --targetid-file targets r1.h5 r2.h5 -o x.h5
}

@test "an ivar out of all proportion is left out, and named" {
    from r1 r2 r3
    coadd optimal r1.h5 r2.h5 r3.h5 -o good.h5
    h5edit r1.h5 set /frame/ivar 38 1e13
    run -0 h5merge --allow-topocentric --coadd optimal r1.h5 r2.h5 r3.h5 -o bad.h5
    [[ $output == *'1 bins of exposures have an ivar beyond 1e8 times that of others of their target'* ]]
    h5table --provenance bad.h5 | grep -q 'bins_of_wrong_ivar=1'
    # without the bin fluxes move by what it weighed, some errors at most, and not at all far from it
    paste -d, <(h5table --csv --spectrum 0 good.h5) <(h5table --csv --spectrum 0 bad.h5) |
        awk -F, 'NR > 1 { d = ($6 - $2) * sqrt($3); if (d * d > 9 || ((NR < 28 || NR > 52) && d * d > 1e-8)) { print; bad = 1 } }
                 END { exit bad || NR != 77 }'
}

@test "exposures whose resolution matrix is none are left out, and named" {
    from r1 r2 r3
    coadd optimal r2.h5 r3.h5 -o good.h5
    h5edit r1.h5 scale /frame/resolution -1
    run -0 h5merge --allow-topocentric --coadd optimal r1.h5 r2.h5 r3.h5 -o bad.h5
    [[ $output == *'arms of exposures have a resolution matrix whose rows do not sum to 1: left out'* ]]
    h5table --provenance bad.h5 | grep -q 'exposures_of_wrong_resolution=[1-9]'
    paste -d, <(h5table --csv --spectrum 0 good.h5) <(h5table --csv --spectrum 0 bad.h5) |
        awk -F, 'NR > 1 { d = ($6 - $2) * sqrt($3); if (d * d > 1e-8) { print; bad = 1 } } END { exit bad || NR != 77 }'
}

@test "frames in nm are coadded with frames in Angstrom" {
    from r1 r2
    coadd optimal r1.h5 r2.h5 -o good.h5
    h5edit r2.h5 scale /frame/wavelength 0.1 attr /frame/wavelength units nm
    coadd optimal r1.h5 r2.h5 -o nm.h5
    h5diff good.h5 nm.h5 /spectra /spectra
    h5edit r2.h5 move /frame/wavelength 1e-4
    fails_with 3 '*r2.h5:/frame: has other wavelengths than the inputs before it*' coadd optimal r1.h5 r2.h5 -f -o nm.h5
}
