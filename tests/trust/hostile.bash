# shellcheck shell=bash
# Hostile input: damaged files, names, values of options.
# shellcheck disable=SC2154,SC2016

# survives TEXT COMMAND...: the command may refuse (a status of 1 to 5 and a message) or succeed with a valid product,
# never crash (but hdf5_may_crash=1: known limit), report a bug, go on for `seconds` of processor time, or leave something
# in the folder besides "in" and "out". Where work_is_asked_for=1, it may go on.
hdf5_may_crash=0 seconds=60 work_is_asked_for=0
survives() {
    local text=$1 left
    shift
    rm -rf tmp out
    mkdir tmp
    (ulimit -S -t "$seconds" && exec timeout -k 5 600 "$@") >stdout 2>stderr </dev/null
    status=$?
    left=$(find . -mindepth 1 ! -path ./in ! -path './in/*' ! -path ./seeds ! -path './seeds/*' ! -path ./out ! -path ./tmp \
        ! -name stdout ! -name stderr)
    if [ -n "$left" ]; then
        wrong "$text: left behind: $left"
        find . -mindepth 1 -name '.*' -delete
    elif { [ $status -ge 124 ] || grep -q 'h5check: .* was stopped' stderr; } && [ "$hdf5_may_crash" = 1 ]; then
        soft "$text: status $status: $(tail -c 300 stderr)"
    elif [ $status -eq $((128 + $(kill -l XCPU))) ] && [ $work_is_asked_for = 1 ]; then
        ok
    elif [ $status -gt 5 ]; then
        wrong "$text: status $status: $(tail -c 300 stderr)"
    elif [ $status -ne 0 ] && [ ! -s stderr ] && [ "${1##*/}" != h5check ]; then
        wrong "$text: status $status without a message"
    elif [ $status -ne 0 ] && [ -e out ] && [ ! -d out ]; then
        wrong "$text: status $status, and an output"
    elif [ $status -eq 0 ] && [ -f out ] && [ "$(head -c 4 out | tail -c 3)" = HDF ] && ! h5check -q out >stdout 2>&1; then
        wrong "$text: an output that h5check refuses: $(head -c 200 stdout)"
    else
        ok
    fi
}

# Small files, of which most is structure; name: commands that read it as `in`.
seeds() {
    mkdir seeds
    specx-sim -q --arm r --fibers 2 --no-sky --wavelength 6400,6410 --psf-output seeds/psf.fits -o seeds/preproc.fits
    fits2h5 -q seeds/preproc.fits seeds/psf.fits -o seeds/image.h5
    specx-extract -q seeds/image.h5 --wavelength 6400,6410,0.8 -o seeds/frame.h5
    h52fits -q seeds/frame.h5 -o seeds/frame.fits
    h5merge -q seeds/frame.h5 -o seeds/spectra.h5
    h52fits -q seeds/spectra.h5 -o seeds/spectra.fits
    rvs-template -q "$d/library.h5" --setup r:6390:6420:1:FWHM=1.8 -o seeds/templates.h5
    rvs-fit -q --templates "$d/templates.h5" --rows 0:2 "$d/spectra.h5" -o seeds/rv.h5
    h52fits -q seeds/rv.h5 -o seeds/rvtab.fits
    specx-sim -q --arm r --fibers 2 --wavelength 6400,6410 --raw amps=2 -o seeds/raw.fits
    fits2h5 -q seeds/raw.fits -o seeds/raw.h5
    specx-preproc -q --combine bias seeds/raw.h5 -o seeds/bias.h5 2>stderr
    specx-sim -q --library stars --wavelength 6370,6450 --axis teff=5000,6000 --axis logg=4 --axis feh=-1,0
    fits2h5 -q stars -o seeds/library.h5
    rm -r stars
    rvs-telluric -q --simulated 6860,6862 -o seeds/air.h5
    cp "$d"/{epochs,stars-r0,arc-r0}.h5 seeds/
    rvs-zero -q --by fiber --least 1 seeds/epochs.h5 -o seeds/zero.h5
    cp "$d/payne.npz" seeds/payne.npz
    cp "$d/array.h5" seeds/array.h5
    without_inventory seeds/*.h5
}

# copies_of COUNT FILE COMMAND...: each command with each of COUNT damaged copies of seeds/FILE, a third of them damaged in
# the first 4000 bytes.
copies_of() {
    local n command range
    [ -d seeds ] || seeds
    for ((n = 0; n < $1; n++)); do
        range=()
        [ $((n % 3)) -ne 0 ] || range=(0 4000)
        for command in "${@:3}"; do
            turn || continue
            damage $((n + 1000000 * SEED)) "${range[@]}" <"seeds/$2" >in
            # shellcheck disable=SC2086
            survives "damage $((n + 1000000 * SEED)) ${range[*]} <$2: $command" $command
        done
    done
}

class fits 211 "damaged FITS files"
class_fits() {
    copies_of 400 preproc.fits 'fits2h5 -q in -o out' 'fits2h5 -q --generic in -o out' 'fits2h5 --list in'
    copies_of 400 psf.fits 'fits2h5 -q in -o out' 'specx-sim -q -j 1 --psf in --fibers 1 --wavelength 6400,6405 -o out'
    copies_of 400 frame.fits 'fits2h5 -q in -o out'
    copies_of 400 spectra.fits 'fits2h5 -q in -o out'
    copies_of 400 rvtab.fits 'fits2h5 -q in -o out'
    copies_of 400 raw.fits 'fits2h5 -q in -o out' 'fits2h5 -q --as raw in -o out'
}

class hdf5 431 "damaged HDF5 files"
class_hdf5() {
    # libhdf5 1.10 does not survive some damaged heaps and messages, or reads them without end (specpipe-trust(7))
    hdf5_may_crash=1 seconds=20
    copies_of 400 frame.h5 'h5check in' 'h52fits -q in -o out' 'h5merge -q in -o out' 'specx-sky -q -j 1 in -o out' \
        'specx-flat -q -j 1 in -o out' 'h5reduce -q in:/frame/flux -o out' 'h5svd -q -k 1 in:/frame/flux -o out'
    copies_of 400 image.h5 'h5check in' 'specx-extract -q -j 1 in --spectra 0:1 -w 6400,6404,0.8 -o out' \
        'specx-shift -q -j 1 in --psf-only -o out'
    copies_of 400 spectra.h5 'h5check in' "rvs-fit -q -j 1 --templates $d/templates.h5 in -o out" 'h5table --spectrum 0 in'
    copies_of 400 templates.h5 'h5check in' "rvs-fit -q -j 1 --rows 0:1 --templates in $d/frame-r0.h5 -o out"
    copies_of 400 rv.h5 'h5check in' 'h5table in' 'h5table --provenance in' 'h52fits -q in -o out'
    copies_of 400 array.h5 'h5stack -q -j 1 in -o out'
    copies_of 400 raw.h5 'h5check in' 'specx-preproc -q -j 1 in -o out' 'specx-preproc -q -j 1 --combine bias in -o out'
    copies_of 400 bias.h5 'h5check in' "specx-preproc -q -j 1 --bias in $PWD/seeds/raw.h5 -o out"
    copies_of 400 library.h5 'rvs-template -q -j 1 in --setup r:6390:6420:1:FWHM=1.8 -o out'
    copies_of 400 epochs.h5 'rvs-zero -q --by fiber --least 1 in -o out'
    copies_of 400 zero.h5 'h5check in' "rvs-fit -q -j 1 --rows 0:1 --zero-points in --templates $d/templates.h5 $d/frame-r0.h5 -o out"
    copies_of 400 air.h5 'h5check in' "rvs-fit -q -j 1 --rows 0:1 --tellurics in --templates $d/templates.h5 $d/frame-r0.h5 -o out"
    copies_of 400 stars-r0.h5 "specx-flux -q -j 1 --fit in $d/frame-r0.h5 -o out" 'specplot -q --script in -o out'
    copies_of 100 arc-r0.h5 'specx-psf -q -j 1 --start in --trace-degree 1 --hermite-degree 1 --shape-degree 0,0 in -o out'
}

class texts 41 "damaged texts: layouts, line lists, bands, velocities, targets"
class_texts() {
    seeds
    local fit="rvs-fit -q -j 1 --rows 0:2 --templates $d/templates.h5 $d/frame-r0.h5"
    tail -c +2 "$SPX_ROOT/tests/fuzz/corpus/lists/layout" >seeds/layout
    copies_of 400 layout "specx-preproc -q -j 1 --layout in $PWD/seeds/raw.h5 -o out"
    printf '[1:10,2:3] # cold\n[20:21,1:40]\n' >seeds/bad
    copies_of 400 bad "specx-preproc -q -j 1 --bad in $PWD/seeds/raw.h5 -o out"
    tail -c +2 "$SPX_ROOT/tests/fuzz/corpus/lists/arc" >seeds/arc
    copies_of 200 arc "specx-psf -q -j 1 --lines in --start $d/arc-r0.h5 --trace-degree 1 --hermite-degree 1 --shape-degree 0,0 $d/arc-r0.h5 -o out"
    tail -c +2 "$SPX_ROOT/tests/fuzz/corpus/lists/shift" >seeds/shift
    copies_of 400 shift "specx-shift -q -j 1 --lines in $PWD/seeds/image.h5 --wavelength 6400,6410,0.8 --psf-only -o out"
    printf '6400 6402\n6405 6406.5 # O2\n' >seeds/bands
    copies_of 400 bands "$fit --leave-out in -o out"
    printf '6860 0.1\n6861 0.5\n6862 0\n' >seeds/air
    copies_of 400 air 'rvs-telluric -q --species O2 in -o out'
    printf '1 10.5 0.1\n2 -3\n' >seeds/known
    copies_of 400 known "rvs-zero -q --by fiber --least 1 --known in $PWD/seeds/epochs.h5 -o out"
    h5table --csv -c TARGETID "$d/frame-r0.h5" | tail -n +2 >seeds/targets
    copies_of 400 targets "$fit --targetid-file in -o out"
    tail -c +2 "$SPX_ROOT/tests/fuzz/corpus/lists/curve" >seeds/curve
    copies_of 400 curve 'fits2h5 -q in -o out'
}

class npz 61 "damaged npz archives"
class_npz() { copies_of 1200 payne.npz 'npz2h5 -q -l teff:1000,logg,feh,vturb in -o out'; }

class parsers 199 "fuzz targets of tests/fuzz on their corpora, some 10000 inputs each try"
class_parsers() {
    local n target targets
    targets=("$SPX_ROOT"/tests/fuzz/fuzz_*.c)
    targets=("${targets[@]##*/}")
    targets=("${targets[@]%.c}")
    for ((n = 0; n < 40; n++)); do
        for target in "${targets[@]}"; do
            turn || continue
            (cd "$SPX_ROOT" && timeout 900 "$SPX_BUILD/tests/fuzz/$target" "tests/fuzz/corpus/${target#fuzz_}" $((n + 100 * SEED))) >stdout 2>&1
            status=$?
            if [ $status -eq 0 ]; then ok; else wrong "$target tests/fuzz/corpus/${target#fuzz_} $((n + 100 * SEED)): status $status: $(tail -c 200 stdout)"; fi
        done
    done
}

class options 311 "hostile values of every option"
class_options() {
    local c name value long
    long=$(printf '9%.0s' {1..50000})
    export OMP_NUM_THREADS=1
    for c in "${writers[@]}" "${readers[@]}"; do
        for name in $("${c%% *}" --help=names); do
            case $name in --output | --help | --version | --truth | --psf-output | --plot | --hook | --library | --model) continue ;; esac
            for value in '' 0 -1 1e-30 nan inf 1e400 99999999999999999999 4294967296 0x10 ',' : 1,2,3,4,5,6,7 '%s%n%n' 'a b' / "$long" $'\xff\xfe\n'; do
                turn || continue
                rm -rf in
                eval "set -- $c"
                case $name=$value in # a long computation, and a long stack
                --steps=4294967296 | --length=4294967296) work_is_asked_for=1 ;;
                *) work_is_asked_for=0 ;;
                esac
                [[ " ${readers[*]} " == *" $c "* ]] || set -- "$@" -f -o out
                survives "$* $name=$(printf %q "${value:0:40}")" "$@" "$name=$value"
            done
        done
    done
}

class names 31 "hostile names of inputs and outputs"
class_names() {
    local long name p
    local -a names
    long=$(printf 'l%.0s' {1..252}).h5
    names=('a b' $'new\nline' 'x;touch PWNED' '$(touch PWNED)' '`touch PWNED`' 'x[1:10,1:10]' 'x.fits[IMAGE]' '!bang' 'mem:x' 'x+1'
        'x(copy.fits)' 'shmem:h7' 'stream:x' 'gzip.gz' 'x.Z' 'x.bz2' '-dash' '--output=PWNED' $'\xff\xfe\x80' 'x[pix X*2]' 'exec:touch'
        '@list' '%s%n%n' 'x|y' '~root' 'x*?' "${long:0:255}" 'file:x' 'ftp:x' 'root:x' 'null[compress]' 'x.h5:frame' '.hidden' 'ä ö' '"q"' "'q'" '\b' '&')
    for name in "${names[@]}"; do
        for p in "./$name" "$PWD/dir/$name"; do
            for c in frame psf; do
                turn || continue
                rm -rf dir tmp ./*
                mkdir dir tmp
                local made
                cd dir || return
                if [ $c = frame ]; then
                    h5merge -q "$d/frame-r0.h5" -o "$p" 2>../stderr && h5check "$p" >../stdout 2>&1 && h52fits -q "$p" -o ../tmp/o 2>>../stderr
                else
                    cp "$d/psf-r0.fits" "$p" && fits2h5 -q "$p" -o ../tmp/o.h5 2>../stderr && h52fits -q ../tmp/o.h5 -o ../tmp/o.fits 2>>../stderr &&
                        cmp ../tmp/o.fits "$d/psf-r0.fits"
                fi
                status=$?
                made=$(find . -mindepth 1 -printf x | wc -c)
                cd ..
                if [ $status -ne 0 ] || [ "$made" -ne 1 ] || [ -n "$(find . -name 'PWNED*' ! -path "./dir/$name")" ]; then
                    wrong "$c $(printf %q "$p"): status $status, $made files: $(head -c 200 stderr)"
                else
                    ok
                fi
            done
        done
    done
}
