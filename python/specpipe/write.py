"""Writers: files that h5check passes. Units, meanings and mask bits come from the definition."""

from __future__ import annotations

import io
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import h5py
import numpy as np
import numpy.typing as npt

from . import resolution, schema
from .errors import InputError, MachineError
from .product import Product, from_image
from .product import open as open_product
from .spectra import Arm
from .tables import Table
from .values import Mask, Values, strings, text

Array = npt.NDArray[Any]
Target = Union[None, str, "os.PathLike[str]"]


def version() -> str:
    """Version of specpipe that this package belongs to."""
    with io.open(os.path.join(os.path.dirname(__file__), "VERSION"), encoding="ascii") as f:
        return f.read().strip()


def replace_file(path: str, fill: Callable[[str], None], overwrite: bool) -> None:
    """Make a file that appears only when complete: a temporary one in its folder, synced and renamed."""
    folder, name = os.path.split(path)
    if not overwrite and os.path.lexists(path):
        raise MachineError(f"{path}: exists already: overwrite=True replaces it")
    temporary = ""
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{name[:100]}.specpipe-", dir=folder or ".")
        os.close(fd)
        fill(temporary)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        with io.open(temporary, "rb") as f:
            os.fsync(f.fileno())
        if overwrite:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # fails where another program was faster
    except OSError as e:
        raise MachineError(f"{path}: cannot be written: {e.strerror or e}") from e
    finally:
        if temporary and os.path.lexists(temporary):
            os.unlink(temporary)


def _type_name(t: "np.dtype[Any]") -> str:
    return "string" if t.kind in "SU" else t.name


def _cast(array: Array, types: Sequence[str], where: str) -> Array:
    """The values in one of the types that the definition allows: their own, or one that loses nothing."""
    if array.dtype.kind == "U" or array.dtype.kind == "O":
        array = np.char.encode(array.astype(str), "utf-8")
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    if not types or "any" in types or _type_name(array.dtype) in types:
        return array
    for t in types:
        if t.startswith("string") and array.dtype.kind == "S":
            width = int(t[6:]) if t[6:] else array.dtype.itemsize
            if array.dtype.itemsize > width:
                raise InputError(f"{where}: a text is longer than {width} bytes")
            return array.astype(f"S{width}")
    numbers = [np.dtype(t) for t in types if not t.startswith("string")]
    if array.dtype.kind in "buif":
        widest_first = array.dtype.kind == "f"
        for n in sorted(numbers, key=lambda t: -t.itemsize if widest_first else t.itemsize):
            if n.kind == "f" or array.dtype.kind != "f":
                with np.errstate(all="ignore"):
                    new = array.astype(n)
                if n.kind == "f" or np.array_equal(new, array):
                    return new
    raise InputError(f"{where}: is {array.dtype}, should be {' or '.join(types)}")


def _check(item: schema.Item, array: Array, where: str) -> None:
    """Rules of the definition for the values."""
    if array.dtype.kind not in "uif":
        return
    if "finite" in item.words and not np.isfinite(array).all():
        raise InputError(f"{where}: {int((~np.isfinite(array)).sum())} values are NaN or infinite: mask them, with ivar 0")
    if "nonnegative" in item.words and (array < 0).any():
        raise InputError(f"{where}: {int((array < 0).sum())} values are negative")
    if "increasing" in item.words and not (np.diff(array) > 0).all():
        raise InputError(f"{where}: values do not increase: sort the spectrum")


class Writer:
    """A product that is being written, made by `create`.

    `put` writes datasets by path; groups, units, descriptions, mask bits and dimension scales come from the definition.
    """

    def __init__(self, file: h5py.File, product: str) -> None:
        self.file = file
        self._dims: Dict[Tuple[str, str], Tuple[int, str]] = {}
        known = schema.blocks()
        if product not in known:
            raise InputError(f"there is no product {product}: specpipe-schema(5) has {', '.join(sorted(known))}")
        file.attrs.update(product=product, schema_version="1.0", creator=f"specpipe {version()} (Python)")

    def group(self, path: str, **attributes: Any) -> h5py.Group:
        """Make a group, and those above it, or find it; set its attributes."""
        at = ""
        for name in path.strip("/").split("/"):
            at += "/" + name
            if at in self.file:
                continue
            g = self.file.create_group(at)
            item = schema.find(at)
            if item is not None:
                if item.kind != "group":
                    raise InputError(f"{at}: is a {item.kind}, no group")
                g.attrs.update(type=item.block, version=item.version, long_name=item.meaning)
        g = self.file[at]
        g.attrs.update(attributes)
        return g

    def _dimensions(self, item: schema.Item, shape: Tuple[int, ...], path: str) -> None:
        if item.dims == ("...",):
            return
        if len(shape) != len(item.dims):
            raise InputError(f"{path}: has {len(shape)} dimensions, should have {len(item.dims)} [{', '.join(item.dims)}]")
        folder = path.rsplit("/", 1)[0]
        for name, n in zip(item.dims, shape):
            if name == "*":
                continue
            if name.isdigit():
                if int(name) != n:
                    raise InputError(f"{path}: has a dimension of {n}, should be {name}")
                continue
            scope = "" if name in ("nspec", "nexp") else folder
            old, first = self._dims.setdefault((scope, name), (n, path))
            if old != n:
                raise InputError(f"{path}: dimension {name} is {n}, but {old} of {first}")

    def put(self, path: str, values: Any, **attributes: Any) -> h5py.Dataset:
        """Write a dataset.

        Parameters
        ----------
        path : str
            Such as ``/frame/flux``; what the definition does not name is written, too, and needs ``units`` and
            ``long_name``.
        values : array
        **attributes
            ``units`` where the definition leaves it open, ``medium``, ``frame`` and so on.

        Raises
        ------
        InputError
            Type, shape or values are not as the definition says.
        """
        item = schema.find(path)
        if item is not None and item.kind != "data":
            raise InputError(f"{path}: is a {item.kind}: use {item.kind}()")
        array = np.asarray(values)
        if item is not None:
            array = _cast(array, item.types, path)
            self._dimensions(item, array.shape, path)
            _check(item, array, path)
            for name, allowed in item.attrs.items():
                if name not in attributes or allowed and attributes[name] not in allowed:
                    raise InputError(f"{path}: give {name}{': ' if allowed else ''}{' or '.join(allowed)}")
        else:
            array = _cast(array, (), path)
        folder, _, leaf = path.rpartition("/")
        d = (self.group(folder) if folder else self.file).create_dataset(leaf, data=array, track_times=False)
        if item is not None:
            if item.units:
                d.attrs["units"] = item.units
            if item.meaning:
                d.attrs["long_name"] = item.meaning
            if item.flags:
                self.flags(d, item.flags)
            if "scale" in item.words:
                d.make_scale(leaf)
        d.attrs.update(attributes)
        return d

    @staticmethod
    def flags(dataset: h5py.Dataset, flags: Mapping[str, int]) -> None:
        """Name the bits of a mask."""
        for name in flags:
            if not name or any(c.isspace() for c in name):
                raise InputError(f"{dataset.name}: '{name}' is no name of a mask bit: names hold no blanks")
        dataset.attrs["flag_masks"] = np.array(list(flags.values()), np.uint32)
        dataset.attrs["flag_meanings"] = " ".join(flags)

    def table(self, path: str, columns: Any, units: Optional[Mapping[str, str]] = None) -> h5py.Dataset:
        """Write a table.

        Parameters
        ----------
        path : str
            Such as ``/fibermap``.
        columns : mapping of arrays, structured array, `Table` or astropy table
        units : mapping, optional
            Units of columns, beside those of the table and of the definition.

        Raises
        ------
        InputError
            Columns have different lengths, or a required one is missing.
        """
        item = schema.find(path)
        known = item.columns if item is not None and item.kind == "table" else {}
        given, found = _columns(columns)
        found.update(units or {})
        arrays = {}
        for name, values in given.items():
            types = known[name].types if name in known else ()
            arrays[name] = _cast(np.asarray(values), types, f"{path}: column {name}")
            if name in known and known[name].units:
                have = found.setdefault(name, known[name].units)
                if known[name].required and have != known[name].units:
                    raise InputError(f"{path}: column {name} is in {have}, should be in {known[name].units}")
        for c in known.values():
            if c.required and c.name not in arrays:
                raise InputError(f"{path}: column {c.name} is missing")
        lengths = {a.shape[:1] for a in arrays.values()}
        if len(lengths) != 1 or lengths == {()}:
            raise InputError(f"{path}: columns have different lengths, or none")
        nrow = lengths.pop()
        if item is not None:
            self._dimensions(item, nrow, path)
        rows = np.zeros(nrow, [(n, _fixed(a.dtype), a.shape[1:]) for n, a in arrays.items()])
        for n, a in arrays.items():
            rows[n] = a
        folder, _, leaf = path.rpartition("/")
        d = (self.group(folder) if folder else self.file).create_dataset(leaf, data=rows, track_times=False)
        d.attrs["column_units"] = np.array([found.get(n, "") for n in arrays], "S")
        d.attrs["long_name"] = item.meaning if item is not None else path
        return d

    def attach_scales(self) -> None:
        """Attach each dimension to the axis of its group, as the definition says."""
        found: List[str] = []
        self.file.visit(found.append)
        scales = [it for it in schema.items() if "scale" in it.words]
        for name in found:
            item = schema.find("/" + name)
            if item is None or item.kind != "data":
                continue
            for axis in scales:
                sibling = f"{name.rpartition('/')[0]}/{axis.path.rpartition('/')[2]}"
                if axis is item or axis.parts()[:-1] != item.parts()[:-1] or sibling not in self.file:
                    continue
                for k, dim in enumerate(item.dims):
                    if dim == axis.dims[0]:
                        self.file[name].dims[k].attach_scale(self.file[sibling])

    def record(self, command_line: Optional[str] = None, history: Iterable[Product] = (), **options: Any) -> None:
        """Append this run to the provenance, after the records of the products that it was made from."""
        add_record(self.file, command_line, history, **options)


def _fixed(t: "np.dtype[Any]") -> "np.dtype[Any]":
    return np.dtype("S1") if t.kind == "S" and t.itemsize == 0 else t


def _columns(columns: Any) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Columns by name, and their units, of what the caller has."""
    if isinstance(columns, Table):
        return {n: columns.array[n] for n in columns.columns}, {n: u for n, u in columns.units.items() if u}
    if isinstance(columns, np.ndarray) and columns.dtype.names:
        return {n: columns[n] for n in columns.dtype.names}, {}
    if hasattr(columns, "colnames"):  # astropy
        units = {n: getattr(columns[n], "unit", None) for n in columns.colnames}
        found = {}
        for n in columns.colnames:
            c = columns[n]
            if getattr(getattr(c, "mask", None), "any", lambda: False)():
                raise InputError(f"column {n} has masked values: fill them")
            found[n] = np.asarray(getattr(c, "value", c))
        return found, {n: _unit_text(u) for n, u in units.items() if u is not None}
    return dict(columns), {}


def _unit_text(unit: Any) -> str:
    """Unit as specpipe writes it."""
    return {"deg": "degree"}.get(str(unit), str(unit).replace(" ", "")).replace("**", "^")


def add_record(file: h5py.File, command_line: Optional[str], history: Iterable[Product] = (), **options: Any) -> None:
    """Append a run of this Python program to /provenance of an open file.

    Parameters
    ----------
    file : h5py.File
    command_line : str, optional
        Default: that of the running script.
    history : products
        Their records come first; those that are there already are left out.
    **options
        Recorded as ``option: name=value``.
    """
    if "provenance" not in file:
        item = schema.find("/provenance")
        assert item is not None
        file.create_group("provenance").attrs.update(type=item.block, version=item.version, long_name=item.meaning)
    group = file["provenance"]
    records = [strings(group[n]) for n in group]

    def append(lines: List[str]) -> None:
        d = group.create_dataset(f"{len(group):03d}", data=np.array([x.encode() for x in lines], "S"), track_times=False)
        d.attrs["long_name"] = "One run of one program, as lines of text"

    inputs = []
    for product in history:
        inputs.append(str(product))
        old = product.file.get("provenance", {})
        for n in sorted(old, key=lambda n: (len(n), n)):
            lines = strings(old[n])
            if lines not in records:
                records.append(lines)
                append(lines)
    command = command_line if command_line is not None else shlex.join(sys.argv) or "python"
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-") else "python"
    lines = [f"program: {program}", f"version: {version()}", f"command_line: {command}"]
    lines += [f"option: {k}={v}" for k, v in options.items()]
    lines += [f"input: {name}" for name in inputs]
    lines.append(f"started: {datetime.now(timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    append([" ".join(x.splitlines()) for x in lines])


def create(
    target: Target,
    product: str,
    fill: Callable[[Writer], None],
    *,
    overwrite: bool = False,
    history: Iterable[Product] = (),
    command_line: Optional[str] = None,
) -> Product:
    """Write any product.

    Parameters
    ----------
    target : path or None
        None: in memory.
    product : str
        Name of its main block, such as ``"frame"``.
    fill : function
        Is called with a `Writer`, and puts the datasets there.
    overwrite : bool
        Replace a file that exists.
    history : products
        What it was made from; their provenance is kept.
    command_line : str, optional
        What made it, for the provenance. Default: the running script.

    Returns
    -------
    Product
        Open for reading.

    Examples
    --------
    >>> def fill(w):
    ...     w.put("/svd/u", [[1.0]]), w.put("/svd/s", [2.0], units="1"), w.put("/svd/v", [[1.0]]), w.put("/svd/energy", [1.0])
    >>> create(None, "svd", fill).block("svd")["s"][:]
    array([2.])
    """
    history = list(history)

    def write(where: Any) -> None:
        with h5py.File(where, "w") as f:
            w = Writer(f, product)
            fill(w)
            missing = [
                it.path
                for it in schema.items()
                if "required" in it.words and "<" not in it.path and it.path.rsplit("/", 1)[0] in f and it.path not in f
            ]
            if missing or product not in f:
                raise InputError(f"{', '.join(missing) or '/' + product}: is missing")
            w.attach_scales()
            w.record(command_line, history)

    if target is None:
        memory = io.BytesIO()
        write(memory)
        return from_image(memory.getvalue())
    replace_file(os.fspath(target), write, overwrite)
    return open_product(os.fspath(target))


@dataclass
class ArmData:
    """Spectra of one arm, to be written by `write_spectra`.

    Attributes
    ----------
    wavelength : array, [nwave]
        Bin centres, Angstrom, increasing.
    flux, ivar : array, [nspec, nwave], or [nwave]
        Flux in `unit`, and its inverse variance; 0: no information.
    medium : {"vacuum", "air"}
    frame : {"topocentric", "barycentric", "unknown"}
        Whether velocities that are measured on these wavelengths are heliocentric already.
    mask : array, optional
        Bits as in specpipe-schema(5), or as `flags` names them; or True where bad.
    resolution : array, [nspec, ndiag, nwave], or list of sparse matrices, optional
    unit : str
        Unit of flux.
    flags : dict, optional
        Names of the mask's bits.
    """

    wavelength: npt.ArrayLike
    flux: npt.ArrayLike
    ivar: npt.ArrayLike
    medium: str
    frame: str
    mask: Optional[npt.ArrayLike] = None
    resolution: Any = None
    unit: str = "1"
    flags: Optional[Mapping[str, int]] = None

    @classmethod
    def of(cls, arm: Arm) -> "ArmData":
        """A copy in memory of an arm of a product."""
        w, d = arm.wavelength, arm.diagonals
        return cls(
            w[:], arm.flux[:], arm.ivar[:], w.medium, w.frame, np.asarray(arm.mask), None if d is None else d[:],
            arm.flux.unit, arm.flags or None,
        )  # fmt: skip


def _diagonals(r: Any) -> Array:
    if isinstance(r, (np.ndarray, Values)):
        return np.asarray(r) if r.ndim == 3 else np.asarray(r)[np.newaxis]
    one = [r] if hasattr(r, "tocoo") else list(r)
    each = [resolution.diagonals(m) for m in one]
    most = max(len(d) for d in each)
    return np.stack([np.pad(d, (((most - len(d)) // 2,) * 2, (0, 0))) for d in each])


def _put_arm(w: Writer, path: str, a: Union[ArmData, Arm]) -> int:
    if isinstance(a, Arm):
        a = ArmData.of(a)
    flux, ivar = np.atleast_2d(np.asarray(a.flux)), np.atleast_2d(np.asarray(a.ivar))
    if not (np.isfinite(ivar).all() and (ivar >= 0).all()):
        raise InputError(f"{path}/ivar: is negative or not finite: bins without information have ivar 0")
    if flux.shape == ivar.shape and flux.dtype.kind == "f" and not np.isfinite(flux[ivar > 0]).all():
        raise InputError(f"{path}/flux: is not finite where ivar is not 0")
    w.put(path + "/wavelength", np.asarray(a.wavelength, float), medium=a.medium, frame=a.frame)
    if flux.dtype.kind == "f":
        flux = np.where(np.isfinite(flux), flux, flux.dtype.type(0))
    w.put(path + "/flux", flux, units=a.unit)
    w.put(path + "/ivar", ivar, units=f"({a.unit})^-2")
    if a.mask is not None:
        mask = np.atleast_2d(np.asarray(a.mask))
        if mask.dtype.kind == "b" and a.flags is None:
            item = schema.find(path + "/mask")
            assert item is not None
            mask = np.where(mask, np.uint32(item.flags["NODATA"]), np.uint32(0))
        d = w.put(path + "/mask", mask)
        if a.flags is not None:
            w.flags(d, a.flags)
    if a.resolution is not None:
        w.put(path + "/resolution", _diagonals(a.resolution))
    return len(flux)


def write_spectra(
    target: Target,
    arms: Mapping[str, Union[ArmData, Arm]],
    *,
    fibermap: Any = None,
    header: Optional[Sequence[str]] = None,
    overwrite: bool = False,
    history: Iterable[Product] = (),
    command_line: Optional[str] = None,
) -> Product:
    """Write spectra that rvs-fit, h5merge and the other programs read.

    Parameters
    ----------
    target : path or None
        None: in memory, for `specpipe.run`.
    arms : mapping
        `ArmData`, or arms of a product, by name; all have the same spectra in the same order.
    fibermap : mapping of arrays, structured array, `Table` or astropy table, optional
        A row a spectrum: TARGETID, FIBER, OBJTYPE, TARGET_RA, TARGET_DEC and others.
    header : sequence of str, optional
        FITS header cards.
    overwrite, history, command_line
        As of `create`.

    Returns
    -------
    Product

    Raises
    ------
    InputError
        Shapes contradict each other, or a value is not finite where ivar is not 0.

    Examples
    --------
    >>> arm = ArmData([5000.0, 5001.0], [1.0, 2.0], [1.0, 1.0], medium="air", frame="barycentric")
    >>> write_spectra(None, {"r": arm}).spectra["r"][0].flux
    array([1., 2.])
    """

    def fill(w: Writer) -> None:
        w.group("/spectra")
        if not arms:
            raise InputError("/spectra: there are no arms")
        for name, a in arms.items():
            if not 0 < len(name.encode()) < 16 or "/" in name:
                raise InputError(f"'{name}' is no name of an arm: 1 to 15 characters without /")
            nspec = _put_arm(w, "/spectra/" + name, a)
        if header:
            w.put("/spectra/header", [c.ljust(80) for c in header])
        if fibermap is not None:
            w.table("/fibermap", fibermap)
            if w.file["fibermap"].shape[0] != nspec:
                raise InputError(f"/fibermap: has {w.file['fibermap'].shape[0]} rows for {nspec} spectra")

    return create(target, "spectra", fill, overwrite=overwrite, history=history, command_line=command_line)


def write_library(
    target: Target,
    wavelength: npt.ArrayLike,
    flux: npt.ArrayLike,
    parameters: Mapping[str, npt.ArrayLike],
    *,
    medium: str,
    names: Optional[Sequence[str]] = None,
    unit: str = "1",
    overwrite: bool = False,
    history: Iterable[Product] = (),
    command_line: Optional[str] = None,
) -> Product:
    """Write a library of model spectra that rvs-template reads.

    Parameters
    ----------
    target : path or None
        None: in memory.
    wavelength : array, [nwave]
        Angstrom, increasing.
    flux : array, [ntemp, nwave]
        Flux per unit wavelength; positive.
    parameters : mapping of arrays, [ntemp] each
        Such as teff (K), logg, feh, alpha.
    medium : {"vacuum", "air"}
    names : sequence of str, optional
        Where each model came from.
    unit : str
        Unit of flux.
    overwrite, history, command_line
        As of `create`.

    Returns
    -------
    Product
    """

    def fill(w: Writer) -> None:
        w.put("/library/wavelength", np.asarray(wavelength, float), medium=medium)
        f = np.atleast_2d(np.asarray(flux))
        if not np.isfinite(f).all():
            raise InputError("/library/flux: values are not finite")
        w.put("/library/flux", f, units=unit)
        w.put("/library/params", np.stack([np.atleast_1d(np.asarray(p, float)) for p in parameters.values()], 1))
        w.put("/library/parname", list(parameters))
        if names is not None:
            w.put("/library/name", list(names))

    return create(target, "library", fill, overwrite=overwrite, history=history, command_line=command_line)


def write_traces(
    target: Target,
    traces: Sequence[npt.ArrayLike],
    *,
    offset: Optional[npt.ArrayLike] = None,
    position: Optional[npt.ArrayLike] = None,
    sampling_rate: Optional[float] = None,
    shift: Optional[npt.ArrayLike] = None,
    weight: Optional[npt.ArrayLike] = None,
    unit: str = "1",
    overwrite: bool = False,
    history: Iterable[Product] = (),
    command_line: Optional[str] = None,
) -> Product:
    """Write traces of an array, and shifts, that h5stack reads.

    Parameters
    ----------
    target : path or None
        None: in memory.
    traces : sequence of arrays
        Samples of each trace, of any lengths; all float32, or else all become float64.
    offset : array, [ntrace], optional
        Sample index of the first sample of each trace. Default: 0.
    position : array, [ntrace, 2], optional
        Stations, east and north, km.
    sampling_rate : float, optional
        Hz.
    shift : array, [nshift, ntrace], int, optional
        Sets of shifts, samples.
    weight : array, [nshift, ntrace], optional
        Factor of each trace, with `shift`. Default: 1.
    unit : str
        Unit of the samples.
    overwrite, history, command_line
        As of `create`.

    Returns
    -------
    Product
    """
    each = [np.asarray(t) for t in traces]
    kind = np.float32 if all(t.dtype == np.float32 for t in each) else np.float64

    def fill(w: Writer) -> None:
        if not each:
            raise InputError("/traces: there are none")
        w.group("/traces", **({} if sampling_rate is None else {"sampling_rate": float(sampling_rate)}))
        w.put("/traces/data", np.concatenate(each).astype(kind), units=unit)
        w.put("/traces/start", np.cumsum([0] + [len(t) for t in each], dtype=np.uint64))
        first = w.put("/traces/offset", np.zeros(len(each), np.int32) if offset is None else np.asarray(offset))
        if first.shape[0] != len(each):
            raise InputError(f"/traces/offset: has {first.shape[0]} values for {len(each)} traces")
        if position is not None:
            w.put("/traces/position", np.asarray(position, float))
        if weight is not None and shift is None:
            raise InputError("/shifts/weight: weights need shifts")
        if shift is not None:
            w.put("/shifts/shift", np.atleast_2d(np.asarray(shift)))
        if weight is not None:
            w.put("/shifts/weight", np.atleast_2d(np.asarray(weight)).astype(kind))

    return create(target, "traces", fill, overwrite=overwrite, history=history, command_line=command_line)
