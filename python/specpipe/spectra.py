"""Spectra, arm by arm: /frame and /spectra, and a single spectrum in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar, Union

import h5py
import numpy as np
import numpy.typing as npt

from . import bridges, resolution
from .blocks import Block
from .errors import InputError, MissingBlock
from .values import Mask, Values, Wavelength, flag_names, has_flags

if TYPE_CHECKING:
    from .product import Product

Array = npt.NDArray[Any]
_V = TypeVar("_V", bound=Values)


@dataclass
class Spectrum:
    """One spectrum of one arm, in memory.

    Attributes
    ----------
    arm : str
        Name of the arm.
    row : int
        Its row in the product.
    wavelength : array, [nwave]
        Bin centres, Angstrom.
    flux, ivar : array, [nwave]
        Flux, in `unit`, and its inverse variance; 0: no information.
    mask : array, [nwave], uint32
        Bits; 0 is good.
    flags : dict
        Bits of the mask by name.
    diagonals : array, [ndiag, nwave], or None
        Resolution matrix as the file has it; see `specpipe.resolution`.
    medium, frame : str
        ``vacuum`` or ``air``; ``topocentric``, ``barycentric`` or ``unknown``.
    unit : str
    target : dict
        Row of the fibermap; empty where there is none.
    """

    arm: str
    row: int
    wavelength: Array
    flux: Array
    ivar: Array
    mask: Array
    flags: Dict[str, int]
    diagonals: Optional[Array]
    medium: str
    frame: str
    unit: str
    target: Dict[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> Array:
        """True for bins to use: mask 0, and ivar above 0."""
        return np.asarray((self.mask == 0) & (self.ivar > 0))

    @property
    def weight(self) -> Array:
        """Inverse variance of the bins to use, 0 of all others."""
        return np.where(self.good, self.ivar, 0)

    @property
    def error(self) -> Array:
        """Standard error; infinite where ivar is 0."""
        with np.errstate(divide="ignore"):
            return np.where(self.ivar > 0, 1 / np.sqrt(np.maximum(self.ivar, 0)), np.inf)

    def has(self, *names: str) -> Array:
        """True where any of the named mask bits is set."""
        return has_flags(self.mask, self.flags, *names)

    def flag_names(self, bin: int) -> List[str]:
        """Names of the mask bits of a bin."""
        return flag_names(int(self.mask[bin]), self.flags)

    @property
    def resolution(self) -> Any:
        """Resolution matrix R, ``scipy.sparse.dia_matrix``: ``flux = R @ model``.

        Raises
        ------
        MissingBlock
            The product has none.
        """
        return resolution.matrix(self._need_diagonals())

    def _need_diagonals(self) -> Array:
        if self.diagonals is None:
            raise MissingBlock(f"arm {self.arm} has no resolution matrix: specx-extract makes one")
        return self.diagonals

    def convolve(self, model: npt.ArrayLike) -> Array:
        """The model as the instrument shows it, R @ model.

        Parameters
        ----------
        model : array, [nwave]
            Sampled at the bin centres, not averaged over bins. Lines narrower than a bin need care: see USING THE
            RESOLUTION MATRIX in specx-extract(1), also for the bins at the ends.
        """
        return resolution.convolve(self._need_diagonals(), model)

    def to_specutils(self) -> Any:
        """A ``specutils`` spectrum; the resolution matrix is ``meta["resolution"]``."""
        return bridges.specutils_spectrum(self)

    def plot(self, ax: Any = None, model: Optional[npt.ArrayLike] = None, **style: Any) -> Any:
        """Draw the spectrum with matplotlib, with gaps at bins that are not to be used; returns the axes."""
        return bridges.plot_spectrum(self, ax, model, style)


def arm_of_camera(camera: str) -> str:
    """Name of a camera's arm: the letters before the first digit (r0: r), behind a "-" that letters follow (sp1-b: b)."""
    last = camera.rsplit("-", 1)[-1]
    found = re.match("[A-Za-z][A-Za-z_]*", last) or re.match("[A-Za-z][A-Za-z_]*", camera)
    return found.group().rstrip("_").lower()[:15] if found else "frame"


class Arm(Block):
    """Spectra of one arm or camera; ``arm[3]`` is a `Spectrum`. Arrays are read when they are used."""

    def __init__(self, group: h5py.Group, product: "Product", name: str) -> None:
        super().__init__(group, product)
        self.name = name

    def _values(self, name: str, kind: Type[_V]) -> _V:
        found = self[name]
        if not isinstance(found, kind):
            raise InputError(f"{self}/{name}: is not what its name says")
        return found

    @property
    def wavelength(self) -> Wavelength:
        """Bin centres, [nwave], or [nspec, nwave] where each spectrum has its own; Angstrom, with `medium` and `frame`."""
        return self._values("wavelength", Wavelength)

    @property
    def flux(self) -> Values:
        """Flux, [nspec, nwave]."""
        return self._values("flux", Values)

    @property
    def ivar(self) -> Values:
        """Inverse variance, [nspec, nwave]; 0: no information."""
        return self._values("ivar", Values)

    @property
    def mask(self) -> Union[Mask, Array]:
        """Mask, [nspec, nwave]; all 0 where spectra have none."""
        if "mask" in self:
            return self._values("mask", Mask)
        return np.zeros(self.flux.shape, np.uint32)

    @property
    def flags(self) -> Dict[str, int]:
        """Bits of the mask by name."""
        m = self.mask
        return m.flags if isinstance(m, Mask) else {}

    @property
    def diagonals(self) -> Optional[Values]:
        """Resolution matrices by diagonals, [nspec, ndiag, nwave], or None; see `specpipe.resolution`."""
        return self._values("resolution", Values) if "resolution" in self else None

    @property
    def camera(self) -> str:
        """Camera, such as r0; empty where it is not known."""
        return str(self.attributes.get("camera", ""))

    def __len__(self) -> int:
        return len(self.flux)

    def __iter__(self) -> Iterator[Spectrum]:  # type: ignore[override]
        return (self.spectrum(i) for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        """A dataset by name, or a spectrum by its row."""
        return super().__getitem__(key) if isinstance(key, str) else self.spectrum(key)

    def spectrum(self, row: int) -> Spectrum:
        """The spectrum of a row, read from the file; negative rows count from the end."""
        n = len(self)
        row = int(row)
        if not -n <= row < n:
            raise IndexError(f"{self.path}: there is no row {row}: it has {n} spectra")
        row %= n
        w, d, fibermap = self.wavelength, self.diagonals, self.product.tables.get("/fibermap")
        return Spectrum(
            arm=self.name,
            row=row,
            wavelength=w[row] if len(w.shape) == 2 else w[:],
            flux=self.flux[row],
            ivar=self.ivar[row],
            mask=np.asarray(self.mask[row]),
            flags=self.flags,
            diagonals=None if d is None else d[row],
            medium=w.medium,
            frame=w.frame,
            unit=self.flux.unit,
            target={} if fibermap is None else fibermap.row(row),
        )

    def weight(self) -> Array:
        """Inverse variance of the bins to use, [nspec, nwave]; 0 of all others."""
        return np.where(np.asarray(self.mask) == 0, np.asarray(self.ivar), 0)

    def convolve(self, models: npt.ArrayLike) -> Array:
        """R @ model of every spectrum; `models` is [nspec, nwave], or [nwave] for one that all share."""
        d = self.diagonals
        if d is None:
            raise MissingBlock(f"{self.path}: there is no resolution matrix: specx-extract makes one")
        return resolution.convolve(np.asarray(d), models)

    def to_specutils(self) -> Any:
        """A ``specutils`` spectrum with flux [nspec, nwave]; ``meta["resolution"]`` is a list of matrices."""
        return bridges.specutils_arm(self)


class Spectra(Mapping[str, Arm]):
    """Arms by name, from the shortest wavelengths on: /spectra, or a frame as spectra of one arm.

    ``spectra["r"]`` is an `Arm`; ``spectra.of(3)`` are all arms of one star.
    """

    def __init__(self, arms: Sequence[Arm], product: "Product") -> None:
        counts = {len(a) for a in arms}
        if len(counts) != 1:
            raise InputError(f"{product}: arms have different numbers of spectra: {sorted(counts)}")
        self._arms = {a.name: a for a in sorted(arms, key=lambda a: float(np.ravel(a.wavelength[:1])[0]))}
        self.product = product
        self.nspec: int = counts.pop()

    def __getitem__(self, name: str) -> Arm:
        if name not in self._arms:
            raise MissingBlock(f"{self.product}: there is no arm {name}: it has {', '.join(self._arms)}")
        return self._arms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arms)

    def __len__(self) -> int:
        return len(self._arms)

    def of(self, row: int) -> List[Spectrum]:
        """All arms of a row."""
        return [a.spectrum(row) for a in self._arms.values()]

    def row_of(self, **columns: Any) -> int:
        """Row whose fibermap has these values: ``row_of(TARGETID=39628)``.

        Raises
        ------
        LookupError
            No row has them, or several do.
        """
        t = self.product.fibermap
        match = np.ones(len(t), bool)
        for name, value in columns.items():
            match &= t[name] == value
        rows = np.flatnonzero(match)
        if len(rows) != 1:
            asked = ", ".join(f"{n} {v}" for n, v in columns.items())
            raise LookupError(f"{self.product}: {len(rows)} rows have {asked}")
        return int(rows[0])

    def exposures(self, row: int) -> List[Dict[str, Any]]:
        """Exposures that a coadded spectrum was made of: rows of /exp_fibermap with its TARGETID."""
        target, t = self.product.fibermap["TARGETID"][row], self.product.exp_fibermap
        return [t.row(int(i)) for i in np.flatnonzero(t["TARGETID"] == target)]

    def to_specutils(self) -> Any:
        """A ``specutils.SpectrumList``: an item an arm, with the resolution matrices in ``meta``."""
        return bridges.specutils_list(self)
