"""Bridges to astropy, specutils and matplotlib, which are imported when they are used."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .blocks import RvFit
    from .spectra import Arm, Spectra, Spectrum
    from .tables import Table


def unit(text: str) -> Any:
    """A unit of a product as an astropy unit; one that astropy does not know is kept as it is, unrecognised."""
    from astropy import units

    inverse = re.fullmatch(r"\((.*)\)\^(-?[0-9]+)", text)  # of ivar
    if inverse is not None:
        base = unit(inverse.group(1))
        if not isinstance(base, units.UnrecognizedUnit):
            return base ** int(inverse.group(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", units.UnitsWarning)  # erg/s/cm2 has two slashes
        found = units.Unit(re.sub(r"\^(-?[0-9.]+)", r"**(\1)", text) if text != "1" else "", parse_strict="silent")
    return units.Unit(text, parse_strict="silent") if isinstance(found, units.UnrecognizedUnit) else found


def astropy_table(table: "Table") -> Any:
    """See `Table.to_astropy`."""
    from astropy.table import Column
    from astropy.table import Table as AstropyTable

    units, meaning = table.units, table.descriptions
    columns = []
    for n in table.columns:
        u = unit(units[n]) if units[n] else None
        columns.append(Column(table.column(n), name=n, unit=u, description=meaning.get(n)))
    return AstropyTable(columns)


def fits_header(cards: Sequence[str]) -> Any:
    """See `Block.fits_header`."""
    from astropy.io.fits import Header

    return Header.fromstring("".join(cards))


def _specutils(
    wavelength: Any, flux: Any, ivar: Any, mask: Any, flux_unit: str, meta: Mapping[str, Any]
) -> Any:  # fmt: skip
    import specutils
    from astropy import units
    from astropy.nddata import InverseVariance

    kind = getattr(specutils, "Spectrum", None) or specutils.Spectrum1D
    u = unit(flux_unit)
    return kind(
        flux=np.asarray(flux) * u,
        spectral_axis=np.asarray(wavelength) * units.AA,
        uncertainty=InverseVariance(np.asarray(ivar) * u**-2),
        mask=mask,
        meta=dict(meta),
    )


def specutils_spectrum(s: "Spectrum") -> Any:
    """See `Spectrum.to_specutils`."""
    meta: Dict[str, Any] = {
        "arm": s.arm,
        "medium": s.medium,
        "frame": s.frame,
        "target": s.target,
        "mask": s.mask,
        "mask_flags": s.flags,
        "resolution": None if s.diagonals is None else s.resolution,
    }
    return _specutils(s.wavelength, s.flux, s.ivar, ~s.good, s.unit, meta)


def specutils_arm(arm: "Arm") -> Any:
    """See `Arm.to_specutils`."""
    from .resolution import matrix

    d, w = arm.diagonals, arm.wavelength
    mask = np.asarray(arm.mask)
    fibermap = arm.product.tables.get("/fibermap")
    meta: Dict[str, Any] = {
        "arm": arm.name,
        "medium": w.medium,
        "frame": w.frame,
        "fibermap": None if fibermap is None else astropy_table(fibermap),
        "mask": mask,
        "mask_flags": arm.flags,
        "resolution": None if d is None else [matrix(one) for one in np.asarray(d)],
    }
    return _specutils(w, arm.flux, arm.ivar, arm.weight() == 0, arm.flux.unit, meta)


def specutils_list(spectra: "Spectra") -> Any:
    """See `Spectra.to_specutils`."""
    from specutils import SpectrumList

    return SpectrumList([specutils_arm(a) for a in spectra.values()])


def plot_spectrum(s: "Spectrum", ax: Any, model: Optional[npt.ArrayLike], style: Mapping[str, Any]) -> Any:
    """See `Spectrum.plot`."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots()[1]
    flux = np.where(s.good, s.flux, np.nan)
    (line,) = ax.step(s.wavelength, flux, **{"where": "mid", "linewidth": 0.8, **style})
    error = np.where(s.good, s.error, np.nan)
    ax.fill_between(s.wavelength, flux - error, flux + error, step="mid", alpha=0.2, color=line.get_color(), linewidth=0)
    if model is not None:
        ax.plot(s.wavelength, np.asarray(model), color="C1", linewidth=1)
    ax.set_xlabel(f"Wavelength ({s.medium}, {s.frame}), Angstrom")
    ax.set_ylabel("Flux" if s.unit == "1" else f"Flux, {s.unit}")
    return ax


def plot_fit(fit: "RvFit", star: int, spectra: "Spectra") -> Any:
    """See `RvFit.plot`."""
    import matplotlib.pyplot as plt

    row = int(fit.rows_of(spectra)[star])
    arms: List[str] = [n for n in spectra if n in fit.arms]
    if not arms:
        raise LookupError(f"{fit}: has no models of arms {', '.join(spectra)}: rvs-fit --no-model leaves them out")
    figure, panels = plt.subplots(len(arms), 1, squeeze=False, figsize=(9, 2.6 * len(arms)), layout="constrained")
    for ax, name in zip(panels[:, 0], arms):
        m, s = fit.arms[name], spectra[name].spectrum(row)
        s.plot(ax)
        ax.plot(m.wavelength[:], m.model[star], color="C1", linewidth=1)
    t = fit.table.row(star)
    panels[0, 0].set_title(f"{t['VRAD']:.2f} +- {t['VRAD_ERR']:.2f} km/s, RVS_WARN {t['RVS_WARN']}")
    return figure
