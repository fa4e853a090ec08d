"""Datasets that are read when they are used, with unit and meaning; wavelengths; masks with the names of their bits."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import h5py
import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import schema
from .errors import InputError, MissingBlock

Array = npt.NDArray[Any]


def text(value: Any) -> str:
    """Text of an attribute or a name, whatever type HDF5 gives it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Values(NDArrayOperatorsMixin):
    """A dataset of a product.

    ``v[3]`` reads one row. NumPy's functions and operators read all of it, once: ``v[:]`` is a new array.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self._all: Optional[Array] = None
        self._attrs: Dict[str, Any] = dict(dataset.attrs)
        self.path: str = dataset.name
        self.shape: Tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype
        self._item = schema.find(self.path)

    @property
    def unit(self) -> str:
        """Unit as the file has it; "1" for pure numbers."""
        return text(self._attrs.get("units", self._item.units if self._item else "")) or "1"

    @property
    def description(self) -> str:
        """Meaning, from the file, or else from the definition."""
        return text(self._attrs.get("long_name", self._item.meaning if self._item else ""))

    @property
    def attributes(self) -> Dict[str, Any]:
        """Attributes of the dataset; texts as str."""
        return {k: text(v) if isinstance(v, (bytes, str)) else v for k, v in self._attrs.items()}

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self.shape[0]

    def _convert(self, values: Any) -> Any:
        return values

    def _read(self, key: Any) -> Any:
        if not self._dataset:
            raise ValueError(f"{self.path}: the product is closed: read what you need before")
        try:
            return self._convert(self._dataset[key])
        except OSError as e:
            raise InputError(f"{self.path}: cannot be read: {e}") from e

    def __getitem__(self, key: Any) -> Any:
        return self._read(key) if self._all is None else self._all[key].copy()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Array:
        if self._all is None:
            self._all = np.asarray(self._read(()))
            self._all.setflags(write=False)
        return np.array(self._all, dtype=dtype) if copy else np.asarray(self._all, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Values) else x for x in inputs), **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.dtype} {list(self.shape)}, unit {self.unit}>"


class Wavelength(Values):
    """Wavelengths of the bin centres.

    In Angstrom, as the programs read them: a file's other units of length are converted.
    """

    _ANGSTROM = {"angstrom": 1.0, "angstroms": 1.0, "aa": 1.0, "a": 1.0, "nm": 10.0, "um": 1e4, "micron": 1e4, "m": 1e10}

    def __init__(self, dataset: h5py.Dataset) -> None:
        super().__init__(dataset)
        found = text(self._attrs.get("units", "Angstrom")).strip()
        if found.lower() not in self._ANGSTROM:
            raise InputError(f"{self.path}: unit '{found}' of wavelengths is not known: convert them to Angstrom")
        self._factor = self._ANGSTROM[found.lower()]

    unit = property(lambda self: "Angstrom")  # type: ignore[assignment]

    def _convert(self, values: Any) -> Any:
        return np.asarray(values, np.float64) * self._factor

    def _word(self, name: str, choices: Sequence[str]) -> str:
        word = text(self._attrs.get(name, choices[0])).lower()
        if word not in choices:
            raise InputError(f"{self.path}: attribute {name} is '{word}', should be {' or '.join(choices)}")
        return word

    @property
    def medium(self) -> str:
        """``vacuum`` or ``air``."""
        return self._word("medium", ("vacuum", "air"))

    @property
    def frame(self) -> str:
        """``topocentric``, ``barycentric`` or ``unknown``."""
        return self._word("frame", ("topocentric", "barycentric", "unknown"))


class Mask(Values):
    """Bits of each bin; 0 is good."""

    def _convert(self, values: Any) -> Any:
        # int32 of other programs: the same bits
        return np.asarray(values).astype(np.int64).astype(np.uint32)

    @property
    def flags(self) -> Dict[str, int]:
        """Bits by name, from the attributes of the file; of a file that lacks them, from the definition."""
        if "flag_masks" in self._attrs and "flag_meanings" in self._attrs:
            bits = np.atleast_1d(self._attrs["flag_masks"])
            names = text(self._attrs["flag_meanings"]).split()
            if len(bits) != len(names):
                raise InputError(f"{self.path}: flag_masks has {len(bits)} bits, but flag_meanings names {len(names)}")
            return {n: int(b) for n, b in zip(names, bits)}
        return dict(self._item.flags) if self._item else {}

    def has(self, *names: str) -> Array:
        """True where any of the named bits is set.

        Raises
        ------
        MissingBlock
            The mask has no bit of this name.
        """
        return has_flags(np.asarray(self), self.flags, *names)

    def names(self, value: int) -> List[str]:
        """Names of the bits of one value."""
        return flag_names(value, self.flags)


def has_flags(mask: Array, flags: Dict[str, int], *names: str) -> Array:
    """True where any of the named bits is set in `mask`."""
    for n in names:
        if n not in flags:
            raise MissingBlock(f"the mask has no bit {n}: it has {', '.join(flags)}")
    return np.asarray((mask & np.uint32(sum({flags[n] for n in names}))) != 0)


def flag_names(value: int, flags: Dict[str, int]) -> List[str]:
    """Names of the bits of one value; bits without a name as ``bit 4096``."""
    value = int(value) & 0xFFFFFFFF
    known = [n for n, b in flags.items() if value & b]
    rest = value & ~sum({b for b in flags.values()})
    return known + [f"bit {1 << i}" for i in range(32) if rest >> i & 1]


def values(dataset: h5py.Dataset) -> Values:
    """The dataset as what its name and attributes say that it is."""
    item = schema.find(dataset.name)
    name = dataset.name.rsplit("/", 1)[-1]
    if "flag_masks" in dataset.attrs or (item is not None and item.flags):
        return Mask(dataset)
    if name in ("wavelength", "template_wavelength") and dataset.dtype.kind == "f":
        return Wavelength(dataset)
    return Values(dataset)


def strings(array: Union[Array, h5py.Dataset, Values]) -> List[str]:
    """Texts of a dataset, without blanks and NUL at their ends."""
    raw = np.asarray(array[...] if isinstance(array, h5py.Dataset) else array)
    return [text(x).rstrip("\0 ") for x in raw.reshape(-1)]
