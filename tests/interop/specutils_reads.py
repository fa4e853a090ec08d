"""specutils_reads.py: SpectrumList.read() knows the files by their content, and gives flux, ivar, mask and R with units."""

import warnings

import h5py
import numpy as np
from astropy.units import Unit
from specutils import SpectrumList

warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*did not parse as fits unit.*|.*EXTNAME='B_WAVELENGTH'.*")
with h5py.File("spectra.h5") as h5:
    for name in ("spectra", "coadd"):
        arms = SpectrumList.read(name + ".fits")
        assert [s.meta["band"] for s in arms] == ["b", "r", "z"]
        for s in arms:
            want = h5["/spectra"][s.meta["band"]]
            assert s.flux.unit == Unit("electron / Angstrom") and np.array_equal(s.flux.value, want["flux"][()])
            assert s.uncertainty.unit == Unit("Angstrom2 / electron2")
            assert np.array_equal(s.uncertainty.array, want["ivar"][()])
            assert np.array_equal(s.mask, want["mask"][()] != 0)
            assert np.array_equal(s.spectral_axis.to_value("Angstrom"), want["wavelength"][()])
            assert np.array_equal(s.meta["resolution_data"], want["resolution"][()])
        assert len(arms[0].meta["fibermap"]) == len(want["flux"])
