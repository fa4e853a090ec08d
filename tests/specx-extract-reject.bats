# specx-extract --reject and --variance: simulated hits that nobody has flagged, against what was put in.

load common

setup_file() {
    (cd "$BATS_FILE_TMPDIR" && PATH=$SPX_BUILD/bin:$PATH &&
        specx-sim -q --arm r --fibers 25 --wavelength 6200,6400 --cosmics 200 --no-flag-cosmics --seed 3 --format hdf5 \
            --truth truth.h5 -o hit.h5 &&
        specx-sim -q --arm r --fibers 25 --wavelength 6200,6400 --cosmics 0 --seed 3 --format hdf5 -o clean.h5)
}

grid=6210,6390,0.8

# recorded FILE NAME: a number of the provenance
recorded() {
    h5table --provenance "$1" | grep -o "$2=[0-9]*" | cut -d= -f2
}

# has FILE PATH
has() {
    h5ls -r "$1" | grep -q "^$2 "
}

# hit_bins FRAME TRUTH: number, mean, standard deviation and worst pull of bins with masked pixels
hit_bins() {
    frame_truth "$1" "$2" | awk '$1 == "hit" { print $2, $5, $9, $13 }'
}

@test "--reject: fluxes of bins that were hit are right" {
    cd "$BATS_FILE_TMPDIR"
    specx-extract -q --precision double -w $grid --reject 5 -o "$BATS_TEST_TMPDIR/f.h5" hit.h5
    specx-extract -q --precision double -w $grid -o "$BATS_TEST_TMPDIR/all.h5" hit.h5
    cd "$BATS_TEST_TMPDIR"
    h5check f.h5
    # without it, pulls are far beyond any noise
    frame_truth all.h5 "$BATS_FILE_TMPDIR/truth.h5" | awk '$1 == "clean" { exit !($9 > 10 && $15 > 100) }'
    # some 500 bins: mean and standard deviation to three errors, 0.13 and 0.09; no bin beyond 5 sigma
    hit_bins f.h5 "$BATS_FILE_TMPDIR/truth.h5" >hit
    awk '{ bad = !($1 > 300 && $2 > -0.2 && $2 < 0.2 && $3 > 0.85 && $3 < 1.15 && $4 < 5) } END { exit bad }' hit
    frame_truth --mean 0.05 --sd 0.05 --corr 0.05 f.h5 "$BATS_FILE_TMPDIR/truth.h5"
    # the pixels are listed and counted
    local n
    n=$(recorded f.h5 pixels_rejected)
    [ "$n" -gt 500 ]
    [[ $(h5ls f.h5/frame) == *"cosmic_pixels            Dataset {$n, 2}"* ]]
    [ "$(recorded f.h5 bins_cosmic)" -gt 50 ]
    run ! has all.h5 /frame/cosmic_pixels
    [ -z "$(recorded all.h5 pixels_rejected)" ]
}

@test "--reject: an image without hits gives the same frame, also with a PSF that is wrong" {
    cd "$BATS_FILE_TMPDIR"
    local d=$BATS_TEST_TMPDIR
    specx-extract -q --reproducible -w $grid -o "$d/plain.h5" clean.h5
    specx-extract -q --reproducible -w $grid --reject 5 -o "$d/reject.h5" clean.h5
    h5diff "$d/plain.h5" "$d/reject.h5" /frame /frame
    run ! has "$d/reject.h5" /frame/cosmic_pixels
    [ "$(recorded "$d/reject.h5" pixels_rejected)" = 0 ]
    # 0.05 pixel and 1 % of the width, in the brightest sky lines
    cd "$d"
    specx-sim -q --arm z --fibers 25 --wavelength 8750,8900 --cosmics 0 --shift wave --format hdf5 -o wrong.h5
    specx-extract -q --reject 5 -o wrong-frame.h5 wrong.h5
    [ "$(recorded wrong-frame.h5 pixels_rejected)" = 0 ]
}

@test "--reject: the same for any number of threads, in a queue, through a pipe, of a subset" {
    cd "$BATS_FILE_TMPDIR"
    local d=$BATS_TEST_TMPDIR
    specx-extract -q --reproducible -j 1 -w $grid --reject 5 -o "$d/one.h5" hit.h5
    specx-extract -q --reproducible -j 3 -w $grid --reject 5 <hit.h5 >"$d/three.h5"
    h5diff "$d/one.h5" "$d/three.h5" /frame /frame
    mkdir "$d/queue"
    specx-extract -q -w $grid --reject 5 -o "$d/queue/" clean.h5 hit.h5
    h5diff "$d/one.h5" "$d/queue/hit.h5" /frame /frame
    specx-extract -q -w $grid -s 3:6 --reject 5 -o "$d/three-fibres.h5" hit.h5
    h5diff "$d/one.h5" "$d/three-fibres.h5" /frame/cosmic_pixels
    h5dump -d /frame/flux -s 3,0 -c 3,225 -b -o "$d/a" "$d/one.h5"
    h5dump -d /frame/flux -s 0,0 -c 3,225 -b -o "$d/b" "$d/three-fibres.h5"
    cmp "$d/a" "$d/b"
}

@test "--reject: damaged images" {
    cp "$BATS_FILE_TMPDIR/hit.h5" nan.h5
    h5edit nan.h5 set /image/data 1000 nan
    h5edit nan.h5 set /image/ivar 2000 0
    specx-extract -q -w $grid --reject 5 -o nan-frame.h5 nan.h5
    h5check nan-frame.h5
    # bins narrower than the PSF
    specx-extract -q -w 6250,6300,0.35 -s 0:5 --bundle-size 5 --reject 5 -o narrow.h5 nan.h5
    h5check narrow.h5
}

@test "--variance model: faint spectra have no bias" {
    specx-sim -q --arm r --fibers 25 --wavelength 6200,6700 --no-sky --mag 23.3:23.6 --cosmics 0 --ivar data \
        --format hdf5 --truth t.h5 -o faint.h5
    local v
    for v in data model; do
        specx-extract -q --precision double -w 6200,6700,0.8 --variance $v -o $v.h5 faint.h5
        frame_truth $v.h5 t.h5 | awk '$1 == "clean" { print $5 }' >$v
    done
    # -0.3 of the error; with the model 0 within 3 errors of the mean of 15 000 bins, 0.008, and 0.01 that is allowed
    awk '{ exit !($1 < -0.2) }' data
    awk '{ exit !($1 > -0.034 && $1 < 0.034) }' model
    specx-extract -q --variance model --reject 5 -w 6200,6700,0.8 -o both.h5 faint.h5
    h5check both.h5
    [ "$(recorded both.h5 pixels_rejected)" -le 5 ]
}

@test "--reject and --variance: refusals" {
    local image=$BATS_FILE_TMPDIR/hit.h5
    fails_with 2 '*patches neither reject cosmic-ray hits nor make a variance: use --method trace' \
        specx-extract --method patch --reject 5 -o x.h5 "$image"
    fails_with 2 '*--reject*' specx-extract --reject -1 -o x.h5 "$image"
    fails_with 2 '*--reject*' specx-extract --reject nan -o x.h5 "$image"
    fails_with 2 '*--variance*' specx-extract --variance noise -o x.h5 "$image"
    cp "$image" bare.h5
    h5edit bare.h5 delete /image/readnoise
    fails_with 3 '*/image/readnoise*--variance data*' specx-extract --variance model -o x.h5 bare.h5
}
