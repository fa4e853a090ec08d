# Truth test of the extraction: pulls of simulated exposures (truth.sh; `make truth` runs all of its cases).

load common

@test "pulls against what was put in: bins of the extraction, lines between bins, artefacts" {
    "$SPX_ROOT/tests/truth.sh" out grid z artefacts >report.txt || { cat report.txt; return 1; }
    [ "$(grep -c '^clean' report.txt)" -eq 3 ]
}

@test "pulls of faint stars" {
    "$SPX_ROOT/tests/truth.sh" out faint >report.txt || { cat report.txt; return 1; }
    [ "$(grep -c '[+]- 0.00' report.txt)" -eq 3 ]
}

@test "pulls through the PSF of a real camera" {
    need_shared data/extract/psf-r0-00067784.fits
    "$SPX_ROOT/tests/truth.sh" out real >report.txt || { cat report.txt; return 1; }
    [ "$(grep -c '^clean' report.txt)" -eq 1 ]
}

@test "the comparison with the truth can fail" {
    specx-sim -q --fibers 5 --wavelength 6400,6560 --format hdf5 --truth t.h5 -o i.h5
    specx-sim -q --fibers 5 --wavelength 6400,6560 --seed 2 --truth other.h5 -o j.h5
    specx-extract -q -w 6410,6550,0.8 -o f.h5 i.h5
    frame_truth --mean 0.2 --sd 0.2 --corr 0.2 f.h5 t.h5
    run frame_truth --mean 0.2 --sd 0.2 --corr 0.2 f.h5 other.h5
    [ "$status" -eq 1 ]
    [[ $output == *'TOO LARGE'* ]]
}
