# specx-extract with a PSF that has a tail; accuracy: kernels/test_extract_tail.c.
load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    specx-sim -q --arm r --fibers 8 --wavelength 6400,6500 --mag 14:18 --bundles 2x4 \
        --camera tail=0.007,tail-index=2.2 --format hdf5 -o tail.h5
    specx-sim -q --arm r --fibers 8 --wavelength 6400,6500 --mag 14:18 --bundles 2x4 --format hdf5 -o bare.h5
}

grid() {
    specx-extract -q -w 6410,6490,0.8 "$@"
}

# row_of PARAMETER: its row in /psf/coeff of other.h5
row_of() {
    h5dump -A 0 -d /psf/param other.h5 | grep -o "([0-9]*): \"$1" | grep -o '[0-9]*' | head -1
}

@test "--tail: three answers where the PSF has a tail, one where it has none" {
    for how in psf near none; do
        grid --tail $how -o $how.h5 "$BATS_FILE_TMPDIR/tail.h5"
        grid --tail $how -o bare-$how.h5 "$BATS_FILE_TMPDIR/bare.h5"
        h5diff bare-psf.h5 bare-$how.h5 /frame/flux
    done
    run ! h5diff -q psf.h5 near.h5 /frame/flux
    run ! h5diff -q psf.h5 none.h5 /frame/flux
    run ! h5diff -q near.h5 none.h5 /frame/flux
    grid --tail psf -o again.h5 "$BATS_FILE_TMPDIR/tail.h5"
    h5diff psf.h5 again.h5 /frame
    h5check psf.h5
    h5table --provenance psf.h5 | grep -q 'tail_light=0.1'
    run ! grep -q tail_light <(h5table --provenance near.h5 bare-psf.h5)
}

@test "--tail psf: the same bytes for any number of threads, through a pipe, of a subset" {
    local in=$BATS_FILE_TMPDIR/tail.h5
    grid --reproducible -j 1 -o one.h5 "$in"
    grid --reproducible -j 2 -o two.h5 "$in"
    h5diff one.h5 two.h5 /frame
    grid --reproducible -j 1 <"$in" >piped.h5
    h5diff one.h5 piped.h5 /frame
    grid -s 5:7 -o some.h5 "$in"
    grid -s 5:7 -j 1 -o same.h5 "$in"
    h5diff some.h5 same.h5 /frame
}

@test "--tail psf: parameters that differ within a camera, or make no tail, are refused" {
    cp "$BATS_FILE_TMPDIR/tail.h5" other.h5
    local row
    row=$(row_of TAILCORE)
    h5edit other.h5 set /psf/coeff $((row * 8 * 3 + 3 * 3)) 1.5
    fails_with 3 '*TAILCORE is 1.5 for fibre 3*--tail near*' specx-extract -w 6410,6490,0.8 -o out.h5 other.h5
    grid --tail near -o near.h5 other.h5
    h5edit other.h5 range /psf/coeff $((row * 8 * 3)) $(((row + 1) * 8 * 3)) 0
    row=$(row_of TAILINDE)
    h5edit other.h5 range /psf/coeff $((row * 8 * 3)) $(((row + 1) * 8 * 3)) 0
    fails_with 3 '*TAILINDE 0*--tail none*' specx-extract -w 6410,6490,0.8 -o out.h5 other.h5
    fails_with 2 '*tail*--method trace*' specx-extract --method patch -w 6410,6490,0.8 -o out.h5 "$BATS_FILE_TMPDIR/tail.h5"
    grid --method patch --tail near -o patch.h5 "$BATS_FILE_TMPDIR/tail.h5"
}
