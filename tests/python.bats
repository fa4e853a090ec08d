# The Python package: scripts of tests/python, snippets of the manual, installation; its types are checked by `make lint-python`.

load common

setup_file() {
    # without h5py the tests are skipped, and need no data
    find_python numpy h5py scipy astropy || return 0
    example_data
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return
    find_python numpy h5py scipy astropy || skip "no Python with numpy, h5py, scipy and astropy"
    export PYTHONPATH=$SPX_ROOT/python:$SPX_ROOT/tests/python PYTHONDONTWRITEBYTECODE=1
    cp -R "$BATS_FILE_TMPDIR/data/." .
}

# script NAME: it asserts, and what it prints is why a part was skipped.
script() {
    run "$SPX_PYTHON" "$SPX_ROOT/tests/python/$1.py"
    if [ "$status" -ne 0 ]; then
        echo "$output"
        return 1
    fi
    [ -z "$output" ] || echo "# $1: $output" >&3
}

# snippets PAGE: the Python of a manual page, display by display: those that begin with import, with, or, in the page on
# Python, all.
snippets() {
    awk -v all="$([ "$1" = specpipe-python.7 ] && echo 1)" '
        /^\.Bd -literal -offset indent/ { n = 0; inside = 1; next }
        /^\.Ed/ { inside = 0; keep = 0; next }
        inside {
            if (++n == 1)
                keep = all || /^(import|with) /
            gsub(/\\e/, "\\"); gsub(/\\&/, ""); gsub(/\\-/, "-")
            if (keep)
                print
        }' "$SPX_ROOT/man/$1.in"
}

# run_snippets PAGE PRELUDE: they run after the prelude, in which names that the page takes for given are set.
run_snippets() {
    {
        printf '%s\n' "import sys" "from unittest.mock import MagicMock" \
            "sys.modules['matplotlib'] = sys.modules['matplotlib.pyplot'] = MagicMock()" "$2"
        snippets "$1" | tee snippets
    } >page.py
    [ -s snippets ]
    "$SPX_PYTHON" page.py
}

@test "products, blocks, datasets, tables and provenance are read" { script read; }

@test "resolution matrices: the definition, SciPy, rvs-fit and h5merge agree" { script resolution; }

@test "several products on a pipe, and damaged ones" { script stream; }

@test "what is written is valid, and programs take it" { script write; }

@test "programs as functions" { script run; }

@test "astropy, specutils and matplotlib" { script bridges; }

@test "snippets of specpipe-python(7)" {
    run_snippets specpipe-python.7 ""
    h5check mine.h5 reduced.h5
}

@test "snippets of specpipe-reading(7), for every block" {
    diff <(cd "$SPX_ROOT/schemas" && ls ./*.schema | sed 's|./||; s|.schema||' | sort) \
        <(sed -n '/^\.Sh BLOCKS/,$s/^\.Ss //p' "$SPX_ROOT/man/specpipe-reading.7.in" | sort)
    cp image-r0.h5 psf-r0.h5
    specx-flat -q -o flat-r0.h5 lamp-r0-1.h5 lamp-r0-2.h5
    specx-sky -q -o sframe-r0.h5 frame-r0.h5
    specx-shift -q --lines none -o shift-r0.h5 image-r0.h5
    specx-flux -q --fit stars-r0.h5 -o cframe-r0.h5 frame-r0.h5
    rvs-fit -q -t templates.h5 --ccf -o ccf.h5 frame-r0.h5
    npz2h5 -q -l teff:1000,logg,feh,vturb --fix vturb=1.3 -o network.h5 payne.npz
    h5stack -q -o stack.h5 array.h5
    h5reduce -q -a 0 -o reduce.h5 frame-r0.h5:/frame/flux
    h5svd -q -o svd.h5 frame-r0.h5:/frame/flux
    burgers -q -o burgers.h5
    rvs-zero -q --by none --least 1 -o zero.h5 epochs.h5
    awk 'BEGIN { print "# wavelength O2"; for (w = 6380; w < 6620; w += 0.1) printf "%.1f %.4f\n", w, (w % 7 < 0.2) * 0.3 }' >lines.txt
    rvs-telluric -q --species O2 -o air.h5 lines.txt
    rvs-template -q --norm median --setup r:6400:6600:0.4:FWHM=1 -o sharp-r.h5 library.h5
    rvs-fit -q -t sharp-r.h5 --resolution-matrix --tellurics air.h5 -o tellurics.h5 frame-r0.h5
    specx-sim -q --raw amps=2 --bias --arm r --fibers 2 --wavelength 6400,6420 --format hdf5 -o one.h5
    specx-sim -q --raw amps=2 --bias --arm r --fibers 2 --wavelength 6400,6420 --noise-seed 2 --format hdf5 -o two.h5
    specx-preproc -q --combine bias -o bias-r0.h5 one.h5 two.h5
    specx-sim -q --arc Ne,Kr --fibers 10 --wavelength 5850,6450 --psf-output psf.fits -o arc.fits
    fits2h5 -q arc.fits | specx-psf -q --start psf.fits --trace-degree 4 --bundle-size 10 -o psffit-r0.h5
    "$SPX_PYTHON" -c 'import h5py
with h5py.File("insitu.h5", "w") as f:
    f["insitu/step"] = [1.0, 2.0]'
    run_snippets specpipe-reading.7 ""
}

@test "snippets of other pages; the files that they make are valid" {
    cp frame-r0.h5 frame.h5
    rvs-fit -q -t templates.h5 -o one.h5 frame-r0.h5
    specx-sim -q --arm r --fibers 4 --wavelength 6400,6500 --cosmics 3000 --no-flag-cosmics --format hdf5 -o hit.h5
    specx-extract -q -w 6410,6490,0.8 --reject 5 -o clean.h5 hit.h5
    run_snippets rvs-fit.1 ""
    run_snippets specx-extract.1 "import numpy as np; s, model = 2, np.ones(251)"
    run_snippets specpipe-schema.5 "import numpy as np
wavelength, flux, ivar = np.arange(6400, 6600, 0.8), np.ones((3, 250)), np.ones((3, 250))"
    run_snippets h5stack.1 "import numpy as np
traces, positions_km = [np.ones(30), np.ones(40)], np.zeros((2, 2))"
    h5check mine.h5 array.h5
    h5check --input mine.h5 array.h5
    h5stack -q --slowness -0.2:0.2:0.1 array.h5 -o stack.h5
}

@test "examples in the package's help" {
    "$SPX_PYTHON" -c '
import doctest, sys, specpipe.resolution, specpipe.run, specpipe.write
done = [doctest.testmod(sys.modules["specpipe." + m]) for m in ("resolution", "run", "write")]
assert sum(d.failed for d in done) == 0 and sum(d.attempted for d in done) >= 5, done'
}

@test "pip installs it, with the definition of the products" {
    "$SPX_PYTHON" -c 'import setuptools, pip, wheel' 2>/dev/null || skip "no pip, setuptools and wheel"
    # a build leaves its folders beside the sources
    cp -rL "$SPX_ROOT/python" package
    "$SPX_PYTHON" -m pip install -q --no-build-isolation --no-index --no-deps --target place ./package
    cd place
    [ "$(PYTHONPATH=. "$SPX_PYTHON" -c 'import specpipe; print(specpipe.__version__, specpipe.schema.find("/frame/flux").units != 1)')" = \
        "$(cat "$SPX_ROOT/VERSION") True" ]
    [ -e specpipe/py.typed ]
    diff <(cd specpipe/schemas && ls ./*.schema) <(cd "$SPX_ROOT/schemas" && ls ./*.schema)
}

@test "without SciPy and astropy, spectra are read and models convolved" {
    "$SPX_PYTHON" -c '
import sys
sys.modules["scipy"] = sys.modules["astropy"] = None
import specpipe
star = specpipe.open("frame-r0.h5").frame[2]
assert star.convolve([1.0] * 251).shape == (251,)
try:
    star.resolution
except ImportError:
    pass
else:
    raise AssertionError'
}
