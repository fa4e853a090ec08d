"""specutils_writes.py [PRODUCT [FITS]]: writes written.fits, a table of one spectrum; with a product: fits2h5 has made the same
of it; with FITS: so has h52fits of that."""

import sys

import h5py
import numpy as np
from astropy.io import fits
from astropy.nddata import InverseVariance
from astropy.units import Unit
from specutils import SpectrumList

try:
    from specutils import Spectrum
except ImportError:
    from specutils import Spectrum1D as Spectrum

wavelength = 5000.0 + 0.7 * np.arange(400)
flux = 10.0 + np.sin(wavelength / 9)
ivar = 4.0 + np.cos(wavelength / 11)
unit = Unit("1e-17 erg / (s cm2 Angstrom)")
if len(sys.argv) == 1:
    s = Spectrum(
        spectral_axis=wavelength * Unit("Angstrom"), flux=flux * unit, uncertainty=InverseVariance(ivar / unit**2)
    )
    s.write("written.fits", format="tabular-fits", overwrite=True)
    assert len(SpectrumList.read("written.fits", format="tabular-fits")) == 1
else:
    with h5py.File(sys.argv[1]) as h5:
        arm = next(g for g in h5["/spectra"].values() if isinstance(g, h5py.Group))
        assert np.allclose(arm["wavelength"][()], wavelength, rtol=1e-12)
        assert np.allclose(arm["flux"][()][0], flux, rtol=1e-6), arm["flux"][()][0][:5]
        assert np.allclose(arm["ivar"][()][0], ivar, rtol=1e-6), arm["ivar"][()][0][:5]
        assert Unit(arm["flux"].attrs["units"]) == unit
    if len(sys.argv) == 3:
        with fits.open(sys.argv[2]) as file:
            units = {h.name.split("_")[-1]: Unit(h.header["BUNIT"]) for h in file if "BUNIT" in h.header}
            assert units == {"WAVELENGTH": Unit("Angstrom"), "FLUX": unit, "IVAR": unit**-2}, units
