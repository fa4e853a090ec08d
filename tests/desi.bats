# specpipe-desi(7): an exposure of DESI beside DESI's own frame. $SPX_DESI names a folder with the survey's files; without it
# the page runs with a simulated exposure in their place, and with the real PSF and gpu_specter's spectra ($SPX_SHARED).
load common
load examples

# page_finds TEXT: the page's commands, and then its verdict, fail with this line
page_finds() {
    rm -f r0.h5 theirs.h5 ours.h5 compare.*
    run run_examples specpipe-desi.7
    echo "$output" | tail -n 20
    [ "$status" -ne 0 ]
    [[ $output == *"failed: awk"* ]]
    awk -F '\t' 'END { exit NR < 10 }' compare.txt
    { verdict || true; } | grep "$1"
}

# the last command of the page
verdict() { examples_of "$SPX_ROOT/man/specpipe-desi.7.in" | sed -n '/^\$ awk -F/{s/^\$ //;p}' | bash; }

@test "DESI's own exposure, where SPX_DESI has it" {
    local f
    [ -n "${SPX_DESI:-}" ] || skip "SPX_DESI names no folder with DESI's files: specpipe-desi(7) has where they are"
    need_program gnuplot
    for f in preproc psf frame; do
        compgen -G "$SPX_DESI/$f-r0-00067784.fits*" >/dev/null || skip "no $f-r0-00067784.fits in SPX_DESI"
    done
    bash "$SPX_ROOT/tests/desi.sh" desi
    run_examples specpipe-desi.7
    cat compare.txt
    h5check ours.h5 theirs.h5
}

@test "a simulated exposure in its place" {
    need_program gnuplot
    SPX_DESI='' bash "$SPX_ROOT/tests/desi.sh" files
    gzip files/frame-r0-00067784.fits
    SPX_DESI=files bash "$SPX_ROOT/tests/desi.sh" desi
    run_examples specpipe-desi.7
    cat compare.txt
    [ "$(cat heliocor)" = 0.9999 ]
    h5check ours.h5 theirs.h5
    # seams of patches, and no more: nearly all of ten fibres
    awk -F '\t' '$2 == "flux" { exit !($3 > 22000 && $4 * $4 < 1e-12 && $6 < 1e-4 && $8 < 0.02) }' compare.txt
    png_look compare.png | awk '{ exit !($1 == 1800 && $2 == 1800 && $3 > 100) }'
}

@test "a frame that is wrong is found" {
    need_program gnuplot
    SPX_DESI='' bash "$SPX_ROOT/tests/desi.sh" desi
    local frame=desi/frame-r0-00067784.fits
    fits2h5 -q -o right.h5 $frame
    wrong() {
        cp right.h5 wrong.h5
        h5edit wrong.h5 "${@:2}"
        rm $frame
        h52fits -q --as frame -o $frame wrong.h5
        page_finds "$1"
    }
    wrong '^flux_30_to_100: median' scale /frame/flux 1.01
    wrong '^ivar: median' scale /frame/ivar 1.03
    wrong '^resolution: median' scale /frame/resolution 1.03
    wrong 'bins masked in one file alone' range /frame/mask 3000 4000 4
    # a twentieth of the spectra is that of the fibre beside
    wrong '^flux: 99 %' twin /frame/flux 0 2 3
    # the PSF of another exposure: traces are up to 0.4 pixel off
    rm $frame
    h52fits -q --as frame -o $frame right.h5
    fits2h5 -q -o psf.h5 desi/psf-r0-00067784.fits
    h5edit psf.h5 scale /psf/ytrace 1.0001
    rm desi/psf-r0-00067784.fits
    h52fits -q --as psf -o desi/psf-r0-00067784.fits psf.h5
    page_finds 'scatter'
}

@test "the PSF of this exposure: gpu_specter's spectra of a simulated image" {
    need_program gnuplot
    need_shared data/extract/reference-r0-sim.h5 data/extract/preproc-r0-sim.fits.gz data/extract/psf-r0-00067784.fits
    find_python h5py numpy || skip "no Python with h5py"
    mkdir desi
    ln -s "$SPX_SHARED/data/extract/preproc-r0-sim.fits.gz" desi/preproc-r0-00067784.fits.gz
    ln -s "$SPX_SHARED/data/extract/psf-r0-00067784.fits" desi
    # their numbers in the place of ours
    fits2h5 -q desi/* | specx-extract -q -s 0:25 -w 5760,7620,0.8 -o frame.h5
    "$SPX_PYTHON" - frame.h5 "$SPX_SHARED/data/extract/reference-r0-sim.h5" <<'END'
import sys
import h5py
import numpy as np

with h5py.File(sys.argv[1], "r+") as ours, h5py.File(sys.argv[2]) as theirs:
    f = ours["frame"]
    assert np.abs(f["wavelength"][:] - theirs["wavelength"][:]).max() < 1e-8
    for name in "flux", "ivar", "resolution", "chi2pix", "pixmask_fraction":
        f[name][...] = theirs[name][:].astype(f[name].dtype)
    fraction = theirs["pixmask_fraction"][:]
    f["mask"][...] = np.where(fraction == 1, 3, np.where(fraction > 0.5, 1, 0))
END
    h52fits -q --as frame -o desi/frame-r0-00067784.fits frame.h5
    run_examples specpipe-desi.7
    cat compare.txt
    awk -F '\t' '$2 == "flux" { exit !($3 > 50000 && $4 * $4 < 1e-12 && $6 < 1e-4 && $8 < 0.02) }' compare.txt
}
