# h5merge: joins by fibres, cameras and rows of products of the other programs; refusals; missing parts.

load common

# One exposure of 8 fibres in three cameras, 60 Angstrom each; camera r in two subsets too.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    local arm
    local -A range=([b]='5000,5060' [r]='6400,6460' [z]='8500,8560')
    for arm in b r z; do
        specx-sim -q --arm $arm --fibers 8 --sky-fibers 2 --wavelength "${range[$arm]}" --format hdf5 -o image-$arm.h5
        specx-extract -q --reproducible --model image-$arm.h5 --wavelength "${range[$arm]},0.8" -o $arm.h5
    done
    # groups of five fibres, so that the subsets have the numbers of the whole
    specx-extract -q --model image-r.h5 --wavelength 6400,6460,0.8 --spectra 0:5 -o r-low.h5
    specx-extract -q --model image-r.h5 --wavelength 6400,6460,0.8 --spectra 5:8 -o r-high.h5
}

# from FILE...: copies of the prepared products.
from() {
    local f
    for f in "$@"; do cp "$BATS_FILE_TMPDIR/$f.h5" . || return; done
}

# flags FILE: FIBER and MISSING_ARMS of all rows, `-` where nothing is missing.
flags() {
    h5table -t /fibermap -c FIBER,MISSING_ARMS --csv "$1" | tail -n +2 | sed 's/,$/,-/' | tr '\n' ' '
}

# values FILE DATASET [OPTION...]: the numbers or texts alone.
values() {
    h5dump -A 0 -y -w 1 -d "$2" "${@:3}" "$1" | sed -n '/DATA {/,/}/p' | tr -d ' ,' | grep -v '[{}]' | grep .
}

@test "wrong shapes are refused, not joined" {
    local set
    from b r
    for set in flux ivar resolution chi2pix; do
        cp r.h5 wrong.h5
        h5edit wrong.h5 shape /frame/$set 8,251,3,2
        fails_with 3 "*wrong.h5:/frame/$set: has 4 dimensions, should have *" h5merge b.h5 wrong.h5 -o x.h5
    done
    cp r.h5 wrong.h5
    h5edit wrong.h5 shape /frame/wavelength 0
    fails_with 3 '*wrong.h5:/frame/wavelength: is empty: there are no bins*' h5merge b.h5 wrong.h5 -o x.h5
    fails_with 3 '*wrong.h5:/frame/wavelength: is empty*' h5merge --coadd simple --allow-topocentric wrong.h5 -o x.h5
}

@test "cameras of other instruments: each name has its arm, and names that begin alike are not mixed" {
    local a names="blue1 red1 rnir1"
    for a in b r z; do
        from image-$a
        h5edit image-$a.h5 attr /image camera "${names%% *}"
        h5edit image-$a.h5 attr /psf camera "${names%% *}"
        names=${names#* }
        specx-extract -q image-$a.h5 -o $a.h5
    done
    h5merge b.h5 r.h5 z.h5 -o x.h5
    h5check x.h5
    [ "$(h5ls x.h5/spectra | awk '$1 != "header" { printf "%s ", $1 }')" = 'blue red rnir ' ]
    h5diff x.h5 r.h5 /spectra/red/flux /frame/flux
    h5diff x.h5 z.h5 /spectra/rnir/flux /frame/flux
    [ "$(h5table -c MEDIAN_RAW_SNR_RED,MEDIAN_RAW_SNR_RNIR -t /scores --csv x.h5 | wc -l)" -eq 9 ]
    # the simulator takes that of its camera
    h5edit image-r.h5 attr /psf camera r1
    fails_with 3 '*has no arm r' specx-sim --psf image-r.h5 x.h5 -o y.h5
    # of an arm with a number, too
    cp x.h5 numbered.h5
    h5copy -i x.h5 -o numbered.h5 -s /spectra/red -d /spectra/red2
    h5edit numbered.h5 delete /spectra/red
    h5edit image-r.h5 attr /psf camera red1
    specx-sim -q --psf image-r.h5 --format hdf5 numbered.h5 -o y.h5
    # spectrographs before the arm
    h5edit b.h5 attr /frame camera sp1-b
    h5edit r.h5 attr /frame camera sp1-r
    h5merge b.h5 r.h5 -f -o x.h5
    h5diff x.h5 r.h5 /spectra/r/flux /frame/flux
    h5diff x.h5 b.h5 /spectra/b/flux /frame/flux
}

@test "subsets of fibres give the frame of the whole camera" {
    from r r-low r-high
    h5merge r-high.h5 r-low.h5 -o joined.h5
    h5check joined.h5
    local d
    for d in wavelength flux ivar mask resolution chi2pix pixmask_fraction fiber; do
        h5diff joined.h5 r.h5 /frame/$d
    done
    # Sums of single precision in another order.
    h5diff -p 1e-5 joined.h5 r.h5 /frame/model
    h5diff joined.h5 r.h5 /fibermap
    h5diff joined.h5 r.h5 /scores
    h5dump -a /frame/camera joined.h5 | grep -q '"r0"'
    # Both extractions, the simulation once, and the merge.
    [ "$(h5dump -n joined.h5 | grep -c '/provenance/...$')" -eq 4 ]
}

@test "cameras of one exposure become spectra with three arms" {
    from b r z
    h5merge z.h5 b.h5 r.h5 -o spectra.h5
    h5check spectra.h5
    local arm d
    for arm in b r z; do
        for d in wavelength flux ivar mask resolution chi2pix pixmask_fraction; do
            h5diff spectra.h5 $arm.h5 /spectra/$arm/$d /frame/$d
        done
        diff <(values spectra.h5 /spectra/$arm/header) <(values $arm.h5 /frame/header)
    done
    h5table -t /scores spectra.h5 | head -n 1 >columns
    for arm in B R Z; do grep -qw "SUM_RAW_COUNT_$arm" columns; done
    # One fibermap, without copies of columns that are the same in all cameras.
    diff <(h5table -t /fibermap spectra.h5) <(h5table -t /fibermap b.h5)
    # What the cameras share is in the common header, what they do not is not.
    h5dump -y -d /spectra/header spectra.h5 | grep -q EXPID
    run ! grep -q CAMERA <(h5dump -y -d /spectra/header spectra.h5)
}

@test "through pipes, one input may be standard input" {
    from b r z
    h5merge b.h5 r.h5 z.h5 -o file.h5 --reproducible
    # cat: a pipe, not a file.
    # shellcheck disable=SC2002
    cat r.h5 | h5merge b.h5 - z.h5 --reproducible | cat >piped.h5
    h5diff file.h5 piped.h5 /spectra
    cmp <(h5merge b.h5 r.h5 z.h5 --reproducible) <(h5merge b.h5 r.h5 z.h5 --reproducible)
    fails_with 2 '*once only*' h5merge - - -o x.h5
}

@test "rows of several files" {
    from b r z
    h5merge b.h5 r.h5 z.h5 -o one.h5
    h5merge --by rows --allow repeated one.h5 one.h5 one.h5 -o rows.h5
    cp one.h5 two.h5
    h5merge --allow repeated one.h5 two.h5 -o two-rows.h5
    [ "$(h5table -t /fibermap two-rows.h5 | wc -l)" -eq 17 ]
    h5check rows.h5
    [ "$(h5table -t /fibermap rows.h5 | wc -l)" -eq 25 ]
    [ "$(h5table -t /scores rows.h5 | wc -l)" -eq 25 ]
    cmp <(values rows.h5 /spectra/b/flux -s 8,0 -c 8,76) <(values one.h5 /spectra/b/flux)
    # Frames of one camera are stacked on request only.
    cp r.h5 r-again.h5
    fails_with 3 '*fibre 0 is in r.h5 already*' h5merge r.h5 r-again.h5 -o x.h5
    # The same file again, also by another name, is a slip.
    ln -s one.h5 link.h5
    fails_with 3 'h5merge: one.h5: is there twice: give each file once; --allow repeated*' h5merge one.h5 one.h5 -o x.h5
    fails_with 3 'h5merge: one.h5: is there twice*' h5merge --by rows one.h5 one.h5 -o x.h5
    # so are the same rows in another file; without targets, the light alone tells
    fails_with 3 'h5merge: two.h5:/spectra/b/flux: row 0 is row 0 of one.h5 once more*' h5merge one.h5 two.h5 -o x.h5
    h5edit one.h5 delete /fibermap
    h5edit two.h5 delete /fibermap
    fails_with 3 'h5merge: two.h5:/spectra/b/flux: row 0 is row 0 of one.h5 once more*' h5merge one.h5 two.h5 -o x.h5
    fails_with 3 'h5merge: link.h5: is there twice*' h5merge one.h5 link.h5 -o x.h5
    fails_with 3 'h5merge: r.h5: is there twice*' h5merge r.h5 r.h5 -o x.h5
    h5merge --by rows --allow repeated r.h5 r.h5 -o frames.h5
    h5check frames.h5
    [ "$(h5table -t /fibermap frames.h5 | wc -l)" -eq 17 ]
}

@test "values that cannot be become 0, and their bins are masked" {
    from b r
    h5merge -q b.h5 r.h5 -o right.h5
    cp r.h5 bad.h5
    # fibre 0: flux of bin 5 and ivar of bin 6; fibre 1: a negative ivar of bin 7, an infinite element of R
    h5edit bad.h5 set /frame/flux 5 nan
    h5edit bad.h5 set /frame/ivar 6 inf
    h5edit bad.h5 set /frame/ivar 83 -1
    h5edit bad.h5 set /frame/resolution 900 -inf
    run --separate-stderr h5merge b.h5 bad.h5 -o spectra.h5
    [ "$status" -eq 0 ]
    # shellcheck disable=SC2154
    [[ $stderr == *'4 values are not finite, or an ivar below 0, the first in bad.h5:/spectra/r/flux'* ]]
    h5check spectra.h5
    h5table --provenance spectra.h5 | grep -q 'values_not_finite=4'
    local name
    for name in flux ivar; do
        [ "$(values spectra.h5 /spectra/r/$name -s 0,5 -c 1,2 | grep -cx 0)" -eq 2 ]
        [ "$(values spectra.h5 /spectra/r/$name -s 1,7 -c 1,1)" = 0 ]
        # nothing else has changed
        cmp <(values spectra.h5 /spectra/r/$name -s 2,0 -c 6,76) <(values right.h5 /spectra/r/$name -s 2,0 -c 6,76)
        cmp <(values spectra.h5 /spectra/r/$name -s 1,8 -c 1,68) <(values right.h5 /spectra/r/$name -s 1,8 -c 1,68)
    done
    [ "$(values spectra.h5 /spectra/r/mask -s 0,5 -c 1,2 | grep -cx 256)" -eq 2 ]
    # frames, too
    h5merge -q bad.h5 -o frame.h5
    h5check frame.h5
}

@test "a damaged record of the provenance is not carried on" {
    cp "$BATS_FILE_TMPDIR/r.h5" damaged.h5
    h5edit damaged.h5 attr / note text # which takes the inventory
    sed -i 's/version: /versiom: /' damaged.h5
    fails_with 3 '*damaged.h5:/provenance/000: has no line '\''version: ...'\''*' h5merge -q damaged.h5 -o x.h5
}

@test "a frame without its mask is refused, also where it becomes an arm or rows of spectra" {
    from b r r-low r-high
    h5edit r.h5 delete /frame/mask
    h5edit r-high.h5 delete /frame/mask
    fails_with 3 '*r.h5:/frame/mask: is missing*' h5merge b.h5 r.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/mask: is missing*' h5merge r.h5 b.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/mask: *is missing*' h5merge --coadd=auto b.h5 r.h5 -o x.h5
    fails_with 3 '*r-high.h5:/frame/mask: is missing*' h5merge r-low.h5 r-high.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/mask: is missing*' h5merge --by rows r.h5 -o x.h5
}

@test "units that the definition fixes are checked, and written where they are missing" {
    from b r
    h5edit r.h5 attr /frame/fiber units 9
    fails_with 3 '*r.h5:/frame/fiber: has units '\''9'\'': should be 1*' h5merge r.h5 -o x.h5
    cp "$BATS_FILE_TMPDIR/r.h5" .
    h5edit r.h5 attr /frame/pixmask_fraction units percent
    fails_with 3 '*r.h5:/frame/pixmask_fraction: has units '\''percent'\'': should be 1*' h5merge r.h5 -o x.h5
    # as other programs leave them
    cp "$BATS_FILE_TMPDIR/r.h5" .
    h5edit r.h5 delete-attr /frame/pixmask_fraction units attr /frame/fiber units ''
    h5merge -q r.h5 -o one.h5
    h5merge -q r.h5 b.h5 -o two.h5
    h5check one.h5 two.h5
}

@test "wavelengths that do not increase, and masks whose bits have too few names, are refused" {
    from b r
    h5edit r.h5 attr /frame/mask flag_meanings 'SOMEBADPIX ALLBADPIX COSMIC'
    fails_with 3 '*r.h5:/frame/mask: has 10 bits in flag_masks, but 3 names in flag_meanings*' h5merge r.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/mask: has 10 bits in flag_masks, but 3 names*' h5merge b.h5 r.h5 -o x.h5
    cp "$BATS_FILE_TMPDIR/r.h5" .
    # one of both is not enough, and the definition's are taken
    h5edit r.h5 delete-attr /frame/mask flag_masks attr /frame/mask flag_meanings 'A B'
    h5merge -q r.h5 -o whole.h5
    h5check whole.h5
    h5dump -a /frame/mask/flag_meanings whole.h5 | grep -q NODATA
    cp "$BATS_FILE_TMPDIR/r.h5" .
    h5edit r.h5 set /frame/wavelength 7 6000
    fails_with 3 '*r.h5:/frame/wavelength: wavelengths do not increase at element*' h5merge r.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/wavelength: wavelengths do not increase at element*' h5merge b.h5 r.h5 -o x.h5
    fails_with 3 '*r.h5:/frame/wavelength: wavelengths do not increase at element*' h5merge --by rows r.h5 -o x.h5
}

@test "words and units of wavelengths are obeyed, or refused" {
    local edit
    from b
    for edit in 'medium nonsense' 'frame nonsense' 'units banana'; do
        cp "$BATS_FILE_TMPDIR/r.h5" .
        # shellcheck disable=SC2086
        h5edit r.h5 attr /frame/wavelength $edit
        fails_with 3 "*r.h5:/frame/wavelength: *'${edit#* }'*should be*" h5merge r.h5 b.h5 -o x.h5
        fails_with 3 "*r.h5:/frame/wavelength: *'${edit#* }'*should be*" h5merge b.h5 r.h5 -o x.h5
        fails_with 3 "*r.h5:/frame/wavelength: *'${edit#* }'*should be*" h5merge r.h5 -o x.h5
    done
    cp "$BATS_FILE_TMPDIR/r.h5" .
    h5edit r.h5 attr-number /frame/wavelength medium 5
    fails_with 3 '*r.h5:/frame/wavelength*medium*' h5merge r.h5 b.h5 -o x.h5
    # nm, words in capitals, one that is absent
    from r r-low r-high
    h5edit r.h5 scale /frame/wavelength 0.1 attr /frame/wavelength units nm attr /frame/wavelength medium VACUUM \
        delete-attr /frame/wavelength frame
    h5merge -q r.h5 b.h5 -o nm.h5
    h5check nm.h5
    h5merge -q "$BATS_FILE_TMPDIR/r.h5" b.h5 -o right.h5
    cmp <(values nm.h5 /spectra/r/wavelength) <(values right.h5 /spectra/r/wavelength)
    h5edit r-high.h5 attr /frame/wavelength medium Vacuum
    h5merge -q r-high.h5 r-low.h5 -o whole.h5
    h5check whole.h5
}

@test "what does not fit together is refused, with file and dataset" {
    from b r r-low r-high z
    specx-extract -q "$BATS_FILE_TMPDIR/image-r.h5" --wavelength 6400,6460,0.7 --spectra 5:8 -o step.h5
    fails_with 3 '*step.h5:/frame/wavelength: has 87 bins, but r-low.h5 has 76*' h5merge r-low.h5 step.h5 -o x.h5
    h5edit step.h5 delete /frame/wavelength
    fails_with 3 '*step.h5:/frame/wavelength*missing*' h5merge r-low.h5 step.h5 -o x.h5
    cp r-high.h5 shifted.h5
    h5edit shifted.h5 set /frame/wavelength 0 6400.1
    fails_with 3 '*shifted.h5:/frame/wavelength: differs from r-low.h5 in bin 0*' h5merge r-low.h5 shifted.h5 -o x.h5
    fails_with 3 '*r.h5:/frame: fibre 0 is in r-low.h5 already*' h5merge r-low.h5 r.h5 -o x.h5
    cp r-high.h5 version.h5
    h5edit version.h5 attr /frame version 1.9
    fails_with 3 '*version.h5:/frame: has schema version 1.9, but r-low.h5 has 1.*' h5merge r-low.h5 version.h5 -o x.h5
    h5edit version.h5 attr /frame version 2.0
    fails_with 3 '*version.h5:/frame: *newer*' h5merge r-low.h5 version.h5 -o x.h5
    cp r-high.h5 medium.h5
    h5edit medium.h5 attr /frame/wavelength medium air
    fails_with 3 '*medium.h5:/frame/wavelength: attribute medium is*air*' h5merge r-low.h5 medium.h5 -o x.h5
    cp r-high.h5 camera.h5
    h5edit camera.h5 attr /frame camera r1
    fails_with 2 '*camera.h5*' h5merge r-low.h5 camera.h5 -o x.h5
    fails_with 3 '*camera.h5:/frame: is of camera r1*' h5merge --by fibers r-low.h5 camera.h5 -o x.h5
    fails_with 3 '*camera.h5:/frame: camera r1 belongs to another spectrograph*' h5merge b.h5 camera.h5 -o x.h5
    cp r.h5 unit.h5
    h5edit unit.h5 attr /frame/flux units photon
    fails_with 3 '*unit.h5:/frame/flux: attribute units*' h5merge --by rows r.h5 unit.h5 -o x.h5
    cp r-high.h5 shape.h5
    h5edit shape.h5 shape /frame/ivar 3,5
    fails_with 3 '*shape.h5:/frame/ivar*' h5merge r-low.h5 shape.h5 -o x.h5
    cp z.h5 none.h5
    h5edit none.h5 delete /frame
    fails_with 3 '*none.h5: holds nothing that can be joined*' h5merge b.h5 none.h5 -o x.h5
    specx-sim -q --arm z --fibers 8 --sky-fibers 2 --expid 99 --wavelength 8500,8560 --format hdf5 -o other.h5
    specx-extract -q other.h5 --wavelength 8500,8560,0.8 -o other-z.h5
    fails_with 3 '*other-z.h5*another exposure (EXPID 99)*' h5merge b.h5 other-z.h5 -o x.h5
}

@test "a camera that lacks fibres: refused, or flagged with --allow-missing" {
    from b r-high z
    fails_with 3 '*r-high.h5: has no row of fibre 0, which b.h5 has: --allow-missing*' h5merge b.h5 r-high.h5 z.h5 -o x.h5
    run -0 --separate-stderr h5merge --allow-missing b.h5 r-high.h5 z.h5 -o spectra.h5
    # shellcheck disable=SC2154
    [[ $stderr == *'5 of 8 rows lack an arm'* ]]
    h5check spectra.h5
    [ "$(flags spectra.h5)" = '0,r 1,r 2,r 3,r 4,r 5,- 6,- 7,- ' ]
    # 5 fibres of 76 bins: no information, and mask bit NODATA.
    [ "$(values spectra.h5 /spectra/r/ivar -s 0,0 -c 5,76 | sort | uniq -c | xargs)" = '380 0' ]
    [ "$(values spectra.h5 /spectra/r/mask -s 0,0 -c 5,76 | sort | uniq -c | xargs)" = '380 256' ]
    h5dump -a /spectra/r/mask/flag_meanings spectra.h5 | grep -q NODATA
}

@test "a file that is not there: refused, or gone on without" {
    from b r-low r-high
    fails_with 3 '*nothing.h5: cannot open*' h5merge b.h5 nothing.h5 -o x.h5
    run -0 --separate-stderr h5merge --allow-missing b.h5 nothing.h5 -o b-only.h5
    [[ $stderr == *'nothing.h5: is not there: going on without'* ]]
    h5check b-only.h5
    h5dump -a /frame/missing_inputs b-only.h5 | grep -q nothing.h5
    # Fibres that the missing file should have held.
    h5merge -q --allow-missing --fibers 0:8 r-low.h5 nothing.h5 -o frame.h5
    h5check frame.h5
    [ "$(flags frame.h5)" = '0,- 1,- 2,- 3,- 4,- 5,r 6,r 7,r ' ]
    fails_with 3 '*fibre 5 is in none of the inputs*' h5merge --fibers 0:8 r-low.h5 -o x.h5
    fails_with 3 '*fibre 5 is outside --fibers 0:5*' h5merge --fibers 0:5 r-low.h5 r-high.h5 -o x.h5
    fails_with 3 '*none of the inputs is there*' h5merge --allow-missing nothing.h5 -o x.h5
    # What is there but broken is never passed over.
    head -c 3000 r-high.h5 >cut.h5
    fails_with 3 '*cut.h5*truncated*' h5merge --allow-missing r-low.h5 cut.h5 -o x.h5
}

@test "options that make no sense" {
    from b
    fails_with 2 '*--fibers*' h5merge --fibers 5:5 b.h5 -o x.h5
    fails_with 2 '*--fibers*' h5merge --fibers 0:8 --by rows b.h5 -o x.h5
    fails_with 2 '*--by*' h5merge --by colour b.h5 -o x.h5
    h5merge --by cameras b.h5 -o one-arm.h5
    h5check one-arm.h5
}
