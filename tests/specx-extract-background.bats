# specx-extract --background; accuracy: kernels/test_extract_background.c.
load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$SPX_BUILD/tests/helpers:$PATH
    specx-sim -q --arm r --fibers 12 --wavelength 6300,6700 --mag 17:18 --bundles 2x6 --format hdf5 --truth truth.h5 -o plain.h5
    cp plain.h5 light.h5
    h5edit light.h5 hill /image/data 8
}

grid() {
    specx-extract -q -w 6310,6690,0.8 "$@"
}

@test "--background: takes scattered light off, and says how much" {
    grid --background 256 -m -o with.h5 "$BATS_FILE_TMPDIR/light.h5"
    h5check with.h5
    h5table --provenance with.h5 >provenance
    awk -F= '/background_mean=/ { split($2, v, " "); exit !(v[1] > 5 && v[1] < 8) }' <(tr ' ' '\n' <provenance)
    grep -q 'background_unknowns=' provenance
    h5ls with.h5/frame | grep -q '^background  *Dataset {12, 476}'
    frame_truth --mean 0.1 with.h5 "$BATS_FILE_TMPDIR/truth.h5"
    grid -o without.h5 "$BATS_FILE_TMPDIR/light.h5"
    run frame_truth --mean 0.1 without.h5 "$BATS_FILE_TMPDIR/truth.h5"
    [ "$status" = 1 ]
    run ! h5ls -q without.h5/frame/background
    # spectra without scattered light: what is found is within its error
    grid --background 256 -o none.h5 "$BATS_FILE_TMPDIR/plain.h5"
    frame_truth --mean 0.1 none.h5 "$BATS_FILE_TMPDIR/truth.h5"
}

@test "--background 0: the frame that there is without the option" {
    grid --reproducible -o a.h5 "$BATS_FILE_TMPDIR/light.h5"
    grid --background 0 --reproducible -o b.h5 "$BATS_FILE_TMPDIR/light.h5"
    h5diff a.h5 b.h5 /frame
}

@test "--background: the same bits for any number of threads, and of a subset; another reader keeps it" {
    local in=$BATS_FILE_TMPDIR/light.h5
    grid --background 256 -j 1 -o one.h5 "$in"
    grid --background 256 -j 2 -o two.h5 "$in"
    h5diff one.h5 two.h5 /frame
    grid --background 256 -s 5:7 -o some.h5 "$in"
    h5table --csv -t /scores -c TARGETID,SUM_RAW_COUNT_R some.h5 >some
    h5table --csv -t /scores -c TARGETID,SUM_RAW_COUNT_R one.h5 | sed -n '1p;7,8p' >all
    cmp some all
    h52fits one.h5 -o one.fits
}

@test "--background: what makes no sense is refused" {
    fails_with 2 '*--background 20*64 pixels*' specx-extract --background 20 -w 6310,6690,0.8 -o out.h5 "$BATS_FILE_TMPDIR/light.h5"
    fails_with 2 '*--background*' specx-extract --background -5 -o out.h5 "$BATS_FILE_TMPDIR/light.h5"
    fails_with 2 '*background*--method trace*' specx-extract --method patch --background 256 -w 6310,6690,0.8 -o out.h5 \
        "$BATS_FILE_TMPDIR/light.h5"
}
