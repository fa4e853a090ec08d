# specx-extract: against a reference extraction, through pipes, and refusals.

load common

setup_file() {
    # 8 fibres and 80 Angstrom: enough for several groups and patches, small enough for seconds.
    (cd "$BATS_FILE_TMPDIR" &&
        "$SPX_BUILD/bin/specx-sim" -q --arm r --fibers 8 --sky-fibers 2 --wavelength 6400,6480 --format hdf5 -o image.h5 &&
        "$SPX_BUILD/bin/specx-sim" -q --seed 2 --arm r --fibers 8 --sky-fibers 2 --wavelength 6400,6480 --format hdf5 \
            -o image2.h5)
}

# three_images: a.h5, b.h5, c.h5 with their frames one by one in one-a.h5, ...; b-image.h5 without PSF, psf.h5 alone.
three_images() {
    local n
    cp "$BATS_FILE_TMPDIR/image.h5" a.h5
    cp "$BATS_FILE_TMPDIR/image2.h5" b.h5
    damage c.h5 set /image/data 1000 12345
    for n in a b c; do specx-extract -w $grid -m -o one-$n.h5 $n.h5; done
    cp b.h5 b-image.h5
    h5edit b-image.h5 delete /psf
    damage psf.h5 delete /image delete /fibermap
}

# {a,b,c}-image.h5: images without their PSFs; alone-{a,b,c}.h5: the frames of each, as out-{a,b,c}.h5 from a pipe.
images_alone() {
    local n
    for n in a b c; do
        cp $n.h5 $n-image.h5
        h5edit $n-image.h5 delete /psf
        # shellcheck disable=SC2002
        cat $n-image.h5 | specx-extract --reproducible -w $grid -f -o out-$n.h5 psf.h5 -
        mv out-$n.h5 alone-$n.h5
    done
}

# damage NAME COMMAND...: copy of the small image with these changes (h5edit).
damage() {
    cp "$BATS_FILE_TMPDIR/image.h5" "$1" && h5edit "$@"
}

grid=6410,6470,0.8

@test "reference extraction, through a pipe" {
    need_shared data/extract/{reference-r0-sim.h5,preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" |
        specx-extract -q --method patch --spectra 0:25 --wavelength 5760,7620,0.8 --precision double --model >frame.h5
    frame_compare frame.h5 "$d/reference-r0-sim.h5"
    h5check frame.h5
}

@test "a subset of fibres has the numbers of the whole bundle" {
    need_shared data/extract/{reference-r0-sim.h5,preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" |
        specx-extract -q --method patch --spectra 13:15 --wavelength 5760,7620,0.8 --precision double >frame.h5
    frame_compare frame.h5 "$d/reference-r0-sim.h5"
}

@test "the frame is valid, and the same for any number of threads" {
    local image=$BATS_FILE_TMPDIR/image.h5
    specx-extract -j 1 --reproducible -w $grid -m -o one.h5 "$image"
    specx-extract -j 3 --reproducible -w $grid -m <"$image" | cat >three.h5
    h5check one.h5 three.h5
    h5diff one.h5 three.h5 /frame
    # the same command twice: the same bytes
    specx-extract -j 2 --reproducible -w $grid -m <"$image" | cat >two.h5
    specx-extract -j 2 --reproducible -w $grid -m <"$image" | cat >again.h5
    cmp two.h5 again.h5
    [[ $(h5dump -d /frame/model -H one.h5) == *F32* ]]
    [[ $(h5dump -d /frame/flux -H one.h5) == *F32* ]]
    [[ $(h5dump -d /scores -H one.h5) == *SUM_RAW_COUNT_R* ]]
    [[ $(h5dump -d /provenance/001 one.h5) == *'failed=0'* ]]
}

@test "the frame does not depend on the environment's numbers of threads" {
    local bins n
    # bins of a pixel, and narrower ones; where LAPACK solves, see test_extract_threads
    for bins in 6410,6470,0.8 6410,6430,0.45; do
        for n in 1 3; do
            OMP_NUM_THREADS=$n OPENBLAS_NUM_THREADS=$n specx-extract -q --device cpu --reproducible -w $bins -f \
                -o frame.h5 "$BATS_FILE_TMPDIR/image.h5"
            mv frame.h5 $n.h5
        done
        cmp 1.h5 3.h5
        # on the CPU nothing is left to it
        [[ $(h5dump -d /provenance/001 1.h5) != *on_cpu* ]]
    done
}

@test "scores are those of DESI's frames, for the right targets" {
    local image=$BATS_FILE_TMPDIR/image.h5
    specx-extract -w $grid -s 2:7 --precision double -o f.h5 "$image"
    h5table --csv -t /scores f.h5 >scores.csv
    [ "$(head -1 scores.csv)" = TARGETID,SUM_RAW_COUNT_R,MEDIAN_RAW_COUNT_R,MEDIAN_RAW_SNR_R ]
    cmp <(cut -d, -f1 scores.csv) <(h5table --csv -t /fibermap -c TARGETID f.h5)
    # the sum of the second fibre: flux times the step
    h5dump -A 0 -y -w 1 -m %.12g -d /frame/flux -s 1,0 -c 1,76 f.h5 |
        awk '/DATA [{]/ { data = 1; next } /[}]/ { data = 0 } data { gsub(/[ ,]/, ""); if ($0 != "") { n++; sum += 0.8 * $0 } }
             END { printf "%d %.6e\n", n, sum }' >sum.txt
    awk -F, 'NR == 3 { printf "76 %.6e\n", $2 }' scores.csv | cmp - sum.txt
    # no fibermap, no TARGETID
    damage nomap.h5 delete /fibermap
    specx-extract -w $grid -o g.h5 nomap.h5
    [ "$(h5table --csv -t /scores g.h5 | head -1)" = SUM_RAW_COUNT_R,MEDIAN_RAW_COUNT_R,MEDIAN_RAW_SNR_R ]
}

@test "precision, grid and fibres are what was asked for" {
    local image=$BATS_FILE_TMPDIR/image.h5
    specx-extract --precision double -w $grid -s 2:5 -o f.h5 "$image"
    [[ $(h5dump -H -d /frame/flux f.h5) == *F64* ]]
    [[ $(h5dump -H -d /frame/flux f.h5) == *'SIMPLE { ( 3, 76 )'* ]]
    [[ $(h5dump -A 0 -d /frame/fiber f.h5) == *'(0): 2, 3, 4'* ]]
    [[ $(h5dump -H -d /fibermap f.h5) == *'( 3 ) / ( 3 )'* ]]
    # without --wavelength: multiples of 0.8, as far as the traces reach on the CCD
    specx-extract -s 0:1 -o g.h5 "$image"
    h5dump -A 0 -y -w 1 -d /frame/wavelength g.h5 |
        awk '/^ *[0-9]+([.][0-9]*)?,?$/ {
                 k = ($1 + 0) / 0.8; n++
                 if (k - int(k + 0.5) > 1e-6 || k - int(k + 0.5) < -1e-6) exit bad = 1
                 if (!first) first = $1 + 0
                 last = $1 + 0
             }
             END { exit bad || !(n > 100 && first < 6400 && last > 6480) }'
}

@test "whole traces: a long reference without seams, through a pipe" {
    need_shared data/extract/{reference-long-r0-sim.h5,preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" >image.h5
    specx-extract -q --spectra 0:25 --wavelength 5760,6560,0.8 --precision double <image.h5 | cat >frame.h5
    frame_compare --long frame.h5 "$d/reference-long-r0-sim.h5"
    # fibres at both ends of a subset have the numbers of the whole bundle
    specx-extract -q --spectra 13:15 --wavelength 5760,6560,0.8 --precision double -o two.h5 image.h5
    frame_compare --long two.h5 "$d/reference-long-r0-sim.h5"
}

@test "whole traces beside masks: dense algebra, to the tolerance" {
    need_shared data/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" >image.h5
    # an amplifier gap, a dead column along a trace, a saturated block, both ends of the CCD
    frame_dense image.h5 1e-8 0,5,7150,7200 5,5,6400,6430 20,5,6620,6670 5,5,5545,5580 20,5,7710,7750 >report.txt || {
        cat report.txt
        return 1
    }
    # masked pixels were there
    [ "$(grep -c ' [1-9][0-9]* with masked pixels' report.txt)" -eq 5 ]
    [[ $(head -1 report.txt) == *' 128 masked by half' ]]
}

@test "patches differ from whole traces by what their padding does not see" {
    need_shared data/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" >image.h5
    frame_dense --patch image.h5 1e-5 {0,10,20},5,5760,7620 >report.txt || { cat report.txt; return 1; }
    [ "$(awk '$2 > 10000 && $4 > 1e-3' report.txt | wc -l)" -eq 3 ]
}

@test "where patches differ most from whole traces, dense algebra says that they are off" {
    need_shared data/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    local d=$SPX_SHARED/data/extract
    fits2h5 -q "$d/preproc-r0-sim.fits.gz" "$d/psf-r0-00067784.fits" >image.h5
    frame_dense --worst image.h5 1e-8 0,25,5760,7620 >report.txt || { cat report.txt; return 1; }
    # a padding of 12 and groups of 5 fibres: 0.022 and 6e-5
    awk '{ exit !($6 > 0.01 && $6 < 0.03 && $12 > 1e-5 && $12 < 1e-4) }' report.txt
}

@test "options of the methods change what they say" {
    local image=$BATS_FILE_TMPDIR/image.h5
    specx-extract --method patch --precision double -w $grid -o a.h5 "$image"
    specx-extract --method patch --precision double -w $grid --bundle-size 8 --sub-bundles 1 --wave-step 80 -o b.h5 "$image"
    # the same to better than 1 % of the error: not the same patches
    run ! h5diff -q a.h5 b.h5 /frame/flux
    specx-extract --method patch --precision double -w $grid --wave-pad 6 --pix-pad-frac 0 -o e.h5 "$image"
    run ! h5diff -q a.h5 e.h5 /frame/flux
    specx-extract --precision double -w $grid -o t.h5 "$image"
    run ! h5diff -q a.h5 t.h5 /frame/flux
    specx-extract --precision double -w $grid --regularize 10 -o c.h5 "$image"
    run ! h5diff -q t.h5 c.h5 /frame/flux
    specx-extract --precision double -w $grid --psf-error 0.5 -o d.h5 "$image"
    h5diff t.h5 d.h5 /frame/flux
    run ! h5diff -q t.h5 d.h5 /frame/chi2pix
    specx-extract --precision double -w $grid --tolerance 1e-4 -o l.h5 "$image"
    run ! h5diff -q t.h5 l.h5 /frame/flux
    specx-extract --precision double -w $grid --wave-pad 20 -o p.h5 "$image"
    run ! h5diff -q t.h5 p.h5 /frame/flux
}

@test "a PSF of version 2, with its traces in rows of the table, is the same PSF" {
    specx-sim -q --fibers 8 --wavelength 6400,6480 --psf-output psf3.fits -o image.fits
    fits_make psf2 psf2.fits psf3.fits
    fits2h5 -q image.fits psf3.fits | specx-extract -q -w $grid --precision double >three.h5
    fits2h5 -q image.fits psf2.fits | tee both.h5 | specx-extract -q -w $grid --precision double >two.h5
    h5check both.h5
    h5diff two.h5 three.h5 /frame
    # what a version 2 without rows for the traces lacks is said
    sed 's/Y       /Q       /' psf2.fits >noy.fits
    fails_with 3 '*noy.fits*parameter Y*no traces*' fits2h5 -q -o out.h5 noy.fits
    sed 's/FIBERMAX=/FIBERMIX=/' psf2.fits >nomax.fits
    fails_with 3 '*nomax.fits*FIBERMAX*' fits2h5 -q -o out.h5 nomax.fits
    fits2h5 -q psf2.fits | h52fits -q -o back.fits
    cmp psf2.fits back.fits
}

@test "image and PSF may come from different places" {
    damage image-only.h5 delete /psf
    damage psf-only.h5 delete /image delete /fibermap
    specx-extract -w $grid --precision double --reproducible -o one.h5 "$BATS_FILE_TMPDIR/image.h5"
    specx-extract -w $grid --precision double --reproducible -o two.h5 image-only.h5 psf-only.h5
    # a real pipe: cat is wanted
    # shellcheck disable=SC2002
    cat psf-only.h5 | specx-extract -w $grid --precision double --reproducible -o three.h5 - image-only.h5
    h5diff one.h5 two.h5 /frame
    h5diff one.h5 three.h5 /frame
}

@test "pixels that are not finite are masked, and bins without pixels are empty" {
    damage nan.h5 set /image/data 1000 nan set /image/ivar 2000 inf set /image/ivar 3000 -1
    specx-extract -w $grid -o f.h5 nan.h5
    h5check f.h5
    [[ $(h5dump -d /provenance/001 f.h5) == *'pixels_not_finite=3'* ]]
    # a grid that leaves the CCD on both sides
    specx-extract -w 6300,6600,0.8 --spectra :5 -o wide.h5 "$BATS_FILE_TMPDIR/image.h5"
    h5check wide.h5
    [[ $(h5dump -d /provenance/001 wide.h5) == *bins_empty=[1-9]* ]]
}

@test "bins without --wavelength suit the spots of any camera" {
    local camera
    # sigma 0.12 Angstrom, and 3.3: bins of 0.8 would be 7 sigma, wider than a spot, or 0.25, of which there are five times as many as tell anything
    for camera in 0.12:6450,6500:0.16 3.3:6000,7000:4; do
        specx-sim -q -f --arm r --camera "dispersion=${camera%%:*}" --fibers 4 --sky-fibers 1 --step 0.05 \
            -w "$(cut -d: -f2 <<<"$camera")" -o "camera.h5"
        run -0 --separate-stderr specx-extract -f -o f.h5 camera.h5
        [[ $stderr != *chi2pix* && $stderr != *narrow* ]]
        h5dump -y -w 0 -d /frame/wavelength -c 2 f.h5 | awk -v step="${camera##*:}" '/^ +[0-9]+.*, / { n++; d = $2 - $1 - step; exit bad = d * d > 1e-18 }
            END { exit bad || !n }'
    done
}

@test "a PSF that is not usable for one fibre" {
    # GHSIGX of fibre 3: coefficients are [parameter][fibre][degree]
    local n
    n=$(h5dump -H -d /psf/coeff "$BATS_FILE_TMPDIR/image.h5" | sed -n 's/.*SIMPLE { ( [0-9]*, [0-9]*, \([0-9]*\) .*/\1/p')
    damage sigma.h5 set /psf/coeff $((3 * n)) -1000
    run --separate-stderr specx-extract -w $grid -o f.h5 sigma.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'PSF is not usable at 76 of 608 bins'* ]]
    h5check f.h5
}

@test "a trace that crosses others harms none" {
    # the slope of fibre 2, in columns over half of the wavelength range of the traces
    local n
    n=$(h5dump -H -d /psf/xtrace "$BATS_FILE_TMPDIR/image.h5" | sed -n 's/.*SIMPLE { ( [0-9]*, \([0-9]*\) ).*/\1/p')
    damage cross.h5 set /psf/xtrace $((2 * n + 1)) 40
    run --separate-stderr specx-extract --strict -w $grid -o f.h5 cross.h5
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $(h5dump -d /provenance/001 f.h5) == *'failed=0'* ]]
    [[ $(h5dump -d /provenance/001 f.h5) == *'bins_empty=0'* ]]
    h5check f.h5
}

@test "refuses input that is empty, cut off or not HDF5" {
    fails_with 3 '*standard input*empty*' specx-extract -w $grid -o out.h5 - </dev/null
    head -c 20000 "$BATS_FILE_TMPDIR/image.h5" >cut.h5
    fails_with 3 '*cut.h5*' specx-extract -w $grid -o out.h5 cut.h5
    fails_with 3 '*standard input*' specx-extract -w $grid -o out.h5 <cut.h5
    echo 'not HDF5' >text.h5
    fails_with 3 '*text.h5*' specx-extract -w $grid -o out.h5 text.h5
    fails_with 3 '*absent.h5*' specx-extract -w $grid -o out.h5 absent.h5
}

@test "refuses input without image or PSF, or with two" {
    damage image-only.h5 delete /psf
    damage psf-only.h5 delete /image
    damage none.h5 delete /image delete /psf
    fails_with 3 '*image-only.h5*no PSF*fits2h5*' specx-extract -w $grid -o out.h5 image-only.h5
    fails_with 3 '*psf-only.h5*no image*fits2h5*' specx-extract -w $grid -o out.h5 psf-only.h5
    fails_with 3 '*none.h5*neither an image nor a PSF*' specx-extract -w $grid -o out.h5 none.h5
    fails_with 2 '*second image*' specx-extract -w $grid -o out.h5 image-only.h5 image-only.h5
    fails_with 2 '*psf-only.h5: is a second PSF, beside that of */image.h5: *' specx-extract -w $grid -o out.h5 "$BATS_FILE_TMPDIR/image.h5" psf-only.h5
    # a pipe that is not named
    fails_with 3 '*psf-only.h5: no image*fits2h5*; if the pipe has it, name - among the inputs*' \
        bash -c "cat '$BATS_FILE_TMPDIR/image.h5' | specx-extract -w $grid -o out.h5 psf-only.h5"
}

@test "a queue of frames gives what they give one by one" {
    local n device
    three_images
    # names made of the inputs' names, in a folder and in a pattern
    mkdir out
    specx-extract -w $grid -m -o out a.h5 b.h5 c.h5
    specx-extract -w $grid -m -o frame-%s.h5 a.h5 b.h5 c.h5
    for n in a b c; do
        h5diff one-$n.h5 out/$n.h5 /frame
        h5diff one-$n.h5 frame-$n.h5 /frame
        h5diff one-$n.h5 frame-$n.h5 /scores
    done
    h5check out/*.h5 frame-*.h5
    # each has its own inputs and counts, and no others
    [ "$(h5dump -d /provenance/001 frame-b.h5 | grep -c 'input: ')" -eq 1 ]
    [[ $(h5dump -d /provenance/001 frame-b.h5) == *'input: b.h5'* ]]
    [[ $(h5dump -d /provenance/001 frame-c.h5) == *'step_seconds: extract.solve'* ]]
    # the same command, the same bytes
    specx-extract --reproducible -w $grid -o 'r-%s.h5' a.h5 b.h5 c.h5
    mkdir before
    mv r-*.h5 before
    specx-extract --reproducible -w $grid -o 'r-%s.h5' a.h5 b.h5 c.h5
    for n in a b c; do cmp r-$n.h5 before/r-$n.h5; done
    # whatever the threads and the memory
    specx-extract -f -m -w $grid -j 3 --max-mem 100M -o 'r-%s.h5' a.h5 b.h5 c.h5
    for n in a b c; do h5diff r-$n.h5 one-$n.h5 /frame; done
    # the CPU computes a frame for each four threads
    for device in auto cpu; do
        specx-extract -f -m -w $grid -j 12 --device $device -o 'r-%s.h5' a.h5 b.h5 c.h5
        for n in a b c; do h5diff r-$n.h5 one-$n.h5 /frame; done
    done
}

@test "a queue through pipes: products follow each other" {
    local n
    three_images
    # pipes on purpose
    # shellcheck disable=SC2002
    cat a.h5 b.h5 c.h5 | specx-extract -w $grid -m | {
        for n in a b c; do h5reduce "-:/frame/flux" --op median --axis 1 -o piped-$n.h5; done
        [ -z "$(head -c 1)" ]
    }
    for n in a b c; do
        h5reduce "one-$n.h5:/frame/flux" --op median --axis 1 -o median-$n.h5
        h5diff median-$n.h5 piped-$n.h5 /reduce
    done
    cat a.h5 b.h5 c.h5 >all
    specx-extract -w $grid -m -o 'n-%s.h5' <all
    h5diff one-a.h5 n-001.h5 /frame
    h5diff one-c.h5 n-003.h5 /frame
    # a PSF on the way is that of the images behind it; another may stand in a file
    cat psf.h5 b-image.h5 | specx-extract -w $grid -m -o 'p-%s.h5'
    h5diff one-b.h5 p-001.h5 /frame
    # shellcheck disable=SC2002
    cat b-image.h5 | specx-extract -w $grid -m -o 'f-%s.h5' psf.h5 - a.h5
    h5diff one-b.h5 f-001.h5 /frame
    h5diff one-a.h5 f-a.h5 /frame
    # the first is written as soon as it is there, not when the second comes
    mkfifo slow
    specx-extract -w $grid -m -o 's-%s.h5' <slow &
    exec 7>slow
    cat a.h5 >&7
    wait_for $! test -e s-001.h5
    h5diff one-a.h5 s-001.h5 /frame
    cat b.h5 >&7
    exec 7>&-
    wait $!
    h5diff one-b.h5 s-002.h5 /frame
}

@test "inputs may be named pipes" {
    three_images
    specx-extract -w $grid -m -o x.h5 <(cat b-image.h5) <(cat psf.h5)
    h5diff one-b.h5 x.h5 /frame
    mkfifo first second
    cat a.h5 >first &
    cat c.h5 >second &
    specx-extract -w $grid -m -o 'q-%s.h5' first b.h5 second
    wait
    h5diff one-a.h5 q-first.h5 /frame
    h5diff one-b.h5 q-b.h5 /frame
    h5diff one-c.h5 q-second.h5 /frame
}

@test "a queue: outputs by a list; the bytes of products are those of single runs" {
    three_images
    images_alone
    local n
    # files first, and the others through pipes, with any names of these
    printf 'out-%s.h5\n' b a c >list
    specx-extract --reproducible -w $grid -f -o @list psf.h5 <(cat b-image.h5) <(cat a-image.h5) psf.h5 <(cat c-image.h5)
    for n in a b c; do cmp alone-$n.h5 out-$n.h5; done
    # in any place and form of -o, and of files
    specx-extract --reproducible -w $grid -o file.h5 psf.h5 a-image.h5
    [[ $(h5dump -d /provenance/001 file.h5) == *'-o file.h5 psf.h5 a-image.h5'* ]]
    mv file.h5 other.h5
    printf '%s\n' '# of a and b' file.h5 2.h5 >list
    specx-extract --reproducible -w $grid --outp=@list psf.h5 a-image.h5 b-image.h5
    [[ $(h5dump -d /provenance/001 file.h5) == *'--outp=file.h5 psf.h5 a-image.h5'* ]]
    h5diff other.h5 file.h5 /frame
    # standard input may hold several; one that fails has its name
    cp a-image.h5 cut.h5
    h5edit cut.h5 delete /image/data
    run specx-extract --reproducible -w $grid -fo @list psf.h5 cut.h5 - <b-image.h5
    [ "$status" -eq 3 ]
    h5diff 2.h5 alone-b.h5 /frame
    rm 2.h5
    fails_with 2 '*-o @list: has 2 names, and there were 1 images*' specx-extract --reproducible -w $grid -f -o @list psf.h5 - <b-image.h5
    [ -e file.h5 ] && [ ! -e 2.h5 ]
    fails_with 2 '*-o @list: has names of 2 images, and there are more*' specx-extract -w $grid -f -o @list a.h5 b.h5 c.h5
    fails_with 2 '*-o @list: has 2 names for 1 images*' specx-extract -w $grid -f -o @list a.h5
    fails_with 2 '*standard input*has to be the last*' specx-extract -w $grid -f -o @list psf.h5 - a-image.h5 <b-image.h5
    fails_with 3 '*@none: the list cannot be read*' specx-extract -w $grid -f -o @none a.h5
}

@test "a queue: a list of exposures, whose lines come while others are in work" {
    three_images
    images_alone
    local n
    printf 'out-%s.h5\n' a b c >list
    # the second image, and with it its line, comes when the first product is there; all are pipes
    mkfifo lines {a,b,c}.pipe
    timeout 60 specx-extract --reproducible -w $grid -f -o @list @- <lines &
    exec {feed}>lines
    cat a-image.h5 >a.pipe &
    printf '# comments\n\npsf.h5\ta.pipe\n' >&$feed
    until [ -e out-a.h5 ]; do sleep 0.05; done
    [ ! -e out-b.h5 ]
    cat b-image.h5 >b.pipe &
    cat c-image.h5 >c.pipe &
    printf 'psf.h5\t%s.pipe\n' b c >&$feed
    exec {feed}>&-
    wait
    for n in a b c; do cmp alone-$n.h5 out-$n.h5; done
    # a PSF that is not there: of its own exposure, and no other one takes its place
    rm out-*.h5
    printf '%s\ta-image.h5\n' psf.h5 none.h5 psf.h5 >lines.txt
    run specx-extract -w $grid -o @list @lines.txt
    [ "$status" -eq 3 ]
    [[ $output == *"none.h5: cannot open: no such file"*"1 of 3 frames failed"* ]]
    [ -e out-a.h5 ] && [ ! -e out-b.h5 ] && [ -e out-c.h5 ]
    specx-extract -w $grid --skip-existing -o @list @<(printf 'psf.h5\ta-image.h5\n%.0s' 1 2 3)
    [ -e out-b.h5 ]
    # lines without a PSF, or with two; the end of the list
    rm out-*.h5
    printf 'a-image.h5\npsf.h5\tpsf.h5\ta-image.h5\npsf.h5\ta-image.h5\n' >lines.txt
    run specx-extract -w $grid -o @list @lines.txt
    [ "$status" -eq 3 ]
    [[ $output == *"a-image.h5: no PSF"* ]]
    [[ $output == *"psf.h5: is a second PSF in a line"* ]]
    [ -e out-c.h5 ]
    printf 'psf.h5\ta-image.h5\n' >one.txt
    touch out-{a,b,c}.h5 # fails_with: nothing else is left
    fails_with 2 '*-o @list: has 3 names, and there were 1 images*' specx-extract -w $grid -f -o @list @one.txt
    fails_with 2 '*-o @list: has names of 3 images, and there are more*' specx-extract -w $grid -f -o @list @<(cat one.txt one.txt one.txt one.txt)
    fails_with 3 '*its last line has no end*' specx-extract -w $grid -f -o @list @<(cat one.txt && printf 'psf.h5\ta-im')
    fails_with 2 '*has to be the only input*' specx-extract -w $grid -f -o @list @lines.txt psf.h5
    fails_with 2 '*goes with -o @FILE*' specx-extract -w $grid -f -o out.h5 @lines.txt
    fails_with 2 '*names out-a.h5 twice*' specx-extract -w $grid -f -o @<(echo out-a.h5 && echo out-a.h5) @lines.txt
    fails_with 3 '*@none.txt: the list cannot be read*' specx-extract -w $grid -f -o @list @none.txt
}

@test "a queue: the PSF of each image" {
    three_images
    # another PSF: half as wide, with parameters of a tail that none has
    cp psf.h5 narrow.h5
    h5edit narrow.h5 fill /psf/coeff 0.5
    cp a.h5 a-image.h5
    h5edit a-image.h5 delete /psf
    fails_with 3 '*TAILCORE of fibre 0 changes along the wavelengths*--tail near*' specx-extract -w $grid -o x.h5 narrow.h5 b-image.h5
    specx-extract --tail none -w $grid -m -o narrow-b.h5 narrow.h5 b-image.h5
    run ! h5diff -q narrow-b.h5 one-b.h5 /frame/flux
    # one for several, one for each, and an image that has its own
    specx-extract --tail none -w $grid -m -o 'x-%s.h5' psf.h5 a-image.h5 narrow.h5 b-image.h5 c.h5
    h5diff one-a.h5 x-a-image.h5 /frame
    h5diff narrow-b.h5 x-b-image.h5 /frame
    h5diff one-c.h5 x-c.h5 /frame
    specx-extract -w $grid -m -o 'y-%s.h5' a-image.h5 b-image.h5 psf.h5
    h5diff one-b.h5 y-b-image.h5 /frame
    fails_with 2 '*narrow.h5*no image*' specx-extract -w $grid -o 'z-%s.h5' psf.h5 a-image.h5 narrow.h5
    fails_with 3 '*a-image.h5*no PSF*' specx-extract -w $grid -o 'z-%s.h5' a-image.h5 b-image.h5
}

@test "a queue: what fails harms no other frame" {
    three_images
    head -c 20000 a.h5 >cut.h5
    damage dark.h5 fill /image/ivar 0
    run --separate-stderr specx-extract -w $grid -m -o 'x-%s.h5' a.h5 cut.h5 absent.h5 dark.h5 b-image.h5 c.h5
    [ "$status" -eq 3 ]
    [[ $stderr == *'cut.h5: is truncated'* && $stderr == *'absent.h5: cannot open'* && $stderr == *'dark.h5'*masked* ]]
    [[ $stderr == *'b-image.h5: no PSF'* && $stderr == *'4 of 6 frames failed'* ]]
    [ "$(echo x-*)" = 'x-a.h5 x-c.h5' ]
    h5diff one-a.h5 x-a.h5 /frame
    h5diff one-c.h5 x-c.h5 /frame
    # files that exist stay, the others are made
    echo keep >y-b.h5
    run --separate-stderr specx-extract -w $grid -m -o 'y-%s.h5' a.h5 b.h5 c.h5
    [ "$status" -eq 4 ]
    [[ $stderr == *'y-b.h5: exists already: give --skip-existing to keep it, or -f to replace it'* ]]
    [[ $stderr == *'1 of 3 frames exist already and stay as they are: give --skip-existing'* ]]
    [ "$(cat y-b.h5)" = keep ]
    h5diff one-a.h5 y-a.h5 /frame
    h5diff one-c.h5 y-c.h5 /frame
    specx-extract -f -w $grid -m -o 'y-%s.h5' a.h5 b.h5 c.h5
    h5diff one-b.h5 y-b.h5 /frame
    # a product in the middle of a pipe that is none, and one that is cut off
    cat a.h5 cut.h5 >all
    run --separate-stderr specx-extract -w $grid -m -o 'z-%s.h5' <all
    [ "$status" -eq 3 ]
    [[ $stderr == *truncated*'1 of 2 frames failed'* ]]
    h5diff one-a.h5 z-001.h5 /frame
    # one that is no image has its number, so that the next one's name is not another once it is mended
    cat a.h5 one-a.h5 c.h5 >all
    run --separate-stderr specx-extract -w $grid -m -o 'n-%s.h5' <all
    [ "$status" -eq 3 ]
    [[ $stderr == *'standard input: number 002: holds neither'*'1 of 3 frames failed'* ]]
    [ "$(echo n-*)" = 'n-001.h5 n-003.h5' ]
    h5diff one-c.h5 n-003.h5 /frame
    [ -z "$(find . -type f -name '.*')" ]
    # a PSF alone
    fails_with 3 '*standard input: no image*' specx-extract -w $grid -o 'e-%s.h5' <psf.h5
    fails_with 3 '*standard input: no image*' specx-extract -w $grid <psf.h5
}

@test "a queue: what exists is kept with --skip-existing, and is no failure" {
    three_images
    echo keep >x-b.h5
    run --separate-stderr specx-extract --skip-existing -w $grid -m -o 'x-%s.h5' a.h5 b.h5 c.h5
    [ "$status" -eq 0 ]
    [ "$stderr" = 'specx-extract: 1 of 3 frames exist already: kept' ]
    [ "$(cat x-b.h5)" = keep ]
    h5diff one-a.h5 x-a.h5 /frame
    h5diff one-c.h5 x-c.h5 /frame
    # of a queue that is done, nothing is read again, and no device is opened
    rm x-b.h5
    specx-extract --skip-existing -w $grid -m -o 'x-%s.h5' a.h5 b.h5 c.h5
    h5diff one-b.h5 x-b.h5 /frame
    ls -l --full-time x-* >before
    run --separate-stderr specx-extract --device cuda --skip-existing -w $grid -m -o 'x-%s.h5' a.h5 b.h5 c.h5
    [ "$status" -eq 0 ]
    [ "$stderr" = 'specx-extract: 3 of 3 frames exist already: kept' ]
    # shellcheck disable=SC2012
    ls -l --full-time x-* | diff before -
    # the images behind kept ones have their PSF all the same, and their number on a pipe
    mkdir out
    echo keep >out/a.h5
    specx-extract -q --skip-existing -w $grid -m -o out psf.h5 a.h5 b-image.h5
    h5diff one-b.h5 out/b-image.h5 /frame
    echo keep >p-002.h5
    cat a.h5 b.h5 c.h5 | specx-extract --skip-existing -w $grid -m -o 'p-%s.h5' 2>err
    [ "$(cat err p-002.h5)" = $'specx-extract: 1 of 3 frames exist already: kept\nkeep' ]
    h5diff one-c.h5 p-003.h5 /frame
    specx-extract --skip-existing -w $grid -m -o 'p-%s.h5' <a.h5
    # one that fails does so; the others are kept
    head -c 20000 c.h5 >cut.h5
    run --separate-stderr specx-extract --skip-existing -w $grid -m -o 'x-%s.h5' a.h5 b.h5 cut.h5
    [ "$status" -eq 3 ]
    [[ $stderr == *'2 of 3 frames exist already: kept'* && $stderr == *'cut.h5: is truncated'* ]]
    # no part of the product's record
    specx-extract --reproducible --skip-existing -w $grid -m -o one.h5 a.h5
    run ! bash -c 'h5dump -g /provenance one.h5 | grep skip-existing='
    fails_with 2 '*contradict*' specx-extract -f --skip-existing -w $grid -o 'x-%s.h5' a.h5 b.h5
    fails_with 2 '*--skip-existing*' specx-extract --skip-existing -w $grid -o - a.h5
}

@test "a queue that a signal stops tells how much is done" {
    three_images
    mkfifo x-c.h5 # which nobody reads: the last frame waits
    specx-extract --device cpu -w $grid -o 'x-%s.h5' a.h5 b.h5 c.h5 2>err &
    local pid=$! status=0
    for _ in {1..200}; do
        [ ! -e x-b.h5 ] || break
        sleep 0.1
    done
    sleep 0.5
    kill "$pid"
    wait "$pid" || status=$?
    [ "$status" -eq 143 ]
    [ "$(cat err)" = 'specx-extract: stopped with 2 of 3 frames done: repeat it with --skip-existing to make the others' ]
    [ -z "$(find . -type f -name '.*')" ]
}

@test "a queue: notes and warnings say which frame they are about" {
    three_images
    damage nan.h5 set /image/data 1000 nan
    run --separate-stderr specx-extract -w $grid -o 'x-%s.h5' a.h5 nan.h5
    [ "$status" -eq 0 ]
    [ "$stderr" = 'specx-extract: nan.h5: 1 pixels are not finite or have a negative ivar: masked' ]
    cat a.h5 nan.h5 >all
    run --separate-stderr specx-extract -w $grid -o 'y-%s.h5' <all
    [ "$stderr" = 'specx-extract: standard input: number 002: 1 pixels are not finite or have a negative ivar: masked' ]
    run --separate-stderr specx-extract -w $grid -o z.h5 nan.h5
    [ "$stderr" = 'specx-extract: 1 pixels are not finite or have a negative ivar: masked' ]
    # the seconds of each step, too
    specx-extract -v -w $grid -o 'v-%s.h5' a.h5 nan.h5 2>log
    for line in a.h5:\ {read,extract,write} nan.h5:\ {read,extract,write}; do
        [ "$(grep -cE "specx-extract: $line: [0-9.]+ s$" log)" -eq 1 ]
    done
    [ "$(grep -cE 'specx-extract: (read|extract|write): ' log)" -eq 0 ]
    specx-extract -v -w $grid -o v.h5 a.h5 2>log
    [ "$(grep -cE 'specx-extract: (read|extract|write): [0-9.]+ s$' log)" -eq 3 ]
}

@test "wavelengths that the PSF was not made for are extracted, and said" {
    local image=$BATS_FILE_TMPDIR/image.h5
    run --separate-stderr specx-extract -o inside.h5 "$image"
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    run --separate-stderr specx-extract -w 6530,6545,5 -o beyond.h5 "$image"
    [ "$status" -eq 0 ]
    [[ $stderr == "specx-extract: warning: 8 bins lie beyond the wavelengths that the PSF was made for, 6340 to 6540 \
Angstrom: its series are extrapolated there"* ]]
    # bins of four times the spots
    [[ $stderr == *'the median of chi2pix is'*'bins are wider than spots' ]]
}

@test "a queue: standard output that takes no more ends it" {
    three_images
    run --separate-stderr bash -c "specx-extract -w $grid {a,b,c,a,b,c}.h5 >/dev/full"
    [ "$status" -eq 4 ]
    [[ $stderr == *'a.h5: standard output: cannot write: '*'stopped with 0 frames done'* && $stderr != *b.h5* ]]
    # the reader takes a part and goes
    run --separate-stderr bash -c "set -o pipefail; specx-extract -w $grid {a,b,c,a,b,c}.h5 | head -c 100000 >part"
    [ "$status" -eq 4 ]
    [ "$(grep -c 'the program that reads this pipe stopped' <<<"$stderr")" -eq 1 ]
    [[ $stderr == *'stopped with '*' frames done'* ]]
}

@test "a queue: names that cannot be" {
    three_images
    mkdir other
    cp a.h5 other
    fails_with 2 '*a.h5 and other/a.h5 would both become x-a.h5*' specx-extract -w $grid -o 'x-%s.h5' a.h5 other/a.h5
    fails_with 2 '*a.h5: is both input and output*' specx-extract -f -w $grid -o . a.h5 b.h5
    cp b.h5 x-a.h5
    fails_with 2 '*x-a.h5: is both input and output*' specx-extract -f -w $grid -o 'x-%s.h5' a.h5 x-a.h5
    fails_with 4 'specx-extract: nowhere/: *mkdir*' specx-extract -w $grid -o nowhere/ a.h5 b.h5
    fails_with 4 'specx-extract: nowhere/: *mkdir*' specx-extract -w $grid -o nowhere/%s.h5 a.h5 b.h5
    fails_with 4 '*nowhere-a*2 of 2 frames failed*' specx-extract -w $grid -o nowhere-%s/f.h5 a.h5 b.h5
    fails_with 2 '*--output*more than one %s*' specx-extract -w $grid -o %s-%s.h5 a.h5 b.h5
    fails_with 2 '*c.h5: is a second image*-o FOLDER*' specx-extract -w $grid -o out.h5 a.h5 c.h5
}

@test "the record shows the padding that is in effect" {
    local image=$BATS_FILE_TMPDIR/image.h5
    specx-extract -w $grid -o t.h5 "$image"
    [[ $(h5dump -g /provenance t.h5) == *'wave-pad=40'*'pix-pad-frac=0.9'* ]]
    specx-extract -w $grid --wave-pad 0 --pix-pad-frac 0 -o z.h5 "$image"
    [[ $(h5dump -g /provenance z.h5) == *'wave-pad=0 '*'pix-pad-frac=0 '* ]]
    specx-extract -w 6410,6420,0.8 -s :2 --method patch -o p.h5 "$image"
    [[ $(h5dump -g /provenance p.h5) == *'wave-pad=12'*'pix-pad-frac=0.8'* ]]
}

@test "traces without a solution are regularised, then flagged, and --strict refuses them" {
    # two fibres with the same spots: only their sum is known
    damage twins.h5 twin /psf/xtrace 0 4 5 twin /psf/ytrace 0 4 5 twin /psf/coeff 1 4 5
    cp twins.h5 hopeless.h5
    h5edit twins.h5 fill /image/ivar 1e6
    h5edit hopeless.h5 fill /image/ivar 1e16
    run --separate-stderr specx-extract --bundle-size 4 -w $grid -o r.h5 twins.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'2 of 8 traces had to be solved with regularisation'* && $stderr != *'no solution'* ]]
    [[ $(h5dump -d /provenance/001 r.h5) == *'failed=0'*'regularised=2'* ]]
    specx-extract -q --strict --bundle-size 4 -w $grid -o strict.h5 twins.h5
    run --separate-stderr specx-extract --bundle-size 4 -w $grid -o f.h5 hopeless.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'2 of 8 traces have no solution'* ]]
    h5check f.h5
    [[ $(h5dump -d /provenance/001 f.h5) == *'failed=2'* ]]
    # ALLBADPIX, BAD2DFIT and, as their traces coincide, BADFIBER for these two, nothing for the others
    [ "$(h5dump -y -w 1 -d /frame/mask f.h5 | grep -c "^ *642,*$")" -eq $((2 * 76)) ]
    [ "$(h5dump -y -w 1 -d /frame/ivar f.h5 | grep -c '^ *0,*$')" -eq $((2 * 76)) ]
    fails_with 1 '*2 of 8 traces have no solution*--strict*' specx-extract --strict --bundle-size 4 -w $grid -o s.h5 hopeless.h5
}

@test "refuses blocks whose content does not fit" {
    damage shape.h5 shape /image/ivar 7,9
    fails_with 3 '*shape.h5:/image/ivar*' specx-extract -w $grid -o out.h5 shape.h5
    # before any image is read
    fails_with 3 '*shape.h5:/image/ivar: dimension 0 is 7*' specx-extract -w $grid --max-mem 100k -o out.h5 shape.h5
    damage trace.h5 shape /psf/ytrace 3,4
    fails_with 3 '*trace.h5:/psf/ytrace*' specx-extract -w $grid -o out.h5 trace.h5
    damage missing.h5 delete /image/ivar
    fails_with 3 '*missing.h5*/image/ivar*' specx-extract -w $grid -o out.h5 missing.h5
    damage newer.h5 attr /psf version 9.0
    fails_with 3 '*newer.h5*psf*' specx-extract -w $grid -o out.h5 newer.h5
    damage nan.h5 fill /psf/xtrace nan
    fails_with 3 '*: nan.h5:/psf/xtrace: a coefficient of trace 0 is not finite*' specx-extract -w $grid -o out.h5 nan.h5
    damage sigma.h5 fill /psf/coeff 0
    fails_with 3 '*: sigma.h5:/psf: *no fibre has spots*' specx-extract -q -w $grid -o out.h5 sigma.h5
}

@test "refuses an image with all pixels masked" {
    damage masked.h5 fill /image/mask 1
    fails_with 3 '*100.0% of the pixels*masked*' specx-extract -w $grid -o out.h5 masked.h5
    damage dark.h5 fill /image/ivar 0
    fails_with 3 '*masked*' specx-extract -w $grid -o out.h5 dark.h5
}

@test "bright sky lines: kappa of stars beside them is right" {
    local n
    specx-sim -q -f --arm r --seed 3 --fibers 30 --sky-fibers 15 --mag 16:16.5 --cosmics 0 --bad-columns 0 --no-noise \
        --wavelength 6200,6400 --format hdf5 -o image.h5
    specx-extract -q -w 6210.3,6390.3,1 -o plain.h5 image.h5
    specx-extract -q -w 6210.3,6390.3,1 --sky-lines oi -o placed.h5 image.h5
    h5table --provenance placed.h5 | grep -o 'sky_lines_placed=2'
    for n in plain placed; do
        specx-sky -q -o $n-sky.h5 $n.h5
        h5table --csv -t /sky/table -c ROLE,KAPPA,KAPPA_ERR $n-sky.h5 | awk -F, '$1 == "TARGET" { s += $2 / $3; n++ } END { print s / n }' >$n
    done
    cat plain placed
    awk '{ exit !($1 < -0.5) }' plain
    awk '{ exit !($1 * $1 < 0.01) }' placed
    # by wavelengths, of which one is off the grid, and from three fibres: as of all
    specx-extract -q -w 6210,6390,0.8 --sky-lines 6302.05,6365.54,7000 -s 4:7 --precision double -o some.h5 image.h5
    specx-extract -q -w 6210,6390,0.8 --sky-lines oi --precision double -o all.h5 image.h5
    h5dump -A 0 -y -w 1 -m %.17g -d /frame/flux -s 4,0 -c 3,226 all.h5 | tr -d ' ' | grep '^[-0-9]' >a
    h5dump -A 0 -y -w 1 -m %.17g -d /frame/flux some.h5 | tr -d ' ' | grep '^[-0-9]' >b
    [ "$(wc -l <a)" = 678 ]
    cmp a b
    fails_with 2 '*--sky-lines*' specx-extract -q --sky-lines nowhere -o no.h5 image.h5
    fails_with 2 '*--sky-lines*' specx-extract -q --sky-lines 6302,-1 -o no.h5 image.h5
    fails_with 2 '*lines between bins*' specx-extract -q --method patch --sky-lines oi -o no.h5 image.h5
    [ ! -e no.h5 ]
}

@test "refuses options that make no sense" {
    local image=$BATS_FILE_TMPDIR/image.h5
    fails_with 2 '*--wavelength*MIN,MAX,STEP*' specx-extract -w 6400,6410 -o out.h5 "$image"
    fails_with 2 '*--wavelength*' specx-extract -w 6410,6400,0.8 -o out.h5 "$image"
    fails_with 2 '*--wavelength*' specx-extract -w 6400,6410,0 -o out.h5 "$image"
    fails_with 2 "*--wavelength: '6400,x,1' is not MIN,MAX,STEP" specx-extract -w 6400,x,1 -o out.h5 "$image"
    fails_with 3 '*no trace*--wavelength*' specx-extract -w 3000,3010,1 -o out.h5 "$image"
    fails_with 2 '*--spectra*FIRST:LAST*' specx-extract -w $grid -s 4 -o out.h5 "$image"
    fails_with 2 '*--spectra*0:8*' specx-extract -w $grid -s 4:9 -o out.h5 "$image"
    fails_with 2 '*--spectra*' specx-extract -w $grid -s 5:5 -o out.h5 "$image"
    fails_with 2 '*--spectra*' specx-extract -w $grid -s=-1:3 -o out.h5 "$image"
    fails_with 2 '*sub-bundles*' specx-extract --method patch -w $grid --bundle-size 4 -o out.h5 "$image"
    fails_with 2 '*sub-bundles*--method patch*' specx-extract -w $grid --sub-bundles 4 -o out.h5 "$image"
    fails_with 2 '*tolerance*--method trace*' specx-extract --method patch --tolerance 1e-6 -w $grid -o out.h5 "$image"
    fails_with 2 '*tolerance*' specx-extract -w $grid --tolerance 1 -o out.h5 "$image"
    fails_with 2 '*smaller than a pixel*' specx-extract -w 6400,6402,0.001 -o out.h5 "$image"
    fails_with 5 '*--method trace*' specx-extract --method patch --device cuda -w $grid -o out.h5 "$image"
    fails_with 2 '*bundle-size*' specx-extract -w $grid --bundle-size 0 -o out.h5 "$image"
    fails_with 2 '*pix-pad-frac*' specx-extract -w $grid --pix-pad-frac 1.5 -o out.h5 "$image"
    fails_with 2 '*psf-error*' specx-extract -w $grid --psf-error=-1 -o out.h5 "$image"
    fails_with 2 '*--psf-error 1e+200: must not be so large*' specx-extract -w $grid --psf-error 1e200 -o out.h5 "$image"
    fails_with 2 '*unknowns*' specx-extract --method patch -w $grid --wave-step 30000 -o out.h5 "$image"
    fails_with 2 '*--device*gpu*' specx-extract -w $grid --device gpu -o out.h5 "$image"
    fails_with 2 '*precision*' specx-extract -w $grid --precision half -o out.h5 "$image"
    fails_with 4 '*max-mem allows (* of 100.0 KiB held*' specx-extract -w $grid --max-mem 100k -o out.h5 "$image"
    # where the threads run into it, too
    fails_with 4 '*max-mem allows*raise*' specx-extract -w $grid --max-mem 3M -o out.h5 "$image"
}

@test "refuses an output that cannot or must not be written" {
    cp "$BATS_FILE_TMPDIR/image.h5" image.h5
    fails_with 2 '*input and output*' specx-extract -f -w $grid -o image.h5 image.h5
    cmp image.h5 "$BATS_FILE_TMPDIR/image.h5"
    fails_with 4 '*nowhere*' specx-extract -w $grid -o nowhere/out.h5 image.h5
    echo keep >out.h5
    fails_with 4 '*out.h5*exists*' specx-extract -w $grid -o out.h5 image.h5
    [ "$(cat out.h5)" = keep ]
    run --separate-stderr bash -c "specx-extract -w $grid image.h5 >/dev/full"
    [ "$status" -eq 4 ]
    [ -n "$stderr" ]
    # nobody reads: not a success
    run --separate-stderr bash -c "set -o pipefail; specx-extract -w $grid image.h5 | true"
    [ "$status" -ne 0 ]
}

@test "bins far narrower than the PSF: neighbours are added while that changes something" {
    # a longer tail of a column looked like a change by more fibres, and ever more were taken
    specx-sim -q --arm z --fibers 25 --wavelength 8250,8330 -o i.h5
    specx-extract -q -w 8250,8330,0.6 -o fine.h5 i.h5
    specx-extract -q -w 8250,8330,0.6 --tolerance 1e-6 -o coarse.h5 i.h5
    h5diff -d 1e-3 fine.h5 coarse.h5 /frame/flux
    h5diff -d 1e-6 fine.h5 coarse.h5 /frame/resolution
}

@test "bins far narrower than the PSF: an end, and a warning that says how exact they are" {
    specx-sim -q --arm z --fibers 5 --wavelength 8250,8330 --psf-output psf.fits -o image.fits
    fits2h5 -q image.fits psf.fits -o image.h5
    specx-extract --wavelength 8250,8330,0.8 -o wide.h5 image.h5 2>stderr
    run ! grep 'narrower' stderr
    timeout 60 specx-extract --wavelength 8250,8330,0.5 -o narrow.h5 image.h5 2>stderr
    grep -q 'warning: bins of 0.5 Angstrom are much narrower than the PSF: flux is exact to [0-9e-]* of its error' stderr
    grep -q 'warning: bins of 0.5 Angstrom are 0.[5-7][0-9] of the PSF.s sigma along the traces, 0.[0-9]* Angstrom: ' stderr
    h5table -p narrow.h5 | grep -q 'tolerance_reached'
    [ "$(h5table -p wide.h5 | grep -c 'tolerance_reached')" -eq 0 ]
    h5check -q narrow.h5
}

# Spots of two cores and a tail: 11 of 25 fibres of a real BOSS PSF. The image is larger than what is read of it.
@test "a BOSS PSF: pulls against the truth, and both methods agree" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    local psf=$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits
    specx-sim -q --psf "$psf" --fibers 0:11 --wavelength 6500,6800 --no-sky --snr 40:60 --truth truth.h5 -o image.h5
    h5check image.h5
    specx-extract -q --wavelength 6510,6790,2 --spectra 0:11 -o frame.h5 image.h5
    h5check frame.h5
    [[ $(h5table --provenance frame.h5) == *'tolerance_used=0.0001'* ]]
    # 1155 clean bins: 5 errors of mean and scatter
    frame_truth --mean 0.15 --sd 0.1 --corr 0.15 frame.h5 truth.h5
    # a single patch, which takes no tails off the image
    specx-extract -q --tail near --wavelength 6510,6790,2 --spectra 0:11 -o near.h5 image.h5
    specx-extract -q --tail near --method patch --wave-step 141 --wave-pad 30 --sub-bundles 1 --wavelength 6510,6790,2 \
        --spectra 0:11 -o patch.h5 image.h5
    paste <(h5dump -y -w 1 -m %.9g -d /frame/flux near.h5 | grep -E '^ *[0-9-]') \
        <(h5dump -y -w 1 -m %.9g -d /frame/flux patch.h5 | grep -E '^ *[0-9-]') \
        <(h5dump -y -w 1 -m %.9g -d /frame/ivar patch.h5 | grep -E '^ *[0-9-]') |
        awk '{ d = ($1 - $2) * ($1 - $2) * $3; if (d > 1e-6) bad++ } END { exit bad > 0 || NR != 1551 }'
}

# frame_values FILE DATASET FIBRE FIRST COUNT: numbers of a fibre, one a line.
frame_values() {
    h5dump -y -w 1 -m %.9g -d "$2" -s "$3,$4" -c "1,$5" "$1" | grep -E '^ *[0-9-]' | tr -d ' ,'
}

@test "traces with ranges of their own: the same spectra within them, and nothing beyond" {
    local f
    specx-sim -q --arm r --fibers 6 --wavelength 6200,6300 --no-sky --snr 40:60 -o image.h5
    specx-extract -q -w 6205,6295,0.8 --precision double -o whole.h5 image.h5
    cp image.h5 orders.h5
    psf_edit orders.h5 orders 6180:6270,6200:6280,6220:6320 valid 1 6216.5:6264.5 status 1 4 bundles 1,3,2 number 500
    h5check orders.h5
    run --separate-stderr specx-extract -w 6205,6295,0.8 --precision double -o part.h5 orders.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *'bins lie where the PSF says that their trace may not be used (valid_range): masked'* ]]
    [[ $(h5table --provenance part.h5) == *'bins_outside='* ]]
    h5check part.h5
    # fibre 0, alone in its bundle: to 6270; fibre 1: 6216.5 to 6264.5; fibre 3: from 6220. Bins 15 to 74 of fibre 1
    # are within, as is the bundle's border beyond which light is not modelled
    [ "$(frame_values part.h5 /frame/ivar 1 0 15 | sort -u)" = 0 ]
    [ "$(frame_values part.h5 /frame/ivar 1 75 38 | sort -u)" = 0 ]
    [ "$(frame_values part.h5 /frame/ivar 3 0 19 | sort -u)" = 0 ]
    [ "$(frame_values part.h5 /frame/flux 3 0 19 | sort -u)" = 0 ]
    # one bundle for all, as it was
    specx-extract -q -w 6205,6295,0.8 --precision double --bundle-size 25 -o one.h5 orders.h5
    for f in 1 2 4 5; do
        paste <(frame_values one.h5 /frame/flux $f 19 56) <(frame_values whole.h5 /frame/flux $f 19 56) \
            <(frame_values whole.h5 /frame/ivar $f 19 56) | awk -v f=$f '
            { d = ($1 - $2) * ($1 - $2) * $3; if (d > most) most = d }
            END { if (NR != 56 || most > 1e-6) { print "fibre " f ": off by " sqrt(most) " errors"; exit 1 } }'
    done
    # a grid of its own: from the first wavelength that any trace may use to the last
    specx-extract -q -o default.h5 orders.h5
    [[ $(h5table --provenance default.h5) == *'grid=6180,6320,0.8'* ]]
    fails_with 3 '*wave_range*keep the HDF5 file*' h52fits --as psf -o s.fits orders.h5
    # drawn through it: light within the ranges alone
    specx-sim -q --psf orders.h5 --no-sky --snr 40:60 --truth truth.h5 -o drawn.h5
    [ "$(h5dump -y -w 1 -d /truth/flux -s 3,0 -c 1,20 truth.h5 | grep -cE '^ *0,?$')" -eq 20 ]
    fails_with 3 '*wave_range*simulated shift*' specx-sim -q --psf orders.h5 --shift 0.06,-0.04 -o s.h5
}
