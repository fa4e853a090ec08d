# Programs in pipes: content that passes through, and a neighbour that stops, sends nothing, or half of a product.

load common

# The data set of the manual's examples: a product of every kind.
setup_file() {
    example_data
}

# Programs that read HDF5, as they would read it from standard input; $d is the data folder.
readers=(
    'specx-extract -q --wavelength 6400,6600,0.8'
    'rvs-template -q --setup r:6400:6600:0.5:FWHM=1.8'
    'rvs-fit -q --templates $d/templates.h5'
    'h5merge -q'
    'h52fits -q'
    'h5check -q'
    'h5table'
)

@test "the whole way through pipes gives what the files give" {
    local d=$BATS_FILE_TMPDIR/data
    fits2h5 -q "$d"/{preproc,psf}-r0.fits | specx-extract -q --wavelength 6400,6600,0.8 | cat >frame.h5
    h5diff frame.h5 "$d/frame-r0.h5" /frame
    fits2h5 -q "$d"/{preproc,psf}-b0.fits | specx-extract -q --wavelength 5000,5200,0.8 |
        h5merge -q "$d/frame-r0.h5" - "$d/frame-z0.h5" | rvs-fit -q --templates "$d/templates.h5" |
        tee rv.h5 | h52fits -q -o rv.fits
    diff <(h5table -t /rvfit/table rv.h5) <(h5table -t /rvfit/table "$d/rv.h5")
    [ -s rv.fits ]
    # Each stage is in the provenance: two extractions of three cameras, the merge, the fit.
    h5dump -g /provenance rv.h5 >all
    local p
    for p in fits2h5 specx-extract h5merge rvs-fit; do grep -q "program: $p" all; done
}

@test "a file, a file on standard input, and a pipe are read alike" {
    local d=$BATS_FILE_TMPDIR/data
    h5merge -q --reproducible --by rows "$d/spectra.h5" -o file.h5
    h5merge -q --reproducible --by rows - <"$d/spectra.h5" >redirected.h5
    # A pipe on purpose.
    # shellcheck disable=SC2002
    cat "$d/spectra.h5" | h5merge -q --reproducible --by rows | cat >piped.h5
    h5diff file.h5 redirected.h5 /spectra
    h5diff file.h5 piped.h5 /spectra
    h5check file.h5 redirected.h5 piped.h5
}

# removed FILE: opens a copy of it, which has no name any more, as /dev/fd/7
removed() {
    exec 7<&-
    cp "$1" copy.h5
    exec 7<copy.h5
    rm copy.h5
}

@test "a file that was removed while it is open is read as a pipe is" {
    local d=$BATS_FILE_TMPDIR/data at
    removed "$d/frame-r0.h5"
    specx-sky -q --reproducible -o removed.h5 - <&7
    specx-sky -q --reproducible -o removed-again.h5 /dev/fd/7
    h5diff removed.h5 removed-again.h5 /frame
    # A pipe on purpose.
    # shellcheck disable=SC2002
    cat "$d/frame-r0.h5" | specx-sky -q --reproducible -o removed-not.h5 -
    h5diff removed.h5 removed-not.h5 /frame
    # one without an inventory, which HDF5 made; in the middle of what a descriptor has read
    h5repack "$d/frame-r0.h5" plain.h5
    removed plain.h5
    specx-sky -q --reproducible -o plain-removed.h5 /dev/fd/7
    h5diff removed.h5 plain-removed.h5 /frame
    { cat "$d/frame-b0.h5" plain.h5; } >two.h5
    removed two.h5
    head -c "$(stat -c %s "$d/frame-b0.h5")" <&7 >/dev/null
    specx-sky -q --reproducible -o second.h5 - <&7
    h5diff removed.h5 second.h5 /frame
    # damaged and cut
    cp "$d/frame-r0.h5" damaged.h5
    at=$(h5dump -p -d /frame/flux -H "$d/frame-r0.h5" | sed -n 's/.*OFFSET //p')
    printf '\1\2\3\4' | dd of=damaged.h5 bs=1 seek=$((at + 100)) conv=notrunc status=none
    removed damaged.h5
    run -3 specx-sky -o x.h5 /dev/fd/7
    [[ $output == *'/dev/fd/7:/frame/flux: '*damaged* ]]
    head -c 20000 "$d/frame-r0.h5" >cut.h5
    removed cut.h5
    run -3 specx-sky -o x.h5 /dev/fd/7
    [[ $output == *'/dev/fd/7: is truncated'* ]]
    [ ! -e x.h5 ]
}

@test "a large file that was removed while it is open is not copied into memory" {
    [[ $(h5dump --version) != *' 1.1'[^0-3]* ]] || skip "the driver of such files is for HDF5 before 1.14"
    local d=$BATS_FILE_TMPDIR/data n i
    local -a parts=()
    n=$((8000000 / $(stat -c %s "$d/spectra.h5") + 1))
    for ((i = 0; i < n; i++)); do parts+=("$d/spectra.h5"); done
    h5merge -q --by rows --allow repeated "${parts[@]}" -o large.h5
    [ "$(stat -c %s large.h5)" -gt 5000000 ]
    removed large.h5
    h5table -v --provenance /dev/fd/7 2>messages >/dev/null
    [ "$(sed -n 's/.*, \([0-9]*\) MiB of memory at most.*/\1/p' messages)" -le 2 ]
}

@test "standard output that is a file without a name gets the bytes of a pipe, one after another, and nothing of a failure" {
    local d=$BATS_FILE_TMPDIR/data fd
    fits2h5 -q --reproducible "$d"/{preproc,psf}-r0.fits | cat >piped.h5
    h5merge -q --reproducible --by rows "$d/spectra.h5" | cat >second.h5
    exec {fd}<>nameless
    rm nameless
    {
        fits2h5 -q --reproducible "$d"/{preproc,psf}-r0.fits
        h5merge -q --reproducible --by rows "$d/spectra.h5"
    } >"/dev/fd/$fd"
    cat piped.h5 second.h5 | cmp - "/dev/fd/$fd"
    # a failure that is found when the output is begun leaves what was there
    exec {fd}>&- {fd}<>nameless
    rm nameless
    head -c -1000 "$d/spectra.h5" >cut.h5
    run -3 bash -c "h5merge --by rows cut.h5 >/dev/fd/$fd"
    [ ! -s "/dev/fd/$fd" ]
    # and a full disk
    exec {fd}>&-
    run -4 bash -c 'ulimit -f 100 && exec 7<>nameless && rm nameless && trap "" XFSZ && fits2h5 "$1"/{preproc,psf}-r0.fits >/dev/fd/7; s=$?; [ ! -s /dev/fd/7 ] || exit 9; exit $s' - "$d"
    [[ $output == *'standard output'* ]]
    [ ! -e nameless ]
}

@test "the command in the provenance has standard input, wherever -o - stands" {
    local d=$BATS_FILE_TMPDIR/data
    specx-sky -q --reproducible -o - - <"$d/frame-r0.h5" | cat >before.h5
    specx-sky -q --reproducible - -o - <"$d/frame-r0.h5" | cat >after.h5
    h5table --provenance before.h5 | grep -qx ' *command  specx-sky -q --reproducible -o - -'
    h5table --provenance after.h5 | grep -qx ' *command  specx-sky -q --reproducible - -o -'
}

@test "standard output is the default in a pipe, and a file when asked for" {
    local d=$BATS_FILE_TMPDIR/data
    h5merge -q --reproducible "$d/frame-b0.h5" | cat >a.h5
    h5merge -q --reproducible "$d/frame-b0.h5" -o - >b.h5
    cmp <(h5dump -n a.h5 | tail -n +2) <(h5dump -n b.h5 | tail -n +2)
    # Into a named pipe too.
    mkfifo pipe
    h5merge -q "$d/frame-b0.h5" -o pipe &
    cat pipe >c.h5
    wait $!
    h5check c.h5
    [ -p pipe ]
}

@test "several products follow each other on one pipe" {
    local d=$BATS_FILE_TMPDIR/data
    cat "$d/frame-b0.h5" "$d/rv.h5" "$d/frame-r0.h5" | {
        h5table -t /fibermap - >one
        h5table -t /rvfit/table - >two
        h5table -t /scores - >three
        run -3 --separate-stderr h5check -
        # shellcheck disable=SC2154
        [[ $stderr == *empty* ]]
    }
    diff one <(h5table -t /fibermap "$d/frame-b0.h5")
    diff two <(h5table -t /rvfit/table "$d/rv.h5")
    diff three <(h5table -t /scores "$d/frame-r0.h5")
}

@test "empty input: the program before failed" {
    local d=$BATS_FILE_TMPDIR/data r
    for r in "${readers[@]}"; do
        eval "set -- $r"
        fails_with 3 "$1: standard input: is empty: the program *" bash -c 'true | "$@"' - "$@" -
        fails_with 3 "$1: standard input: is empty*" "$@" - </dev/null
    done
    fails_with 3 'fits2h5: *empty*' fits2h5 - </dev/null
}

@test "half an HDF5 file: truncated" {
    local d=$BATS_FILE_TMPDIR/data r n
    for r in "${readers[@]}"; do
        eval "set -- $r"
        for n in 20 2000 90000; do
            head -c $n "$d/spectra.h5" >cut.h5
            # shellcheck disable=SC2002
            fails_with 3 "$1: standard input: is *" bash -c 'cat cut.h5 | "$@"' - "$@" -
            fails_with 3 "$1: *cut.h5: is *" "$@" cut.h5
        done
        [[ $stderr == *'truncated (90000 of '* ]]
    done
}

@test "something else than HDF5" {
    local d=$BATS_FILE_TMPDIR/data r
    printf 'wavelength flux\n' >text
    for r in "${readers[@]}"; do
        eval "set -- $r"
        fails_with 3 "$1: standard input: is not an HDF5 file*" bash -c 'cat text | "$@"' - "$@" -
        fails_with 3 "$1: *text: is not an HDF5 file*" "$@" text
    done
}

@test "FITS files and packed files are called by their names" {
    local d=$BATS_FILE_TMPDIR/data r
    cp "$d/preproc-r0.fits" image.fits
    gzip -k image.fits
    gzip -c "$d/spectra.h5" >spectra.h5.gz
    printf 'BZh91AY&SY' >some.h5.bz2
    for r in "${readers[@]}"; do
        eval "set -- $r"
        fails_with 3 "$1: image.fits: is not an HDF5 file, but a FITS file: convert it with fits2h5*" "$@" image.fits
        fails_with 3 "$1: standard input: *a FITS file*" "$@" - <image.fits
        fails_with 3 "$1: image.fits.gz: *gzip: fits2h5 reads it*" "$@" image.fits.gz
        fails_with 3 "$1: spectra.h5.gz: *gzip: unpack it: gunzip -c FILE*" "$@" spectra.h5.gz
    done
    fails_with 3 '*some.h5.bz2: *bzip2: unpack it: bunzip2 -c FILE >NEW.h5' h5table some.h5.bz2
    fails_with 3 '*some.h5.bz2: is packed with bzip2, not FITS: unpack it: bunzip2 -c FILE | fits2h5 -' \
        fits2h5 some.h5.bz2 -o x.h5
}

@test "names that no file has" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/preproc-r0.fits" image.fits
    fails_with 3 'fits2h5: image.fits[[]1[]]: *no HDU is chosen in brackets here: give image.fits' \
        fits2h5 'image.fits[1]' -o x.h5
    fails_with 3 'fits2h5: spec-\*.fits: *no file matches this pattern' fits2h5 'spec-*.fits' -o x.h5
    fails_with 3 'h5merge: frame-?9.h5: *no file matches this pattern' h5merge 'frame-?9.h5' -o x.h5
    fails_with 3 'h5merge: nothing.h5: cannot open: no such file*' h5merge nothing.h5 -o x.h5
}

@test "a block without attributes: where an example is" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-r0.h5" bare.h5
    h5edit bare.h5 delete-attr /frame type
    fails_with 3 "*bare.h5:/frame: attribute 'type' is missing: h5check *specpipe-schema(5)*" \
        rvs-fit -t "$d/templates.h5" bare.h5 -o x.h5
}

@test "the wrong product names what is missing" {
    local d=$BATS_FILE_TMPDIR/data
    fails_with 3 '*specx-extract: *truth-r0.h5*image*' specx-extract -q "$d/truth-r0.h5" -o x.h5
    fails_with 3 '*rvs-fit: *truth-r0.h5*spectra*' rvs-fit -q --templates "$d/templates.h5" "$d/truth-r0.h5" -o x.h5
    fails_with 3 '*rvs-template: *truth-r0.h5*library*' rvs-template -q --setup r:6400:6600:0.5:FWHM=1.8 "$d/truth-r0.h5" -o x.h5
    fails_with 3 '*h5merge: *truth-r0.h5*' h5merge -q "$d/truth-r0.h5" -o x.h5
}

@test "a stage that fails makes the whole pipe fail, and leaves nothing" {
    local d=$BATS_FILE_TMPDIR/data
    run ! bash -c "set -o pipefail; fits2h5 -q nothing.fits | specx-extract -q -o frame.h5"
    [ ! -e frame.h5 ]
    bash -c "fits2h5 -q nothing.fits | specx-extract -q | h5merge -q -o frame.h5; echo \${PIPESTATUS[*]}" >status 2>err
    [ "$(cat status)" = '3 3 3' ]
    grep -q 'specx-extract: standard input: is empty' err
    grep -q 'h5merge: standard input: is empty' err
    [ "$(ls -A)" = "$(printf 'err\nstatus')" ]
}

@test "the reader stops: no crash, exit status 4, a message" {
    local d=$BATS_FILE_TMPDIR/data c
    # Each output is larger than a pipe holds.
    for c in "h5merge --by rows --allow repeated $d/spectra.h5 $d/spectra.h5" "fits2h5 $d/preproc-r0.fits" "h52fits $d/spectra.h5" \
        "rvs-template --setup r:6400:6600:0.5:FWHM=1.8 $d/library.h5" "specx-sim --wavelength 6400,6600 --fibers 8" \
        "specx-extract --wavelength 6400,6600,0.8 $d/image-r0.h5"; do
        bash -c "$c -q | head -c 100 >/dev/null; echo \${PIPESTATUS[*]}" >status 2>err
        if [ "$(cat status)" != '4 0' ] || ! grep -q 'the program that reads this pipe stopped' err; then
            echo "$c: $(cat status err)"
            return 1
        fi
    done
}

# Runs a command whose standard output is a pipe that nobody reads any more.
unread() {
    local status=0
    mkfifo pipe
    exec 7<>pipe 8>pipe 7<&-
    rm pipe
    "$@" >&8 2>err 8>&- || status=$?
    exec 8>&-
    echo $status
}

@test "the reader of text stops: nothing is said, and the signal ends the program" {
    local d=$BATS_FILE_TMPDIR/data c
    h5copy -i "$d/spectra.h5" -o foreign.h5 -s /spectra -d /frame # without attributes
    for c in "h5table $d/rv.h5" "h5table --csv -t /fibermap $d/rv.h5" "fits2h5 --list $d/preproc-r0.fits" \
        "h52fits --list $d/spectra.h5" 'h5check foreign.h5' 'h5check --schema text' 'specpipe-info --device cpu' \
        'rvs-fit --help' 'specx-extract --help=mdoc' 'h5merge --version'; do
        # shellcheck disable=SC2086
        [ "$(unread $c)" = 141 ] && [ ! -s err ] || {
            echo "$c: $(cat err)"
            return 1
        }
    done
    # nor where the parent ignores the signal
    [ "$(trap '' PIPE && unread h5table "$d/rv.h5")" = 141 ]
    [ ! -s err ]
}

@test "standard input or output closed" {
    local d=$BATS_FILE_TMPDIR/data
    run -4 bash -c "h5merge -q $d/spectra.h5 -o - >&-"
    run ! bash -c "h5merge -q - <&- >x"
    [ ! -s x ]
    run -0 bash -c "h5merge -q $d/spectra.h5 -o y.h5 <&-"
    h5check y.h5
}

@test "output equal to an input is refused, and the input stays as it was" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/spectra.h5" a.h5
    ln -s a.h5 soft.h5
    ln a.h5 hard.h5
    local o
    for o in a.h5 ./a.h5 soft.h5 hard.h5; do
        fails_with 2 '*h5merge: a.h5: is both input and output*' h5merge -q -f a.h5 -o $o
        fails_with 2 '*h52fits: a.h5: is both input and output*' h52fits -q -f a.h5 -o $o
        fails_with 2 '*specx-extract: *is both input and output*' specx-extract -q -f a.h5 -o $o
        fails_with 2 '*rvs-fit: *is both input and output*' rvs-fit -q -f --templates "$d/templates.h5" a.h5 -o $o
        fails_with 2 '*rvs-fit: *is both input and output*' rvs-fit -q -f --templates a.h5 "$d/spectra.h5" -o $o
    done
    run -2 --separate-stderr bash -c 'h5merge -q a.h5 >>a.h5'
    [[ $stderr == *'both input and output'* ]]
    run -2 --separate-stderr bash -c 'h5merge -q - <a.h5 >>a.h5'
    cp "$d/preproc-r0.fits" image.fits
    fails_with 2 '*fits2h5: *is both input and output*' fits2h5 -q -f image.fits -o image.fits
    cmp a.h5 "$d/spectra.h5"
    cmp image.fits "$d/preproc-r0.fits"
}

@test "an existing output is replaced with -f only" {
    local d=$BATS_FILE_TMPDIR/data
    echo precious >out.h5
    fails_with 4 '*out.h5: exists already: give -f*' h5merge -q "$d/spectra.h5" -o out.h5
    fails_with 3 '*' h5merge -q -f nothing.h5 -o out.h5
    [ "$(cat out.h5)" = precious ]
    h5merge -q -f "$d/spectra.h5" -o out.h5
    h5check out.h5
}

@test "an output has the permissions that the umask leaves, or those of the file that it replaces" {
    local d=$BATS_FILE_TMPDIR/data
    (umask 027 && h5merge -q "$d/spectra.h5" -o out.h5)
    [ "$(stat -c %a out.h5)" = 640 ]
    (umask 022 && specx-sim -q --library stars --wavelength 6400,6410 --axis teff=5000,6000 --axis logg=4 --axis feh=0)
    [ "$(stat -c %a stars)" = 755 ]
    chmod 604 out.h5
    h5merge -q -f "$d/spectra.h5" -o out.h5
    [ "$(stat -c %a out.h5)" = 604 ]
}

@test "a terminal gets no HDF5, and is not asked for any" {
    need_terminal
    local d=$BATS_FILE_TMPDIR/data c
    for c in "h5merge $d/spectra.h5" "h5merge $d/spectra.h5 -o -" "fits2h5 $d/preproc-r0.fits" "h52fits $d/spectra.h5" \
        "rvs-fit --templates $d/templates.h5 $d/spectra.h5" "specx-extract $d/image-r0.h5" "specx-sim" \
        "rvs-template --setup r:6400:6600:0.5:FWHM=1.8 $d/library.h5"; do
        run -2 on_terminal "$c" </dev/null
        [[ $output == *terminal* ]]
    done
    # without any argument it is the input that lacks
    for c in h5merge specx-extract h52fits rvs-template h5table fits2h5; do
        run -2 script -qec "$c" /dev/null
        [[ $output == *'no input: give a file'* ]]
    done
    for c in 'h5merge -o x.h5' 'specx-extract -o x.h5' 'h5check' 'h52fits -o x.fits' 'h5merge - -o x.h5'; do
        run -2 on_terminal "$c"
        [[ $output == *'no input: give a file'* || $output == *'standard input is a terminal'* ]]
    done
    [ -z "$(ls -A)" ]
}

@test "input beyond --max-mem goes through a temporary file, which is gone afterwards" {
    local d=$BATS_FILE_TMPDIR/data
    mkdir tmp
    h5merge -q --by rows --allow repeated "$d"/{spectra,spectra,spectra,spectra,spectra,spectra,spectra,spectra}.h5 -o big.h5
    # shellcheck disable=SC2002
    cat big.h5 | TMPDIR=$PWD/tmp h5table --max-mem 3M -t /fibermap - >table
    diff table <(h5table -t /fibermap big.h5)
    [ -z "$(ls -A tmp)" ]
    # shellcheck disable=SC2002
    run -4 --separate-stderr bash -c "cat big.h5 | TMPDIR=/nowhere h5table --max-mem 3M -t /fibermap -"
    [[ $stderr == *'/nowhere'* ]]
    # Data that do not fit are an error with a remedy.
    fails_with 4 '*--max-mem*' specx-extract -q --max-mem 300K "$d/image-r0.h5" -o x.h5
}

@test "images of pipes count as memory: what --max-mem leaves no room for is in temporary files" {
    local d=$BATS_FILE_TMPDIR/data limit peak
    mkdir tmp
    export TMPDIR=$PWD/tmp
    mapfile -t many < <(yes "$d/spectra.h5" | head -n 60)
    h5merge -q --by rows --allow repeated "${many[@]}" -o big.h5
    size=$(($(stat -c %s big.h5) >> 20))
    [ "$size" -ge 16 ]
    # through two pipes, with room for everything, for the input alone, and for neither
    for limit in 0 400 60 20; do
        # shellcheck disable=SC2002
        cat big.h5 | h5merge -v --max-mem ${limit}M --by rows --allow repeated - 2>log | cat >out.h5
        h5diff big.h5 out.h5 /spectra
        h5diff big.h5 out.h5 /fibermap
        peak=$(sed -n 's/.* \([0-9]*\) MiB of memory at most$/\1/p' log)
        [ "$limit" -eq 0 ] || [ "$peak" -le "$limit" ]
        [ "$limit" -eq 20 ] || [ "$peak" -ge "$size" ]
        [ "$limit" -gt 0 ] || [ "$peak" -ge $((2 * size)) ]
        [ -z "$(ls -A tmp)" ]
    done
    # without a place for these files
    rm -r tmp
    # shellcheck disable=SC2002
    run -4 --separate-stderr bash -c "cat big.h5 | h5merge --max-mem 60M --by rows --allow repeated - >out.h5"
    [[ $stderr == "h5merge: standard output: cannot be begun: $TMPDIR: no room for "*' No such file or directory' ]]
}

@test "strange names" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-b0.h5" ./-
    cp "$d/frame-b0.h5" ./--help
    cp "$d/frame-b0.h5" 'a b[1].h5'
    h5check ./- 'a b[1].h5' -- --help
    h5merge -q ./- -o 'out (1).h5'
    h5check 'out (1).h5'
    cp "$d/preproc-r0.fits" 'image.fits[1]'
    fits2h5 -q 'image.fits[1]' -o x.h5
    fails_with 3 '*image.fits[[]2[]]*' fits2h5 -q 'image.fits[2]' -o y.h5
    fails_with 3 '*' fits2h5 -q '!image.fits' -o y.h5
}

@test "several products on standard input: a program of many inputs takes all, of one the first and says so, a file of several is refused" {
    local d=$BATS_FILE_TMPDIR/data how
    h5merge -q --reproducible "$d"/frame-{b,r}0.h5 -o two.h5
    cp "$d/frame-z0.h5" .
    cat two.h5 frame-z0.h5 >both.h5
    # the same as of the files, through a pipe and as a file
    h5merge -q --reproducible two.h5 frame-z0.h5 -o named.h5
    cat both.h5 | h5merge -q --reproducible -o piped.h5
    h5merge -q --reproducible -o redirected.h5 <both.h5
    for how in piped redirected; do
        h5diff named.h5 $how.h5 /spectra /spectra
    done
    rvs-fit -q --reproducible -t "$d/templates.h5" "$d"/frame-{r,b}0.h5 --joint target -o named.h5 -f
    cat "$d"/frame-{r,b}0.h5 | rvs-fit -q --reproducible -t "$d/templates.h5" --joint target -o piped.h5 -f
    h5diff named.h5 piped.h5 /rvfit /rvfit
    # the second is checked, too, and named
    head -c -1000 frame-z0.h5 >cut.h5
    run -3 bash -c 'cat two.h5 cut.h5 | h5check'
    [[ $output == *'standard input, product 2: is truncated'* ]]
    run -3 h5check both.h5
    [[ $output == 'h5check: both.h5: holds several products, one after another: give each a file of its own, or this one as standard input' ]]
    run -3 rvs-fit -t "$d/templates.h5" both.h5 -o out.h5
    [[ $output == *'both.h5: holds several products'* ]]
    [ ! -e out.h5 ]
    # which would be which?
    for how in '-t - -' '-t -' "-t $d/templates.h5 --start - -" '-t - --zero-points - two.h5'; do
        run -2 bash -c "cat two.h5 $d/templates.h5 | rvs-fit $how -o out.h5"
        [[ $output == 'rvs-fit: -: standard input can be given once only' ]]
    done
    rvs-fit -q --reproducible -t - "$d/frame-r0.h5" -o piped.h5 -f <"$d/templates.h5"
    # of one file each: what is left is there for the next
    for how in 'cat both.h5 |' ''; do
        run -0 --separate-stderr bash -c "$how { h5table --provenance 2>first; h5table --provenance 2>second; }$([ -n "$how" ] || echo ' <both.h5')"
        grep -q 'another product follows on standard input' first
        [ ! -s second ]
        [[ $output == *'specx-extract '*frame-z0.h5* ]]
    done
    run -0 --separate-stderr bash -c 'cat two.h5 | h5table --provenance'
    # shellcheck disable=SC2154
    [ -z "$stderr" ]
}
