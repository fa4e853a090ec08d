"""rvspecfit_fits.py PYTHON: rvspecfit makes templates of the library, fits coadd.fits, and finds what rvs-fit has found;
its columns, HDUs and shapes are those of our rvtab and rvmod."""

import glob
import os
import subprocess
import sys
import warnings

import numpy as np
from astropy.io import fits
from astropy.table import Table

warnings.simplefilter("ignore")
here = os.getcwd()
main = {
    "rvs_read_grid": "rvspecfit.read_grid",
    "rvs_make_interpol": "rvspecfit.make_interpol",
    "rvs_make_nd": "rvspecfit.make_nd",
    "rvs_make_ccf": "rvspecfit.make_ccf",
    "rvs_desi_fit": "rvspecfit.desi.desi_fit",
}


def run(program, *args):
    """Its entry point, as the installed command calls it."""
    code = f"import sys; sys.argv[0] = '{program}'; from {main[program]} import main; sys.exit(main())"
    done = subprocess.run(
        [sys.argv[1], "-c", code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout.decode()[-2000:]


os.mkdir("templates")
wave = glob.glob(here + "/stars/WAVE*.fits")[0]
run("rvs_read_grid", "--prefix", here + "/stars/", "--glob_mask", "lte*fits", "--templdb", "templates/files.db")
for arm, first, last in (("b", 5000, 5200), ("r", 6400, 6600), ("z", 8500, 8700)):
    setup = ["--setup", "desi_" + arm]
    run("rvs_make_interpol", *setup, "--lambda0", first - 30, "--lambda1", last + 30, "--resol_func", "x/1.8",
        "--step", 0.5, "--templdb", "templates/files.db", "--templprefix", here + "/stars/", "--wavefile", wave,
        "--oprefix", "templates/", "--nthreads", 1)  # fmt: skip
    run("rvs_make_nd", *setup, "--prefix", "templates/")
    run("rvs_make_ccf", *setup, "--prefix", "templates/", "--oprefix", "templates/", "--lambda0", first,
        "--lambda1", last, "--step", 0.5, "--nthreads", 1, "--every", 1, "--vsinis", 0)  # fmt: skip
with open("config.yaml", "w", encoding="ascii") as f:
    f.write(f"template_lib: '{here}/templates/'\nmin_vel: -1000\nmax_vel: 1000\nmin_vel_step: 0.2\nvel_step0: 5\n")
    f.write("min_vsini: 0.1\nmax_vsini: 500\nsecond_minimizer: 1\n")
run("rvs_desi_fit", "--config", "config.yaml", "--output_dir", "out", "--no_subdirs", "--throw_exceptions", "coadd.fits")

theirs, ours = Table.read("out/rvtab_coadd.fits", hdu="RVTAB"), Table.read("rvtab.fits", hdu="RVTAB")
assert set(theirs.colnames) <= set(ours.colnames), set(theirs.colnames) - set(ours.colnames)
assert list(theirs["TARGETID"]) == list(ours["TARGETID"])
for name in theirs.colnames:
    assert theirs[name].dtype.kind == ours[name].dtype.kind, name
    assert theirs[name].unit in (None, ours[name].unit), name
# The same pixels, templates of the same library: they differ by continuum and interpolation, far less than noise.
difference = (theirs["VRAD"] - ours["VRAD"]) / ours["VRAD_ERR"]
assert np.max(np.abs(difference)) < 0.5, difference
assert np.allclose(theirs["VRAD_ERR"], ours["VRAD_ERR"], rtol=0.2)

with fits.open("out/rvmod_coadd.fits") as t, fits.open("rvmod.fits") as o:
    assert [h.name for h in t] == [h.name for h in o]
    for x, y in zip(t[1:], o[1:]):
        assert x.data.shape == y.data.shape, x.name
        if x.name.endswith("_MODEL"):
            assert np.median(np.abs(x.data / y.data - 1)) < 0.02, x.name
