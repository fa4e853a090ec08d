"""Bridges: astropy; specutils and matplotlib where they are installed."""

import importlib.util

import numpy as np
import specpipe
from astropy import units

p, rv = specpipe.open("spectra.h5"), specpipe.open("rv.h5")
t = rv.rvfit.table.to_astropy()
assert t["VRAD"].unit == units.km / units.s and t["VRAD"].description == "Radial velocity"
assert np.array_equal(t["TEFF"], rv.rvfit.table["TEFF"]) and t["OBJTYPE"][0] == "TGT" and t["LOGG"].unit is None
assert p.fibermap.to_astropy()["TARGET_RA"].unit == units.deg
assert specpipe.open("frame-r0.h5").frame.fits_header()["CAMERA"].strip().lower() == "r0"
for text, want in (
    ("electron/Angstrom", units.electron / units.AA),
    ("(electron/Angstrom)^-2", (units.electron / units.AA) ** -2),
    ("erg/s/cm2/Angstrom", units.erg / units.s / units.cm**2 / units.AA),
    ("Angstrom^-0.5", units.AA**-0.5),
    ("Angstrom**(-1/2)", units.AA**-0.5),
    ("1", units.dimensionless_unscaled),
):
    assert specpipe.bridges.unit(text) == want, text
assert specpipe.bridges.unit("furlongs per fortnight").to_string() == "furlongs per fortnight"

if importlib.util.find_spec("specutils"):
    found = p.spectra.to_specutils()
    assert type(found).__name__ == "SpectrumList" and [s.meta["arm"] for s in found] == ["b", "r", "z"]
    r, arm = found[1], p.spectra["r"]
    assert r.flux.unit == units.electron / units.AA and np.array_equal(r.flux.value, arm.flux)
    assert np.allclose(r.spectral_axis.to_value(units.AA), arm.wavelength, rtol=1e-14)
    assert np.array_equal(r.uncertainty.array, arm.ivar) and np.array_equal(r.mask, arm.weight() == 0)
    assert (r.meta["resolution"][3] != arm[3].resolution).nnz == 0 and r.meta["medium"] == "vacuum"
    assert len(r.meta["fibermap"]) == 8
    one = arm[3].to_specutils()
    assert one.flux.shape == (251,) and (one.meta["resolution"] != arm[3].resolution).nnz == 0
    assert one.meta["target"]["OBJTYPE"] == "SKY"
else:
    print("no specutils")

if importlib.util.find_spec("matplotlib"):
    import matplotlib

    matplotlib.use("Agg")
    s = p.spectra["r"][2]
    ax = s.plot(model=np.ones(251))
    drawn = ax.lines[0].get_ydata()
    assert np.array_equal(np.isnan(drawn), ~s.good) and "vacuum, topocentric" in ax.get_xlabel()
    figure = rv.rvfit.plot(2, p.spectra)
    assert len(figure.axes) == 3 and f"{rv.rvfit.table['VRAD'][2]:.2f}" in figure.axes[0].get_title()
    assert np.array_equal(figure.axes[1].lines[1].get_ydata(), rv.rvfit.arms["r"].model[2])
else:
    print("no matplotlib")
