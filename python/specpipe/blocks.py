"""Blocks of a product: groups of datasets that the definition names (specpipe-schema(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Generic, List, Optional, Type, TypeVar

import h5py
import numpy as np
import numpy.typing as npt

from . import bridges, schema
from .errors import InputError, MissingBlock
from .tables import Table
from .values import Mask, Values, Wavelength, strings, text, values

if TYPE_CHECKING:
    from .product import Product
    from .spectra import Spectra

Array = npt.NDArray[Any]


class Block:
    """A group of a product: ``block["name"]`` is a dataset (`Values`), a `Table`, or a group within (`Block`).

    Attributes
    ----------
    path : str
    product : Product
    attributes : dict
        Attributes of the group; texts as str.
    """

    def __init__(self, group: h5py.Group, product: "Product") -> None:
        self._group = group
        self._found: Dict[str, Any] = {}
        self.path: str = group.name
        self.product = product
        self.attributes: Dict[str, Any] = {
            k: text(v) if isinstance(v, (bytes, str)) else v for k, v in dict(group.attrs).items()
        }
        version = self.attributes.get("version", "1.0")
        item = schema.find(self.path)
        known = item.version if item else version
        if item is not None and self.attributes.get("type", item.block) != item.block:
            raise InputError(f"{self}: is a block of type '{self.attributes['type']}', not '{item.block}'")
        if version.split(".")[0].isdigit() and int(version.split(".")[0]) > int(known.split(".")[0]):
            raise InputError(f"{self}: was written with schema version {version}, this package knows {known}: use a newer one")

    def __str__(self) -> str:
        return f"{self.product}:{self.path}"

    @property
    def names(self) -> List[str]:
        """Names of the datasets, tables and groups in it."""
        return [n for n in self._group if self._group.get(n, getclass=True) is not h5py.Datatype]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._group

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            if name not in self._group:
                raise MissingBlock(f"{self}: there is no {name}: it has {', '.join(self.names)}")
            it = self._group[name]
            if isinstance(it, h5py.Group):
                self._found[name] = Block(it, self.product)
            elif it.dtype.kind == "V" and it.dtype.names:
                self._found[name] = Table(it)
            else:
                self._found[name] = values(it)
        return self._found[name]

    @property
    def header(self) -> List[str]:
        """FITS header cards, 80 characters each, verbatim; empty where there are none."""
        return [c.ljust(80) for c in strings(self["header"])] if "header" in self else []

    def fits_header(self) -> Any:
        """The cards as an ``astropy.io.fits.Header``."""
        return bridges.fits_header(self.header)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}: {', '.join(self.names)}>"


_T = TypeVar("_T")


class _Data(Generic[_T]):
    """Property of a block that is the dataset of its name; its help is the definition's."""

    def __init__(self, kind: Type[_T], path: str) -> None:
        self._kind: Type[_T] = kind
        self._name = path.rsplit("/", 1)[1]
        item = schema.find(path)
        assert item is not None, path
        self.__doc__ = item.meaning

    def __get__(self, block: Optional[Block], owner: Optional[type] = None) -> _T:
        if block is None:
            return self  # type: ignore[return-value]
        found = Block.__getitem__(block, self._name)
        if not isinstance(found, self._kind):
            raise InputError(f"{block}/{self._name}: is not what its name says")
        return found


class Image(Block):
    """Pre-processed CCD image."""

    data = _Data(Values, "/image/data")
    ivar = _Data(Values, "/image/ivar")
    mask = _Data(Values, "/image/mask")
    readnoise = _Data(Values, "/image/readnoise")


class Psf(Block):
    """Gauss-Hermite point-spread function: traces and parameters as functions of fibre and wavelength."""

    xtrace = _Data(Values, "/psf/xtrace")
    ytrace = _Data(Values, "/psf/ytrace")
    coeff = _Data(Values, "/psf/coeff")

    @property
    def parameters(self) -> List[str]:
        """Names of the parameters: GHSIGX, GHSIGY (pixel), GH-i-j and others."""
        return strings(self["param"])

    @staticmethod
    def _legendre(v: Values, coefficients: Array, wavelength: npt.ArrayLike) -> Array:
        lo, hi = float(v.attributes["wavemin"]), float(v.attributes["wavemax"])
        u = 2 * (np.asarray(wavelength, float) - lo) / (hi - lo) - 1
        return np.asarray(np.polynomial.Legendre(coefficients)(u))

    def x(self, fiber: int, wavelength: npt.ArrayLike) -> Array:
        """Column of the trace's centre, pixel, at wavelengths in Angstrom."""
        return self._legendre(self.xtrace, self.xtrace[fiber], wavelength)

    def y(self, fiber: int, wavelength: npt.ArrayLike) -> Array:
        """Row at which the wavelength lies, pixel."""
        return self._legendre(self.ytrace, self.ytrace[fiber], wavelength)

    def parameter(self, name: str, fiber: int, wavelength: npt.ArrayLike) -> Array:
        """A parameter of `parameters`."""
        if name not in self.parameters:
            raise MissingBlock(f"{self}: there is no parameter {name}: it has {', '.join(self.parameters)}")
        return self._legendre(self.coeff, self.coeff[self.parameters.index(name), fiber], wavelength)


class Library(Block):
    """Model spectra on one wavelength grid."""

    wavelength = _Data(Wavelength, "/library/wavelength")
    flux = _Data(Values, "/library/flux")

    @property
    def parameters(self) -> Dict[str, Array]:
        """Parameters by name, each [ntemp]: teff (K), logg, feh, alpha."""
        p = np.asarray(self["params"])
        return {n: p[:, i] for i, n in enumerate(strings(self["parname"]))}


class Setup(Library):
    """Templates of one setup."""

    wavelength = _Data(Wavelength, "/templates/<setup>/wavelength")
    lnflux = _Data(Values, "/templates/<setup>/lnflux")

    @property
    def flux(self) -> Array:  # type: ignore[override]
        """Normalised flux, [ntemp, nwave]."""
        return np.asarray(np.exp(np.asarray(self.lnflux)))


class Templates(Block):
    """Model spectra prepared for instrument setups."""

    @property
    def setups(self) -> Dict[str, Setup]:
        """Setups by name."""
        return {n: Setup(self._group[n], self.product) for n in self.names if isinstance(self._group[n], h5py.Group)}


class Flat(Block):
    """Fibre flat field of one camera."""

    wavelength = _Data(Wavelength, "/flat/wavelength")
    flat = _Data(Values, "/flat/flat")
    ivar = _Data(Values, "/flat/ivar")
    mask = _Data(Mask, "/flat/mask")
    lamp = _Data(Values, "/flat/lamp")
    mean = _Data(Values, "/flat/mean")
    chi2 = _Data(Values, "/flat/chi2")


class Sky(Block):
    """Sky of one camera, as it was subtracted."""

    wavelength = _Data(Wavelength, "/sky/wavelength")
    sky = _Data(Values, "/sky/sky")
    covariance = _Data(Values, "/sky/covariance")
    model = _Data(Values, "/sky/model")
    variance = _Data(Values, "/sky/variance")
    mask = _Data(Mask, "/sky/mask")
    table = _Data(Table, "/sky/table")


class Flux(Block):
    """Flux calibration of one camera in one exposure."""

    wavelength = _Data(Wavelength, "/flux/wavelength")
    response = _Data(Values, "/flux/response")
    covariance = _Data(Values, "/flux/covariance")
    model_error = _Data(Values, "/flux/model_error")
    stars = _Data(Table, "/flux/stars")


class Shift(Block):
    """How far the traces have moved since the PSF was made."""

    wavelength = _Data(Wavelength, "/shift/wavelength")
    dx = _Data(Values, "/shift/dx")
    dx_error = _Data(Values, "/shift/dx_error")
    dy = _Data(Values, "/shift/dy")
    dy_error = _Data(Values, "/shift/dy_error")
    flags = _Data(Mask, "/shift/flags")


class Traces(Block):
    """Traces of an array: ``traces[j]`` are the samples of one."""

    data = _Data(Values, "/traces/data")
    start = _Data(Values, "/traces/start")
    offset = _Data(Values, "/traces/offset")
    position = _Data(Values, "/traces/position")

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, key: Any) -> Any:
        """A dataset by name, or the samples of a trace by its number."""
        if isinstance(key, str):
            return super().__getitem__(key)
        if not 0 <= key < len(self):
            raise IndexError(f"{self}: there is no trace {key}: it has {len(self)}")
        lo, hi = (int(i) for i in self.start[key : key + 2])
        return self.data[lo:hi]


class FitArm(Block):
    """Best models of one arm."""

    wavelength = _Data(Wavelength, "/rvfit/<arm>/wavelength")
    model = _Data(Values, "/rvfit/<arm>/model")
    exposure_model = _Data(Values, "/rvfit/<arm>/exposure_model")
    template_wavelength = _Data(Wavelength, "/rvfit/<arm>/template_wavelength")
    template = _Data(Values, "/rvfit/<arm>/template")


class RvFit(Block):
    """Velocities and parameters of stars, and the models that were fitted."""

    table = _Data(Table, "/rvfit/table")
    exposures = _Data(Table, "/rvfit/exposures")

    @property
    def arms(self) -> Dict[str, FitArm]:
        """Models by arm; empty after ``rvs-fit --no-model``."""
        found = {n: FitArm(self._group[n], self.product) for n in self.names if isinstance(self._group[n], h5py.Group)}
        return {n: a for n, a in found.items() if "wavelength" in a}

    def explain(self, warn: int) -> List[str]:
        """Meaning of each bit of RVS_WARN that is set."""
        item = schema.find("/rvfit/table")
        bits = {}
        for part in item.columns["RVS_WARN"].meaning.split("Bits:")[-1].split(";") if item else ():
            number, _, meaning = part.strip().partition(" ")
            if number.isdigit():
                bits[int(number)] = meaning
        return [bits.get(1 << i, f"bit {1 << i}") for i in range(32) if int(warn) >> i & 1]

    def rows_of(self, spectra: "Spectra") -> Array:
        """Row of the spectra that each row of the table was fitted to, [nstar].

        Rows are matched by TARGETID, FIBER and EXPID, as far as both have them.

        Raises
        ------
        LookupError
            A row of the table has no such spectrum, or several.
        """
        have = spectra.product.fibermap
        keys = [k for k in ("TARGETID", "FIBER", "EXPID") if k in have and k in self.table]
        if not keys:
            raise LookupError(f"{self}: neither TARGETID nor FIBER tells which spectra these are")
        place: Dict[Any, List[int]] = {}
        for i, key in enumerate(zip(*(have[k].tolist() for k in keys))):
            place.setdefault(key, []).append(i)
        rows = []
        for key in zip(*(self.table[k].tolist() for k in keys)):
            if len(place.get(key, ())) != 1:
                raise LookupError(f"{self}: {len(place.get(key, ()))} spectra have {dict(zip(keys, key))}")
            rows.append(place[key][0])
        return np.array(rows, np.intp)

    def plot(self, star: int, spectra: "Spectra") -> Any:
        """Draw a star with its model, a panel an arm, with matplotlib; returns the figure.

        Parameters
        ----------
        star : int
            Row of the table.
        spectra : Spectra
            What was fitted.
        """
        return bridges.plot_fit(self, star, spectra)
