# PSFs of other kinds than DESI's: from FITS files into /psf, through simulation, shift and extraction, and back.

load common

setup_file() {
    # spots with coma of a camera of 12 fibres, sampled 5 times a pixel
    (cd "$BATS_FILE_TMPDIR" && PATH=$SPX_BUILD/bin:$SPX_BUILD/tests/helpers:$PATH &&
        specx-sim -q --arm r --fibers 12 --sky-fibers 2 --wavelength 6200,6500 --format hdf5 -o plain.h5 &&
        spot_make plain.h5 spots.fits over=5 size=15 disc=1.6 sigma=0.8 &&
        fits2h5 -q spots.fits -o spots.h5)
}

# stars: a list of spectra with lines, every third of them 100 times brighter than its neighbours
stars() {
    local i
    for ((i = 0; i < 12; i++)); do
        awk -v f=$((i % 3 == 1 ? 20000 : 200)) -v at=$((i * 7)) 'BEGIN {
            for (k = 0; k <= 3200; k++) {
                v = 1
                for (l = 0; l < 20; l++) { u = (0.1 * k - 16 * l - at % 16) / 0.8; v *= 1 - 0.4 * exp(-u * u / 2) }
                print 6190 + 0.1 * k, f * v
            }
        }' >star$i
        echo star$i >>list
    done
}

@test "SPOTGRID: a valid block, and the file again" {
    cp "$BATS_FILE_TMPDIR"/{spots.fits,spots.h5} .
    fits2h5 --list spots.fits >list
    grep -q 'SPOTS *image 4 x 5 x 75 x 75 .*-> /psf/spots' list
    h5check spots.h5
    h5check --input spots.h5 | grep -q '/psf: 12 fibres: specx-extract, specx-shift .*, specx-sim --psf'
    [[ $(h5dump -a /psf/psftype spots.h5) == *'"spotgrid"'* ]]
    [[ $(h5dump -a /psf/version spots.h5) == *'"2.1"'* ]]
    h52fits spots.h5 | cmp - spots.fits
    # written from the product: the same spots
    cp spots.h5 bare.h5
    h5edit bare.h5 delete /fits
    h52fits --as psf -o again.fits bare.h5
    fits2h5 -q again.fits -o again.h5
    for d in xtrace ytrace param coeff spots spot_pos spot_wave fibre_pos spot_x spot_y; do
        h5diff spots.h5 again.h5 /psf/$d
    done
    # that of Gauss-Hermite series stays of the version that older programs know
    [[ $(h5dump -a /psf/version "$BATS_FILE_TMPDIR/plain.h5") == *'"1.0"'* ]]
}

@test "SPOTGRID: simulated spots with coma are extracted without bias" {
    local d=$BATS_FILE_TMPDIR
    specx-sim -q --psf "$d/spots.h5" --seed 5 --snr 40:60 --truth truth.h5 --format hdf5 -o sim.h5
    h5check sim.h5
    h5diff sim.h5 "$d/spots.h5" /psf/spots
    specx-extract -q -w 6220,6480,0.8 --variance model sim.h5 -o frame.h5
    h5check frame.h5
    # errors of mean and scatter are 0.018 and 0.013, those of weak bins included
    frame_truth --mean 0.06 --sd 0.05 --corr 0.06 frame.h5 truth.h5
    # any number of threads, and patches, give the same
    specx-extract -q -j 1 -w 6220,6480,0.8 --variance model sim.h5 -o one.h5
    h5diff frame.h5 one.h5 /frame/flux
    specx-extract -q --sub-bundles 1 --wave-pad 32 --method patch -w 6300,6310,0.8 sim.h5 -o patch.h5
    specx-extract -q -w 6300,6310,0.8 sim.h5 -o trace.h5
    h5diff -d 0.02 patch.h5 trace.h5 /frame/flux # of errors of 60; 30 times less with every 8 bins of padding
    # with spots of another kind it is not
    specx-sim -q --arm r --fibers 12 --wavelength 6200,6500 --psf-output psf.fits -o x.fits
    h5edit sim.h5 delete /psf
    fits2h5 -q psf.fits -o psf.h5
    specx-extract -q -w 6220,6480,0.8 --variance model sim.h5 psf.h5 -o wrong.h5
    run ! frame_truth --mean 0.06 --sd 0.05 --corr 0.06 wrong.h5 truth.h5
}

@test "SPOTGRID: traces that have moved are found" {
    local d=$BATS_FILE_TMPDIR
    specx-sim -q --psf "$d/spots.h5" --shift 0.15,-0.1 --seed 6 --snr 60 --format hdf5 -o moved.h5
    specx-shift --psf-only -o shifted.h5 moved.h5 2>report || { cat report; false; }
    cat report
    h5check shifted.h5
    awk '/traces moved by/ { n++; for (i = 1; i < NF; i++) if ($i == "by") x = $(i + 1); bad = x < 0.14 || x > 0.16 } END { exit n != 1 || bad }' report
    h5diff shifted.h5 "$d/spots.h5" /psf/spots
}

@test "SPOTGRID: an array of an even number of pixels lies where specter puts it" {
    spot_make "$BATS_FILE_TMPDIR/plain.h5" even.fits over=3 size=8 disc=0.8
    fits2h5 even.fits -o even.h5 2>&1 | grep -q 'even number of pixels wide: placed half a pixel beyond the trace'
    # 24 sub-pixels of a third: 11.5 - 1.5
    [[ $(h5dump -y -d /psf/spot_x even.h5) == *'10, 10, 10'* ]]
}

@test "SPOTGRID: Gauss-Hermite series fitted to arcs of spots with coma extract stars beside brighter ones" {
    local d=$BATS_FILE_TMPDIR n
    for n in 1 2 3 4 5; do
        specx-sim -q --psf "$d/spots.h5" --arc all --step 0.02 --seed $n --format hdf5 -o arc$n.h5
    done
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o fit.h5 arc1.h5 arc2.h5
    # what is left of the spots, % of their peak: rms in the core, and the largest pixel, of the median spot and the worst
    psf_shapes "$d/spots.h5" fit.h5 6210:6490 | awk '{ exit !($1 < 0.18 && $2 < 0.36 && $3 < 0.36 && $4 < 0.75) }'
    # more terms fit optics that turn better; noise of two arcs is larger than what they gain in the worst spot, of five it is not
    run -0 specx-psf --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o more.h5 arc?.h5
    [[ "$output" == *"spots of bundle 0 are off the usual degrees by 0.1"*" as two halves of the exposures agree: all are fitted with --hermite-degree 8 --hermite-width 0.75 --shape-degree 2,3"* ]]
    psf_shapes "$d/spots.h5" more.h5 6210:6490 | awk '{ exit !($1 < 0.1 && $2 < 0.2 && $3 < 0.2 && $4 < 0.5) }'
    # what errors say of them covers what is left
    psf_covers "$d/spots.h5" more.h5 6210:6490 2,3 | awk '{ exit !($1 < 1.2 * $2 && $5 < 1.2 && $2 < 0.12 && $7 < 1) }'
    # of two arcs residuals do not show it; one half predicts the other better with them: 0.16 and 0.32 with the usual degrees
    for n in 1 2; do
        specx-sim -q --psf "$d/spots.h5" --arc all --step 0.02 --seed 9131$n --format hdf5 -o pair$n.h5
    done
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o pair.h5 pair1.h5 pair2.h5
    # weights whose floor is the one for wings that no series has leave 0.11, 0.18 and 0.55
    psf_shapes "$d/spots.h5" pair.h5 6210:6490 | awk '{ exit !($1 < 0.1 && $3 < 0.17 && $4 < 0.5) }'
    # spots of the degrees that are usual do not: nothing is found, and the same is fitted as where they are given
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 6 -o usual.h5 arc?.h5
    for n in 1 2 3 4 5; do
        specx-sim -q --psf usual.h5 --arc all --step 0.02 --seed $n --format hdf5 -o own$n.h5
    done
    specx-psf -q --reproducible --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o own.h5 own?.h5
    specx-psf -q --reproducible --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 6 -o given.h5 own?.h5
    h5diff own.h5 given.h5 /psf
    stars
    specx-sim -q --psf "$d/spots.h5" --no-sky --cosmics 0 --truth truth.h5 --format hdf5 -o image.h5 list
    specx-extract -q --variance model -w 6230,6480,0.8 image.h5 -o right.h5
    frame_truth --mean 0.06 --sd 0.05 --corr 0.06 right.h5 truth.h5
    h5edit image.h5 delete /psf
    specx-extract -q --variance model -w 6230,6480,0.8 image.h5 fit.h5 -o frame.h5
    frame_truth --mean 0.08 --sd 0.05 --corr 0.06 frame.h5 truth.h5
    # Gaussians of the same widths do not
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 0 -o gauss.h5 arc1.h5 arc2.h5
    specx-extract -q --variance model -w 6230,6480,0.8 image.h5 gauss.h5 -o wrong.h5
    run ! frame_truth --mean 0.08 --sd 0.05 --corr 0.06 wrong.h5 truth.h5
}

@test "SPOTGRID: a second core within spots is fitted, one beyond them is named and flagged" {
    local d=$BATS_FILE_TMPDIR
    spot_make "$d/plain.h5" two.fits over=5 size=29 disc=1.6 sigma=0.8 ghost=0.3 apart=2
    fits2h5 -q two.fits -o two.h5
    specx-sim -q --psf two.h5 --arc all --step 0.02 --seed 51 --format hdf5 -o arc.h5
    run -0 specx-psf --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o fit.h5 arc.h5
    [[ "$output" == *"spots of bundle 0 are off the fit by "*" with the usual degrees"* && "$output" != *"once more"* ]]
    psf_shapes two.h5 fit.h5 6210:6490 | awk '{ print; exit !($1 < 0.3 && $4 < 1.3) }'
    spot_make "$d/plain.h5" far.fits over=5 size=29 disc=1.6 sigma=0.8 ghost=0.04 apart=9
    fits2h5 -q far.fits -o far.h5
    specx-sim -q --psf far.h5 --arc all --step 0.02 --seed 51 --format hdf5 -o ghost.h5
    run -0 specx-psf --start "$d/plain.h5" --bundle-size 12 -o fit-ghost.h5 ghost.h5
    echo "$output"
    [[ "$output" =~ \ ([0-9]+)\ of\ ([0-9]+)\ lines\ have\ (3\.[5-9]|4|4\.[0-5])\ %\ of\ their\ light\ once\ more\ \+(8\.9|9\.0|9\.1)\ rows\ away ]]
    [ "${BASH_REMATCH[1]}" -ge 4 ]
    h5table -q --csv -c STATUS -t /psffit/fibre fit-ghost.h5 | awk 'NR > 1 && int($1 / 8) % 2 == 0 { bad = 1 } END { exit bad }'
}

@test "SPOTGRID: Gauss-Hermite series fitted to spots of charge from all depths of a detector" {
    local d=$BATS_FILE_TMPDIR n
    # wavelengths of the array so near that spots have no kinks between them, which no detector makes
    spot_make "$d/plain.h5" deep.fits over=7 size=15 coma=0 turn=0 disc=1.6 sigma=1 depth=0.4 nwave=17
    fits2h5 -q deep.fits -o deep.h5
    for n in 1 2; do
        specx-sim -q --psf deep.h5 --arc all --step 0.02 --seed $n --format hdf5 -o arc$n.h5
    done
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o fit.h5 arc1.h5 arc2.h5
    psf_shapes deep.h5 fit.h5 6210:6490 | awk '{ exit !($1 < 0.14 && $2 < 0.26 && $3 < 0.29 && $4 < 0.7) }'
    stars
    specx-sim -q --psf deep.h5 --no-sky --cosmics 0 --truth truth.h5 --format hdf5 -o image.h5 list
    h5edit image.h5 delete /psf
    specx-extract -q --variance model -w 6230,6480,0.8 image.h5 fit.h5 -o frame.h5
    frame_truth --mean 0.08 --sd 0.05 --corr 0.06 frame.h5 truth.h5
    # with the spots of the start it is not so
    cp "$d/plain.h5" start.h5
    h5edit start.h5 delete /image
    specx-extract -q --variance model -w 6230,6480,0.8 image.h5 start.h5 -o wrong.h5
    run ! frame_truth --mean 0.08 --sd 0.05 --corr 0.06 wrong.h5 truth.h5
}

@test "SPOTGRID: wings that no Gauss-Hermite series has do not move its core, however bright lines are" {
    local d=$BATS_FILE_TMPDIR n level
    spot_make "$d/plain.h5" moffat.fits over=7 size=15 moffat=1.05 nwave=17
    fits2h5 -q moffat.fits -o moffat.h5
    for level in 1e5 2e6; do
        for n in 1 2 3; do
            specx-sim -q --psf moffat.h5 --arc all --step 0.02 --lamp-level $level --fullwell 1e9 --seed $n --format hdf5 -f -o arc$n.h5
        done
        specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 8 --hermite-width 0.75 -f -o fit.h5 arc?.h5
        psf_shapes moffat.h5 fit.h5 6210:6490 | awk '{ exit !($1 < 0.11 && $4 < 0.6) }' # by photons alone 0.2, 0.9 and 0.55, 2.1
    done
}

@test "SPOTGRID: a faint line in a bright one's wings does not make an arc no arc" {
    local d=$BATS_FILE_TMPDIR n
    spot_make "$d/plain.h5" moffat.fits over=7 size=15 moffat=1.05 nwave=17
    fits2h5 -q moffat.fits -o moffat.h5
    for n in 9334 9335; do
        specx-sim -q --psf moffat.h5 --arc all --step 0.02 --lamp-level 2e6 --fullwell 1e9 --seed $n --format hdf5 -f -o arc$n.h5
    done
    # the usual degrees put 6333 Angstrom, beside 6336, a pixel off: 9 of 12 lines were said not to be where they should be
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o fit.h5 arc9334.h5 arc9335.h5
    psf_shapes moffat.h5 fit.h5 6210:6490 | awk '{ exit !($1 < 0.08 && $4 < 0.45) }'
}

@test "SPOTGRID: images of fibres with edges are fitted by narrow functions, which are taken where none are given" {
    local d=$BATS_FILE_TMPDIR n
    spot_make "$d/plain.h5" disc.fits over=7 size=15 coma=0 turn=0 disc=1.6 sigma=0.5 nwave=17
    fits2h5 -q disc.fits -o disc.h5
    for n in 1 2; do
        specx-sim -q --psf disc.h5 --arc all --step 0.02 --seed $n --format hdf5 -o arc$n.h5
    done
    # bright spots of one line have one level, and flat tops: nothing is saturated
    for n in 9111 9121; do
        specx-sim -q --psf disc.h5 --arc all --step 0.02 --seed $n --format hdf5 -o flat$n.h5
        run -0 specx-psf --start "$d/plain.h5" --bundle-size 12 --hermite-degree 4 -o none$n.h5 flat$n.h5
        [[ "$output" != *ceiling* ]]
    done
    # as wide as Gaussians, functions of the same degree are 5 times farther off
    specx-psf -q --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 6 -o wide.h5 arc1.h5 arc2.h5
    psf_shapes disc.h5 wide.h5 6210:6490 | awk '{ exit !($1 > 0.5 && $4 > 3) }'
    run -0 specx-psf --reproducible --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 -o fit.h5 arc1.h5 arc2.h5
    [[ "$output" == *"all are fitted with --hermite-degree 8 --hermite-width 0.75 --shape-degree 1,2, which leave 0.1"* ]]
    h5table --provenance fit.h5 | grep -q 'degrees=8; 1,2; width 0.75'
    psf_shapes disc.h5 fit.h5 6210:6490 | awk '{ exit !($1 < 0.18 && $2 < 0.34 && $3 < 0.38 && $4 < 1) }'
    specx-psf -q --reproducible --start "$d/plain.h5" --bundle-size 12 --hsize 8,7 --hermite-degree 8 --hermite-width 0.75 -o given.h5 arc1.h5 arc2.h5
    h5diff fit.h5 given.h5 /psf
    # of the next night: widths are those of spots already, and become no narrower
    specx-psf -q --start fit.h5 --bundle-size 12 --hsize 8,7 --hermite-degree 8 --hermite-width 0.75 -o next.h5 arc1.h5 arc2.h5
    psf_shapes fit.h5 next.h5 6210:6490 | awk '{ exit !($1 < 0.03 && $4 < 0.3) }'
    specx-psf -q --start fit.h5 --bundle-size 12 --hsize 8,7 --fix shape -o today.h5 arc1.h5
    h5diff fit.h5 today.h5 /psf/coeff
    fails_with 2 '*hermite-width*' specx-psf --start fit.h5 --hermite-width 0.3 -o no.h5 arc1.h5
    fails_with 2 '*contradict*' specx-psf --start fit.h5 --hermite-width 0.8 --fix shape -o no.h5 arc1.h5
}

@test "SPOTGRID: a start of specx-psf, with Gaussians as wide" {
    local d=$BATS_FILE_TMPDIR
    specx-sim -q --psf "$d/spots.h5" --arc Ne,Kr --shift 0.3,-0.4 --noise-seed 1 --format hdf5 -o arc.h5
    run -0 specx-psf --start "$d/spots.h5" --trace-degree 4 --bundle-size 12 --hermite-degree 6 -o fit.h5 arc.h5
    [[ "$output" == *"spots of this kind (spotgrid) are nothing that is fitted: begins with Gaussians as wide"* ]]
    [[ "$output" == *"12 of 12 fibres fitted"* ]]
    h5check fit.h5
    # as from a Gauss-Hermite PSF with the same traces
    specx-psf -q --start "$d/plain.h5" --trace-degree 4 --bundle-size 12 --hermite-degree 6 --hsize 8,7 -o other.h5 arc.h5
    specx-psf -q --start "$d/spots.h5" --trace-degree 4 --bundle-size 12 --hermite-degree 6 --hsize 8,7 -f -o fit.h5 arc.h5
    h5diff -d 0.002 fit.h5 other.h5 /psf/ytrace
    h5diff -d 0.002 fit.h5 other.h5 /psf/xtrace
    # a shape that stays has to be one that is fitted
    fails_with 3 '*spotgrid) are nothing that the fit of PSFs can take: fit the shape, too, which begins with Gaussians then' \
        specx-psf --start "$d/spots.h5" --fix shape --trace-degree 4 --bundle-size 12 -o no.h5 arc.h5
}

@test "NevenPsf of PFS: spots of each fibre, drawn and extracted as a grid of the same" {
    local d=$BATS_FILE_TMPDIR each
    for each in 1 2; do # of all wavelengths, and some of two alone
        spot_make "$d/plain.h5" grid.fits over=5 size=11 disc=1.2 nwave=4 each=$each
        spot_make "$d/plain.h5" neven.fits over=5 size=11 disc=1.2 nwave=4 each=$each neven=1
        fits2h5 -q -f grid.fits -o grid.h5
        fits2h5 -f neven.fits -o neven.h5 2>notes
        h5check neven.h5
        [[ $(cat notes) == *"neven.fits: traces as Legendre series"* ]]
        # in a grid of specter's, arrays lie by their middle, here by the centroid of their light
        h5edit grid.h5 delete /psf/spot_x delete /psf/spot_y delete /fits
        [[ $(h5dump -y -d /psf/fibre neven.h5) == *'300, 303, 306'* ]]
        # lines of up to 18 000 electrons a pixel
        specx-sim -q --psf grid.h5 --arc all --step 0.01 --wavelength 6210,6490 --no-noise --cosmics 0 --format hdf5 -f -o grid-arc.h5
        specx-sim -q --psf neven.h5 --arc all --step 0.01 --wavelength 6210,6490 --no-noise --cosmics 0 --format hdf5 -f -o neven-arc.h5
        h5diff -d 0.1 grid-arc.h5 neven-arc.h5 /image/data
        h52fits neven.h5 | cmp - neven.fits
        mv neven.h5 each$each.h5
    done
    specx-sim -q --psf each1.h5 --arc all --step 0.01 --wavelength 6210,6490 --no-noise --cosmics 0 --format hdf5 -f -o grid-arc.h5
    run ! h5diff -d 10 grid-arc.h5 neven-arc.h5 /image/data
    mv each2.h5 neven.h5
    stars
    specx-sim -q --psf grid.h5 --no-sky --cosmics 0 --format hdf5 -o image.h5 list
    h5edit image.h5 delete /psf
    for each in grid neven; do
        specx-extract -q --variance model -w 6230,6480,0.8 image.h5 $each.h5 -o frame-$each.h5
    done
    h5diff -d 0.02 frame-grid.h5 frame-neven.h5 /frame/flux
}

@test "NevenPsf of PFS: with a detectorMap in a file of its own, and what is broken" {
    local d=$BATS_FILE_TMPDIR kind says=(none none '*not finite*' '*two spots of fibre 3*' '*image 7*should be 44 x 45*'
        '*object 2, a SplinedDetectorMap*from 9*' '*no object 3*NevenPsfImages*')
    spot_make "$d/plain.h5" neven.fits over=5 size=9 nwave=3 each=1 neven=2
    fails_with 3 '*traces are a LayeredDetectorMap*pfsDetectorMap*' fits2h5 neven.fits -o no.h5
    trace_make map map.fits layers=1
    fits2h5 -q map.fits -o map.h5
    fits2h5 -q map.fits neven.fits -o both.h5
    h5check both.h5
    h5diff map.h5 both.h5 /psf/xtrace
    h5diff map.h5 both.h5 /psf/ytrace
    h52fits --file neven.fits both.h5 | cmp - neven.fits
    for kind in 2 3 4 5 6; do
        spot_make "$d/plain.h5" bad.fits over=5 size=9 nwave=3 each=1 neven=1 break=$kind
        fails_with 3 "${says[kind]}" fits2h5 bad.fits -o no.h5
        [ ! -e no.h5 ]
    done
}

@test "SPOTGRID: what is broken is refused, with its place" {
    local kind says=(none '*sums up to 0*' '*not finite*' '*wavelength 1*increase*' '*FIBERPOS*11 values instead of 12*'
        '*CCDPIXSZ*whole number*' '*HDU SPOTS is missing*')
    for kind in 1 2 3 4 5 6; do
        spot_make "$BATS_FILE_TMPDIR/plain.h5" bad.fits over=3 size=5 npos=2 nwave=2 break=$kind
        fails_with 3 "${says[kind]}" fits2h5 bad.fits -o bad.h5
        [ ! -e bad.h5 ]
        fails_with 3 "${says[kind]}" specx-sim --psf bad.fits -o bad.h5
    done
    # edited by others
    cp "$BATS_FILE_TMPDIR/spots.h5" bad.h5
    h5edit bad.h5 delete /psf/spot_x
    fails_with 3 '*spot_x*' specx-sim --psf bad.h5 -o no.h5
    h5edit bad.h5 delete /psf/spots
    fails_with 3 '*/psf/spots*missing*' specx-sim --psf bad.h5 -o no.h5
    # the centroid, where no place is given, which specter would put elsewhere
    spot_make "$BATS_FILE_TMPDIR/plain.h5" even.fits over=3 size=8 disc=0.8
    fits2h5 -q even.fits -o centroid.h5
    h5edit centroid.h5 delete /psf/spot_x delete /psf/spot_y delete /fits
    h5check centroid.h5
    fails_with 3 '*elsewhere*' h52fits --as psf centroid.h5 -o no.fits
    # lamps are fitted with Gauss-Hermite series, and a shape that is to stay is one
    specx-sim -q --psf "$BATS_FILE_TMPDIR/spots.h5" --arc Ne --format hdf5 -o arc.h5
    fails_with 3 '*spotgrid*the fit of PSFs*' specx-psf --fix shape --start arc.h5 arc.h5 -o no.h5
}

# sets FILE... : the PSF of trace sets in sets.h5, with its notes in notes.
sets() {
    fits2h5 -f "$@" -o sets.h5 2>notes
    h5check sets.h5
}

@test "trace sets of SDSS: rows, columns and widths to 1e-4 pixel" {
    local func
    for func in 0 1 2; do # legendre, chebyshev, poly
        trace_make flat flat.fits func=$func
        trace_make arc arc.fits func=$func
        sets flat.fits arc.fits
        trace_make check sets sets.h5 1e-4 func=$func
        grep -q 'Legendre series of degree .* in wavelength, to .* pixel' notes
        [ "$(wc -l <notes)" -eq 1 ]
    done
    cp sets.h5 first.h5
    cp flat.fits kept.fits
    # either first; without EXTNAME, as older files are; all in one file
    sets arc.fits flat.fits
    h5diff sets.h5 first.h5 /psf/coeff
    trace_make flat flat.fits func=2 names=0
    trace_make arc arc.fits func=2 names=0
    sets flat.fits arc.fits
    h5diff sets.h5 first.h5 /psf/ytrace
    trace_make both both.fits func=2
    sets both.fits
    h5diff sets.h5 first.h5 /psf/xtrace
    [[ $(h5dump -a /psf/camera sets.h5) == *'"b1"'* ]]
    [[ $(h5dump -a /psf/version sets.h5) == *'"1.0"'* ]]
    # both files come back
    h52fits --file flat.fits first.h5 | cmp - kept.fits
    # fibres whose ranges differ have ranges of their own
    trace_make both both.fits apart=30
    sets both.fits
    trace_make check sets sets.h5 1e-4 apart=30 | grep -q 'ranges of their own'
}

@test "trace sets of SDSS: drawn, and extracted without bias" {
    trace_make both both.fits func=1
    sets both.fits
    psf_edit sets.h5 size 110 1200
    specx-sim -q --psf sets.h5 --seed 5 --snr 40:60 --truth truth.h5 --format hdf5 -o sim.h5
    specx-extract -q --variance model -w 6100,6500,0.8 sim.h5 -o frame.h5
    frame_truth --mean 0.05 --sd 0.04 --corr 0.05 frame.h5 truth.h5
}

@test "trace sets of SDSS: rows that jump make two traces of each fibre" {
    trace_make both both.fits jump=0.3333
    sets both.fits
    trace_make check sets sets.h5 1e-4 jump=0.3333 | grep -q '^24 traces, ranges of their own'
    grep -q 'jump by 0.333 pixel between 598.5 and 600.5 (XJUMPVAL): each of 12 fibres is two traces' notes
    [[ $(h5dump -y -d /psf/order sets.h5) == *'1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2'* ]]
    psf_edit sets.h5 size 110 1200
    specx-sim -q --psf sets.h5 --seed 5 --snr 40:60 --truth truth.h5 --format hdf5 -o sim.h5
    specx-extract -q --variance model -w 6100,6500,0.8 sim.h5 -o frame.h5
    frame_truth --mean 0.05 --sd 0.04 --corr 0.05 frame.h5 truth.h5
}

@test "traces of APOGEE: apPSF with apWave, rows and columns to 1e-4 pixel" {
    trace_make apogee appsf.fits
    trace_make apwave apwave.fits
    fits2h5 apwave.fits appsf.fits -o ap.h5 2>notes
    h5check ap.h5
    trace_make check apogee ap.h5 1e-4
    grep -q 'run along rows, here along columns: swap the axes of images' notes
    h52fits --file appsf.fits ap.h5 | cmp - appsf.fits
    h52fits --file apwave.fits ap.h5 | cmp - apwave.fits
    fails_with 3 '*without their wavelengths*apWave*' fits2h5 appsf.fits -o bad.h5
    trace_make apwave bad.fits break=4
    fails_with 3 '*12 traces, 12 widths, wavelengths of 11 fibres*' fits2h5 appsf.fits bad.fits -o bad.h5
    trace_make apogee bad.fits break=1
    fails_with 3 '*FUNC is none of*' fits2h5 bad.fits apwave.fits -o bad.h5
}

@test "detectorMap of PFS: splines as series, to 1e-4 pixel" {
    trace_make map map.fits
    fits2h5 map.fits -o map.h5 2>notes
    h5check map.h5
    trace_make check map map.h5 1e-4
    grep -q 'has no widths of spots: Gaussians of 1.4 pixel, for specx-psf --start' notes
    [[ $(h5dump -y -d /psf/fibre map.h5) == *'300, 303, 306'* ]]
    h52fits map.h5 | cmp - map.fits
}

# values FILE DATASET: all of them, in a row.
values() {
    h5dump -y -d "$2" "$1" | awk '/DATA \{/ { on = 1; next } on && /\}/ { exit } on' | tr -d ' \n'
}

@test "detectorMap of PFS: layers of offsets, distortions and two CCDs, to 1e-4 pixel" {
    trace_make map map.fits layers=1
    fits2h5 map.fits -o map.h5 2>notes
    h5check map.h5
    trace_make check map map.h5 1e-4 layers=1
    run ! trace_make check map map.h5 0.1
    h52fits map.h5 | cmp - map.fits
    # another class: distortions of other kinds, one after another
    trace_make map map.fits layers=2
    fits2h5 -q map.fits -f -o map.h5
    trace_make check map map.h5 1e-4 layers=2
    run ! trace_make check map map.h5 0.1
    # classes of before, of one distortion: DoubleDetectorMap, and DistortedDetectorMap, whose right CCD has a map of pixels
    local n
    for n in 3 4; do
        trace_make map map.fits layers=$n
        fits2h5 -q map.fits -f -o map.h5
        trace_make check map map.h5 1e-4 layers=$n
        run ! trace_make check map map.h5 0.1
        h52fits map.h5 | cmp - map.fits
    done
    trace_make map bad.fits layers=4 break=9
    fails_with 3 '*RIGHTCCD*5 coefficients instead of 6*' fits2h5 bad.fits -o bad.h5
    trace_make map bad.fits layers=1 break=9
    fails_with 3 '*PolynomialDistortion_0*10 coefficients: ORDER is 2*' fits2h5 bad.fits -o bad.h5
    trace_make map bad.fits layers=1 break=10
    fails_with 3 '*LAYERS*not finite*' fits2h5 bad.fits -o bad.h5
}

@test "traces of DESI without spots: widths in Angstrom become pixels, a start of specx-psf" {
    trace_make desi desi.fits
    fits2h5 desi.fits -o desi.h5 2>notes
    h5check desi.h5
    [[ $(values desi.h5 /psf/xtrace) == 10,2,17.3,2,24.6,2,* ]]
    [[ $(values desi.h5 /psf/ytrace) == 599.5,590,59,599.5,* ]]
    # sigma of 0.55 Angstrom times dy/dlambda = 2 + 0.6 P_1; fibre 5, whose width is below 0, has the others'
    values desi.h5 /psf/coeff >coeff
    # across: 1.05, along: 1.1 + 0.33 P_1, of terms that are rounding from the third on
    awk -F, '{ for (f = 0; f < 12; f++) {
        if ($(4 * f + 1) != 1.05 || $(48 + 4 * f + 1) < 1.0999 || $(48 + 4 * f + 1) > 1.1001 || $(48 + 4 * f + 2) < 0.3299 ||
            $(48 + 4 * f + 2) > 0.3301 || $(48 + 4 * f + 3) > 1e-9 || $(96 + 4 * f + 1) != 1) exit 1 } }' coeff
    grep -q '1 of 12 traces, 5 the first, have no width in y that can be: they get that of the median trace' notes
    h52fits desi.h5 | cmp - desi.fits
    # newer files have series, pixels; without any spots are Gaussians to begin with
    trace_make desi desi.fits width=1
    fits2h5 -f desi.fits -o desi.h5
    [[ $(values desi.h5 /psf/coeff) == 1.1,0.1,1.1,0.1,*1.2,-0.1,1.2,-0.1,* ]]
    trace_make desi desi.fits width=2
    fits2h5 -f desi.fits -o desi.h5 2>notes
    [ "$(grep -c 'has no widths of spots in [xy]: Gaussians of 1.4 pixel, for specx-psf --start' notes)" -eq 2 ]
    psf_edit desi.h5 size 110 1200
    specx-sim -q --psf desi.h5 --arc Ne,Kr --shift 0.4,-0.6 --format hdf5 -o arc.h5
    specx-psf --start desi.fits --trace-degree 4 --bundle-size 12 arc.h5 -o psf.h5 2>said
    grep -q '12 of 12 fibres fitted' said
    h5table -q --csv -c XSHIFT,YSHIFT -t /psffit/fibre psf.h5 | awk -F, 'NR > 1 { n++
        if ($1 < 0.35 || $1 > 0.45 || $2 < -0.65 || $2 > -0.55) exit bad = 1 } END { exit bad || n != 12 }'
    local kind says=(none none '*a coefficient of fibre 1 is not finite*' none '*YTRACE*11 traces*12*' '*no trace has widths in x above 0*')
    for kind in 2 4 5; do
        trace_make desi bad.fits break=$kind
        fails_with 3 "${says[kind]}" fits2h5 bad.fits -o bad.h5
    done
    trace_make desi bad.fits break=1
    fits2h5 -q bad.fits -o kept.h5
    run ! h5ls kept.h5/psf
}

@test "trace sets and detectorMaps: what is broken is refused, with its place" {
    local kind says=(none '*FUNC is none of legendre, chebyshev and poly*' '*DISPSET*not finite*' '*neither rises nor falls*'
        '*TSET*12 traces, WSET*11*' '*trace 3 has a width of -0.138*' '*CENTER: knot 3*row 40*'
        '*column of trace 0*differs by 0.329 pixel*degree 12*')
    for kind in 1 2 3 4 5; do
        trace_make both bad.fits break=$kind
        fails_with 3 "${says[kind]}" fits2h5 bad.fits -o bad.h5
    done
    for kind in 6 7; do
        trace_make map bad.fits break=$kind
        fails_with 3 "${says[kind]}" fits2h5 bad.fits -o bad.h5
    done
    # distortions are not ignored
    trace_make map bad.fits break=8
    fits2h5 bad.fits -o kept.h5 2>notes
    grep -q 'detectorMap with distortions.*kept as FITS HDUs only' notes
    run ! h5ls kept.h5/psf
    trace_make arc arc.fits
    fails_with 3 '*no trace set TSET*spFlat and spArc*' fits2h5 arc.fits -o bad.h5
    fails_with 3 '*no trace set TSET*' specx-sim --psf arc.fits -o bad.h5
    fits2h5 -q --generic arc.fits -o generic.h5
}
