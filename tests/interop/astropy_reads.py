"""astropy_reads.py FILE...: every HDU is standard FITS, its checksums are right, and images are the products' datasets."""

import sys
import warnings

import h5py
import numpy as np
from astropy.io import fits
from astropy.table import Table
from astropy.units import UnitsWarning

# Not a unit of the FITS standard, but the one of DESI's files.
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=UnitsWarning)

# Product and group of each file that has them, and HDU -> dataset.
FRAME = {"FLUX": "flux", "IVAR": "ivar", "MASK": "mask", "WAVELENGTH": "wavelength", "RESOLUTION": "resolution"}
ARMS = {f"{a.upper()}_{k}": f"{a}/{v}" for a in "brz" for k, v in FRAME.items()}
SOURCE = {
    "frame": ("raw.h5", "/frame", FRAME),
    "sframe": ("sky.h5", "/frame", FRAME),
    "cframe": ("calibrated.h5", "/frame", FRAME),
    "sky": ("sky.h5", "/sky", {"SKY": "model", "WAVELENGTH": "wavelength"}),
    "fiberflat": ("flat.h5", "/flat", {"FIBERFLAT": "flat", "IVAR": "ivar", "MASK": "mask", "WAVELENGTH": "wavelength"}),
    "spectra": ("spectra.h5", "/spectra", ARMS),
    "coadd": ("spectra.h5", "/spectra", ARMS),
    "preproc": ("image-r0.h5", "/image", {"IMAGE": "data", "IVAR": "ivar", "MASK": "mask"}),
    "psf": ("image-r0.h5", "/psf", {"XTRACE": "xtrace", "YTRACE": "ytrace"}),
}

for path in sys.argv[1:]:
    name = path.removeprefix("./").removesuffix(".fits")
    with fits.open(path, checksum=True, memmap=False) as file:
        file.verify("exception")
        assert file[0].header["SIMPLE"]
        for i, hdu in enumerate(file):
            hdu.header.tostring()
            if isinstance(hdu, fits.BinTableHDU):
                assert len(Table.read(file, hdu=i)) == hdu.header["NAXIS2"], (path, hdu.name)
        if name in SOURCE:
            product, group, datasets = SOURCE[name]
            with h5py.File(product) as h5:
                for hdu, dataset in datasets.items():
                    want = h5[group][dataset][()]
                    got = file[hdu].data
                    assert got.shape == want.shape and np.array_equal(got, want), (path, hdu)
    if name.startswith("rv") or name == "epochs":
        with h5py.File("epochs.h5" if name == "epochs" else "rv.h5") as h5:
            if name == "rvmod":
                with fits.open(path) as file:
                    for arm in "brz":
                        want = h5[f"/rvfit/{arm}/model"][()]
                        assert np.allclose(file[f"{arm.upper()}_MODEL"].data, want, rtol=1e-6, atol=0), arm
            else:
                table = Table.read(path, hdu="RVTAB")
                want = h5["/rvfit/table"][()]
                for column in ("TARGETID", "VRAD", "VRAD_ERR", "TEFF", "RVS_WARN"):
                    assert np.array_equal(table[column], want[column]), (path, column)
                assert table["SUCCESS"].dtype == bool and str(table["VRAD"].unit) == "km / s"
