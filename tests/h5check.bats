# h5check: every product follows the schema; each violation is found and named.

load common

# The data set of the manual's examples: a product of every kind.
setup_file() {
    example_data
    # An input as users make it by hand: no product.
    rm -f "$BATS_FILE_TMPDIR/data/array.h5"
}

# broken PRODUCT TEXT COMMAND...: h5check says TEXT (a pattern), and nothing else, of a product damaged by h5edit.
broken() {
    local product=$1 text=$2
    cp "$BATS_FILE_TMPDIR/data/$product.h5" broken.h5
    h5edit broken.h5 "${@:3}"
    run h5check broken.h5
    # shellcheck disable=SC2053
    if [ "$status" -ne 1 ] || [[ $output != $text ]]; then
        printf 'h5check should say: %s\nbut status is %s:\n%s\n' "$text" "$status" "$output"
        return 1
    fi
}

@test "all products of the programs are valid, and say nothing" {
    run -0 h5check "$BATS_FILE_TMPDIR"/data/*.h5
    [ -z "$output" ]
    run -0 h5check -v "$BATS_FILE_TMPDIR/data/rv.h5"
    [[ $output == *'rv.h5: is valid'* ]]
}

# flip FILE BYTE: flips a bit.
flip() {
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $(($(od -An -tu1 -j"$2" -N1 "$1") ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "a damaged byte is found, and the dataset named" {
    local d=$BATS_FILE_TMPDIR/data at
    cp "$d/frame-r0.h5" x.h5
    at=$(h5dump -p -H -d /frame/flux x.h5 | sed -n 's/^ *OFFSET \([0-9]*\)$/\1/p')
    [ "$at" -gt 0 ]
    flip x.h5 $((at + 2))
    run -3 --separate-stderr h5check x.h5
    [ "$output" = "x.h5:/frame/flux: is damaged: values differ from the file's inventory" ]
    # shellcheck disable=SC2154
    [[ $stderr == 'h5check: x.h5: is damaged in 1 dataset: make it again, or copy it again' ]]
    fails_with 3 '*specx-sky: x.h5:/frame/flux: is damaged: *--no-verify' specx-sky -q x.h5 -o y.h5
    h5table -q -t /fibermap x.h5 >table # reads nothing of it
    h5check --no-verify x.h5
    # in the structure: no program opens it
    cp "$d/frame-r0.h5" x.h5
    flip x.h5 900
    fails_with 3 '*h5table: x.h5:/*: the file is damaged in its structure, *' h5table x.h5
    # damage of the inventory itself
    cp "$d/frame-r0.h5" x.h5
    flip x.h5 $(($(stat -c %s x.h5) - 30))
    fails_with 3 '*h5table: x.h5: its inventory is damaged*' h5table x.h5
    # a change on purpose is no damage
    cp "$d/frame-r0.h5" x.h5
    h5edit x.h5 set /frame/flux 3 7
    run -0 --separate-stderr h5check -v x.h5
    [[ $stderr == *'x.h5: is valid; it has no inventory'* ]]
}

@test "products of real FITS files are valid" {
    need_shared data/extract data/rv data/formats
    local d=$SPX_SHARED/data
    fits2h5 -q "$d"/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits} -o image.h5
    fits2h5 -q "$d/formats/coadd-special-dark-27247.fits" -o coadd.h5
    fits2h5 -q "$d/rv/spec-3128-54776-0008.fits" -o sdss.h5
    fits2h5 -q "$d/rv/mock-coadd.fits.gz" -o mock.h5
    h5check image.h5 coadd.h5 sdss.h5 mock.h5
}

@test "standard input, and several files" {
    local d=$BATS_FILE_TMPDIR/data
    # A pipe on purpose.
    # shellcheck disable=SC2002
    cat "$d/spectra.h5" | h5check
    h5check - "$d/rv.h5" <"$d/frame-b0.h5"
    cp "$d/frame-b0.h5" bad.h5
    h5edit bad.h5 delete /frame/ivar
    run -1 h5check "$d/rv.h5" bad.h5 "$d/frame-r0.h5"
    [ "$output" = 'bad.h5:/frame/ivar: is missing' ]
}

@test "no HDF5, truncated, empty, absent: exit status 3" {
    local d=$BATS_FILE_TMPDIR/data
    fails_with 3 '*not an HDF5 file*' h5check "$d/preproc-b0.fits"
    fails_with 3 '*empty*' h5check - </dev/null
    head -c 5000 "$d/rv.h5" >cut.h5
    fails_with 3 '*cut.h5: is truncated (5000 of *' h5check cut.h5
    fails_with 3 '*nothing.h5: cannot open*' h5check nothing.h5
    # The other files are checked nevertheless, and the most serious status wins.
    cp "$d/frame-b0.h5" bad.h5
    h5edit bad.h5 delete /frame/ivar
    run -3 --separate-stderr h5check cut.h5 bad.h5
    # shellcheck disable=SC2154
    [[ $output == 'bad.h5:/frame/ivar: is missing' && $stderr == *'cut.h5: is truncated'* ]]
}

@test "a damaged heap of texts is found before HDF5 reads it, and the next file is checked" {
    local heap k at address='' damaged=0
    cp "$BATS_FILE_TMPDIR/data/rv.h5" heap.h5
    h5edit heap.h5 attr / note text # which takes the inventory
    cp heap.h5 right.h5
    heap=$(grep -abo GCOL heap.h5 | head -n 1 | cut -d : -f 1)
    printf '\377' | dd of=heap.h5 bs=1 seek=$((heap + 31)) conv=notrunc status=none # the size of the first text
    run --separate-stderr h5check -v heap.h5 right.h5
    if specpipe-info | grep -q '^hdf5: 1\.10\.'; then
        [ "$status" -eq 3 ]
        [[ $stderr == *'heap.h5: is damaged'* || $stderr == *'heap.h5'*'cannot be read'* ]]
    else # later releases give an error instead, or other texts
        [ "$status" -eq 3 ] || [[ $status -eq 1 && $output == *"heap.h5:/rvfit: attribute 'type' is not text"* ]]
    fi
    [[ $stderr == *'right.h5: is valid'* ]]
    # an attribute refers to an object that its heap has not (where the address is one; elsewhere other bytes change)
    for ((k = 0; k < 64; k += 8)); do address+=$(printf '\\x%02x' $((heap >> k & 255))); done
    for at in $(LC_ALL=C grep -abo -P "$address" right.h5 | head -n 20 | cut -d : -f 1); do
        cp right.h5 heap.h5
        printf '\377' | dd of=heap.h5 bs=1 seek=$((at + 11)) conv=notrunc status=none
        run --separate-stderr h5check -v heap.h5 right.h5
        [[ $status == [013] && $stderr == *'right.h5: is valid'* && $stderr != *crashed* ]]
        [ "$status" -ne 3 ] || damaged=$((damaged + 1))
    done
    [ $damaged -gt 0 ]
}

@test "a file for which HDF5 crashes is damaged, and the next one is checked" {
    local reader child=''
    mkfifo waits.h5
    h5check -v waits.h5 "$BATS_FILE_TMPDIR/data/rv.h5" >out 2>err &
    reader=$!
    exec 9>waits.h5 # what reads is in the child now
    until [ -n "$child" ]; do child=$(pgrep -P $reader | head -n 1); done
    kill -SEGV "$child"
    status=0
    wait $reader || status=$?
    exec 9>&-
    [ $status -eq 3 ]
    grep 'waits.h5: is damaged: HDF5 crashed while it was read (Segmentation fault)' err
    grep 'rv.h5: is valid' err
}

@test "each rule has a violation" {
    broken frame-r0 '*:/: attribute creator is missing' delete-attr / creator
    broken frame-r0 '*:/: attribute schema_version should be MAJOR.MINOR' attr / schema_version old
    broken frame-r0 '*:/: has schema version 2.0, which is newer*' attr / schema_version 2.0
    broken frame-r0 '*:/rvfit: is missing, though the file says*' attr / product rvfit
    broken frame-r0 '*:/frame: *schema version 2.0*newer*' attr /frame version 2.0
    broken frame-r0 "*:/frame: *type 'psf', not 'frame'" attr /frame type psf
    broken frame-r0 '*:/frame/wavelength: is missing' delete /frame/wavelength
    broken frame-r0 '*:/frame/flux: 1 values are NaN or Inf (the first is number 3)' set /frame/flux 3 nan
    broken frame-r0 '*:/frame/flux: 1 values are NaN or Inf*' set /frame/flux 3 inf
    broken frame-r0 '*:/frame/ivar: 1 values are negative*' set /frame/ivar 3 -1
    broken frame-r0 '*:/frame/wavelength: values do not increase' set /frame/wavelength 3 1
    broken frame-r0 '*:/frame/wavelength: units are nm, should be Angstrom' attr /frame/wavelength units nm
    broken frame-r0 '*:/frame/wavelength: attribute medium should be one of vacuum|air' attr /frame/wavelength medium water
    broken frame-r0 '*:/frame/flux: attribute units is missing' delete-attr /frame/flux units
    broken frame-r0 '*:/frame/flux: attribute long_name is missing' delete-attr /frame/flux long_name
    broken frame-r0 '*:/frame/mask: attribute flag_masks has 10 bits, but flag_meanings names 1' \
        attr /frame/mask flag_meanings BAD
    broken frame-r0 '*:/frame/mask: attributes flag_masks and flag_meanings of a mask are missing' \
        delete-attr /frame/mask flag_masks
    broken frame-r0 '*:/frame/mask: is float64, should be uint32|int32*' shape /frame/mask 8,251
    broken frame-r0 '*:/frame/wavelength: has 2 dimensions, should have 1*' shape /frame/wavelength 8,251
    broken frame-r0 '*/frame/chi2pix: dimension n*' shape /frame/chi2pix 5,251
    broken frame-r0 '*:/frame/chi2pix: dimension nwave is not attached to the axis /frame/wavelength' \
        detach /frame/chi2pix
    broken frame-r0 '*:/provenance: is missing' delete /provenance
    broken frame-r0 '*:/provenance: has no record 000*' delete /provenance/000
    broken rv '*:/rvfit/table: is missing' delete /rvfit/table
    broken rv '*:/rvfit/table: is float64, should be a table*' shape /rvfit/table 8
    broken spectra '*:/spectra/b/ivar: is missing' delete /spectra/b/ivar
    broken templates '*:/templates/b/params: is missing' delete /templates/b/params
    broken image-r0 '*:/psf/coeff: is missing' delete /psf/coeff
    broken truth-r0 '*:/truth/wavelength: values do not increase' set /truth/wavelength 5 1
    # An image that has a second name, as an HDU.
    broken image-r0 '*:/image/data: has 1 dimensions, should have 2' delete /fits/preproc-r0/HDU000_IMAGE/data \
        shape /image/data 5
    # A table's own units.
    broken rv "*:/rvfit/table: column VRAD is in '', should be in km/s*" delete-attr /rvfit/table column_units
}

@test "every block: a newer version, another type, and what a group has to hold" {
    local schema name f found data
    for schema in "$SPX_ROOT"/schemas/*.schema; do
        name=$(sed -n 's/^block \([^ ]*\) .*/\1/p' "$schema")
        # tables have no version of their own
        grep -q "^group /$name " "$schema" || continue
        found=
        for f in "$SPX_ROOT"/tests/data/golden/*/*.h5; do
            if h5ls "$f/$name" >/dev/null 2>&1; then found=$f && break; fi
        done
        [ -n "$found" ] || [ "$name" = provenance ]
        cp "$found" newer.h5
        h5edit newer.h5 attr "/$name" version 99.0
        run -1 h5check newer.h5
        [[ $output == *"newer.h5:/$name: was written with schema version 99.0, this program knows "*": use a newer specpipe"* ]]
        h5edit newer.h5 attr "/$name" version one
        run -1 h5check newer.h5
        [[ $output == *"newer.h5:/$name: attribute version is 'one', should be MAJOR.MINOR"* ]]
        cp "$found" other.h5
        h5edit other.h5 attr "/$name" type other
        run -1 h5check other.h5
        [[ $output == *"other.h5:/$name: is a block of type 'other', not '$name'"* ]]
        for data in $(sed -n "s,^[a-z]* \(/$name/[a-z_0-9]*\) .* required .*,\1,p" "$schema"); do
            cp "$found" lacks.h5
            h5edit lacks.h5 delete "$data"
            run -1 h5check lacks.h5
            [[ $output == *"lacks.h5:$data: is missing"* ]]
        done
        chmod +w ./*.h5
        rm ./*.h5
    done
}

@test "exit statuses: usage, faults, files that cannot be read, output that cannot be written" {
    local d=$BATS_FILE_TMPDIR/data
    fails_with 2 '*--nonsense*' h5check --nonsense "$d/rv.h5"
    run -0 h5check "$d/rv.h5"
    cp "$d/rv.h5" bad.h5
    h5edit bad.h5 delete /provenance
    run -1 h5check bad.h5
    run -3 --separate-stderr h5check "$d/preproc-b0.fits" bad.h5 "$d/rv.h5"
    [ "$output" = 'bad.h5:/provenance: is missing' ]
    run -4 --separate-stderr bash -c 'h5check bad.h5 >/dev/full'
    [[ $stderr == 'h5check: standard output: '* ]]
}

@test "what the schema does not name is ignored" {
    cp "$BATS_FILE_TMPDIR/data/frame-r0.h5" more.h5
    h5copy -i more.h5 -o more.h5 -s /frame -d /mine
    h5copy -i more.h5 -o more.h5 -s /frame/flux -d /frame/flux_of_mine
    h5edit more.h5 fill /frame/flux_of_mine nan attr /frame version 1.99
    h5check more.h5
}

@test "every dataset explains itself, and no plug-in is needed" {
    local f d
    # HDUs that are carried along (/fits) explain themselves by their headers.
    for f in "$BATS_FILE_TMPDIR"/data/*.h5; do
        run ! grep USER_DEFINED <(h5dump -H -p "$f")
        for d in $(h5dump -n "$f" | sed -n 's/^ dataset *\([^ ]*\).*/\1/p' | grep -v ^/fits/); do
            h5dump -a "$d/long_name" "$f" >/dev/null || {
                echo "$f:$d has no long_name"
                return 1
            }
        done
    done
}

@test "--schema prints the definition" {
    h5check --schema=text </dev/null >text
    local f
    for f in "$SPX_ROOT"/schemas/*.schema; do
        # each text in full, one after the other
        tr '\n' '\1' <"$f" >one && tr '\n' '\1' <text | grep -qF "$(cat one)"
    done
    h5check --schema=mdoc >body
    grep -qF '/frame/flux' body
    fails_with 2 '*--schema*' h5check --schema=pdf
}

# taken FILE BLOCK PROGRAMS: --input says that these take it, and nothing but that of this block.
taken() {
    run h5check --input "$1"
    [[ $output == *":$2: "* ]]
    [ "$(sed -n "s|.*:$2: .*: ||p" <<<"$output")" = "$3" ]
}

@test "--input: programs that take a file of another program, and they do" {
    local d=$BATS_FILE_TMPDIR/data
    # as h5py writes it: no attributes but type and version, no provenance
    cp "$d/frame-r0.h5" mine.h5
    h5edit mine.h5 delete /provenance delete-attr / product delete-attr / creator delete-attr / schema_version \
        delete-attr /frame/flux long_name delete-attr /frame/mask flag_masks detach /frame/chi2pix delete /scores
    run -1 h5check mine.h5
    run -0 h5check --input mine.h5
    taken mine.h5 /frame 'specx-sky, specx-flat, specx-flux, rvs-fit --resolution-matrix, rvs-fit, h5merge'
    specx-sky -q mine.h5 -o out.h5
    specx-flat -q mine.h5 -f -o out.h5
    specx-flux -q --fit "$d/stars-r0.h5" mine.h5 -f -o out.h5
    rvs-fit -q -t "$d/templates.h5" --resolution-matrix mine.h5 -f -o out.h5
    h5merge -q mine.h5 "$d/frame-b0.h5" -f -o out.h5
    # without a matrix, and with a flat or barycentric: the others refuse it
    h5edit mine.h5 delete /frame/resolution
    taken mine.h5 /frame 'rvs-fit, h5merge (it has no resolution matrix)'
    fails_with 3 '*no resolution matrix*' specx-sky mine.h5 -o no.h5
    fails_with 3 '*no resolution matrix*' specx-flat mine.h5 -o no.h5
    rvs-fit -q -t "$d/templates.h5" mine.h5 -f -o out.h5
    cp "$d/frame-r0.h5" mine.h5
    h5edit mine.h5 attr /frame/wavelength frame barycentric attr /frame/flux units erg
    taken mine.h5 /frame 'specx-sky, rvs-fit --resolution-matrix, rvs-fit, h5merge'
    fails_with 3 '*barycentric*' specx-flat mine.h5 -o no.h5
    fails_with 3 "*units of 'erg'*" specx-flux --fit "$d/stars-r0.h5" mine.h5 -o no.h5
}

@test "--input: each block is read as the programs read it" {
    local d=$BATS_FILE_TMPDIR/data g=$SPX_ROOT/tests/data/golden/0.1.0.1
    taken "$d/spectra.h5" /spectra 'rvs-fit --resolution-matrix, rvs-fit, h5merge'
    taken "$d/image-r0.h5" /image 'specx-extract, specx-shift'
    taken "$d/image-r0.h5" /psf 'specx-extract, specx-shift, specx-sim --psf'
    taken "$d/library.h5" /library 'rvs-template, specx-sim --models'
    taken "$d/templates.h5" /templates 'rvs-fit --templates'
    taken "$d/rv.h5" /rvfit 'rvs-fit --start, h5table, h52fits'
    taken "$d/stars-r0.h5" /rvfit 'rvs-fit --start, specx-flux --fit, h5table, h52fits'
    taken "$g/flat.h5" /flat 'specx-sky --flat, specx-flat --apply'
    taken "$g/flux.h5" /flux 'specx-flux --apply'
    taken "$g/network.h5" /network rvs-template
    taken "$g/traces.h5" /traces h5stack
    rvs-telluric --simulated 6860,6900 -o air.h5
    taken air.h5 /transmission 'rvs-fit --tellurics'
    taken "$g/traces.h5" /shifts h5stack
    taken "$g/rv.h5" /ccf h5stack
    # a fault of a block is the message of the program that reads it
    cp "$d/spectra.h5" bad.h5
    h5edit bad.h5 set /spectra/r/wavelength 5 1
    run -1 h5check --input bad.h5 "$d/rv.h5"
    [[ ${lines[0]} == 'bad.h5:/spectra/r/wavelength: wavelengths do not increase at element 5'* ]]
    [[ ${lines[1]} == */rv.h5:/rvfit:* ]]
    fails_with 3 "*${lines[0]}" rvs-fit -t "$d/templates.h5" bad.h5 -o no.h5
    cp "$d/templates.h5" bad.h5
    h5edit bad.h5 delete-attr /templates type
    run -1 h5check --input bad.h5
    fails_with 3 "*$output" rvs-fit -t bad.h5 "$d/frame-r0.h5" -o no.h5
    # nothing for a program, and nothing that can be read
    run -1 h5check --input "$d/truth-r0.h5"
    [[ $output == *'holds no block that another step takes'* ]]
    fails_with 3 '*not an HDF5 file*' h5check --input "$d/psf-r0.fits"
    run -0 h5check --input <"$d/spectra.h5"
    [[ $output == 'standard input:/spectra: 8 spectra, arms b r z: '* ]]
}

@test "links to other files, and to nothing: refused where the object is wanted, not taken as absent" {
    local d=$BATS_FILE_TMPDIR/data how f
    for how in lose elsewhere; do
        cp "$d/spectra.h5" arm.h5
        h5edit arm.h5 $how /spectra/r
        cp "$d/frame-r0.h5" mask.h5
        h5edit mask.h5 $how /frame/chi2pix
        cp "$d/frame-r0.h5" map.h5
        h5edit map.h5 $how /fibermap
        for f in arm.h5:/spectra/r mask.h5:/frame/chi2pix map.h5:/fibermap; do
            run -3 h5check "${f%:*}"
            [[ $output == *"$f: is a link to another file, or to nothing"* ]]
        done
        fails_with 3 '*arm.h5:/spectra/r: is a link to another*' rvs-fit -q -t "$d/templates.h5" -o x.h5 arm.h5
        fails_with 3 '*arm.h5:/spectra/r: is a link to another*' h52fits -q -o x.fits arm.h5
        fails_with 3 '*mask.h5:/frame/chi2pix: is a link to another*' h5merge -q -o x.h5 mask.h5
        fails_with 3 '*map.h5:/fibermap: is a link to another*' h5merge -q -o x.h5 map.h5
        [ ! -e x.h5 ] && [ ! -e x.fits ]
    done
}
