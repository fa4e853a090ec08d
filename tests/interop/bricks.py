"""bricks.py sky: places.fits, spectra of places all over the sky. bricks.py compare: BRICKID of ours.fits is desiutil's."""

import sys
import warnings

import numpy as np
from astropy.io import fits
from astropy.table import Table
from desiutil.brick import Bricks

warnings.simplefilter("ignore")
if sys.argv[1] == "sky":
    rng = np.random.default_rng(1)
    n = 2000
    ra, dec = rng.uniform(0, 360, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    ra[:6], dec[:6] = (0, 359.99999, 123, 200, 0, 180), (0, -0.126, 89.99, -89.99, 90, -90)
    table = Table({"TARGETID": np.arange(1, n + 1), "TARGET_RA": ra, "TARGET_DEC": dec})
    images = {
        "R_WAVELENGTH": np.linspace(6000, 6010, 11),
        "R_FLUX": np.ones((n, 11), "f4"),
        "R_IVAR": np.ones((n, 11), "f4"),
    }
    hdus = [fits.PrimaryHDU(), fits.BinTableHDU(table, name="FIBERMAP")]
    fits.HDUList(hdus + [fits.ImageHDU(v, name=k) for k, v in images.items()]).writeto("places.fits")
else:
    table = Table.read("ours.fits", hdu="FIBERMAP")
    want = Bricks().brickid(np.array(table["TARGET_RA"]), np.array(table["TARGET_DEC"]))
    assert len(table) == 2000 and np.array_equal(table["BRICKID"], want)
