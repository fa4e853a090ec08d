"""Products: HDF5 files with blocks at fixed places, as files, streams, or in memory."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Type, TypeVar, Union

import h5py

from . import blocks as kinds
from . import stream
from .errors import InputError, MachineError, MissingBlock
from .spectra import Arm, Spectra, arm_of_camera
from .tables import Table
from .values import strings, text

Source = Union[str, "os.PathLike[str]", BinaryIO, bytes, bytearray, memoryview]

_B = TypeVar("_B", bound=kinds.Block)


class Tables(Mapping[str, Table]):
    """Tables of a product by path, read when they are asked for."""

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self._read: Dict[str, Table] = {}

    def __getitem__(self, path: str) -> Table:
        path = "/" + path.strip("/")
        if path not in self._read:
            it = self._file.get(path)
            if not isinstance(it, h5py.Dataset) or it.dtype.names is None:
                raise KeyError(path)
            self._read[path] = Table(it)
        return self._read[path]

    def __iter__(self) -> Iterator[str]:
        found: List[str] = []

        def visit(name: str, it: Any) -> None:
            if isinstance(it, h5py.Dataset) and it.dtype.names is not None:
                found.append("/" + name)

        self._file.visititems(visit)
        return iter(found)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Product:
    """A product of specpipe, or a file with the same blocks that another program wrote.

    Made by `specpipe.open`, `specpipe.products`, `specpipe.run` and the writers. Use it with ``with``, or `close` it. Blocks
    are attributes; one that is not there raises `MissingBlock`, and ``"frame" in product`` asks.

    Attributes
    ----------
    file : h5py.File
        The open file.
    path : str or None
        Its name; None in memory.
    tables : mapping
        Tables by path.
    """

    def __init__(self, file: h5py.File, path: Optional[str], image: Optional[bytes]) -> None:
        self.file = file
        self.path = path
        self._image = image
        self.tables = Tables(file)
        self._blocks: Dict[str, Any] = {}
        self.attributes: Dict[str, Any] = {k: text(v) if isinstance(v, (bytes, str)) else v for k, v in file.attrs.items()}

    def __enter__(self) -> "Product":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Arrays that were read stay."""
        self.file.close()

    def __str__(self) -> str:
        return self.path or "product in memory"

    def __repr__(self) -> str:
        return f"<Product {self}: {', '.join(self.blocks) if self.file else 'closed'}>"

    @property
    def name(self) -> str:
        """Name of the main block; empty in a file of another program that does not say it."""
        return str(self.attributes.get("product", ""))

    @property
    def blocks(self) -> List[str]:
        """Names of the blocks and tables of the file."""
        return [n for n in self.file if self.file.get(n, getclass=True) is not h5py.Datatype]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.strip("/") in self.file

    def _need(self, name: str) -> Any:
        if not self.file:
            raise ValueError(f"{self}: is closed")
        if name not in self.file:
            have = ", ".join("/" + n for n in self.blocks)
            raise MissingBlock(f"{self}: holds no /{name}: it has {have}")
        return self.file[name]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._blocks:
            self._blocks[name] = make()
        return self._blocks[name]

    def _block(self, name: str, kind: Type[_B]) -> _B:
        found: _B = self._once(name, lambda: kind(self._need(name), self))
        return found

    def block(self, name: str) -> kinds.Block:
        """Any block by name, also those that have no attribute: ``product.block("svd")["s"]``."""
        return self._block(name, kinds.Block) if name not in _KINDS else self._block(name, _KINDS[name])

    @property
    def frame(self) -> Arm:
        """Extracted spectra of one camera."""

        def make() -> Arm:
            group = self._need("frame")
            camera = text(group.attrs.get("camera", ""))
            return Arm(group, self, arm_of_camera(camera))

        arm: Arm = self._once("frame", make)
        return arm

    @property
    def spectra(self) -> Spectra:
        """Spectra of all arms, from the shortest wavelengths on; a frame is spectra of one arm."""

        def make() -> Spectra:
            if "spectra" not in self.file and "frame" in self.file:
                return Spectra([self.frame], self)
            group = self._need("spectra")
            kinds.Block(group, self)  # type and version
            arms = [Arm(group[n], self, n) for n in group if isinstance(group[n], h5py.Group) and "flux" in group[n]]
            if not arms:
                raise InputError(f"{self}:/spectra: has no arms")
            return Spectra(arms, self)

        found: Spectra = self._once("spectra", make)
        return found

    @property
    def image(self) -> kinds.Image:
        """Pre-processed CCD image."""
        return self._block("image", kinds.Image)

    @property
    def psf(self) -> kinds.Psf:
        """Point-spread function."""
        return self._block("psf", kinds.Psf)

    @property
    def library(self) -> kinds.Library:
        """Library of model spectra."""
        return self._block("library", kinds.Library)

    @property
    def templates(self) -> kinds.Templates:
        """Templates of instrument setups."""
        return self._block("templates", kinds.Templates)

    @property
    def rvfit(self) -> kinds.RvFit:
        """Velocities and parameters of stars."""
        return self._block("rvfit", kinds.RvFit)

    @property
    def flat(self) -> kinds.Flat:
        """Fibre flat field."""
        return self._block("flat", kinds.Flat)

    @property
    def sky(self) -> kinds.Sky:
        """Sky that was subtracted."""
        return self._block("sky", kinds.Sky)

    @property
    def flux(self) -> kinds.Flux:
        """Flux calibration."""
        return self._block("flux", kinds.Flux)

    @property
    def shift(self) -> kinds.Shift:
        """How far the traces have moved."""
        return self._block("shift", kinds.Shift)

    @property
    def traces(self) -> kinds.Traces:
        """Traces of an array."""
        return self._block("traces", kinds.Traces)

    def table(self, path: str) -> Table:
        """Table at a path, such as ``/rvfit/table``."""
        if not self.file:
            raise ValueError(f"{self}: is closed")
        try:
            return self.tables[path]
        except KeyError:
            raise MissingBlock(f"{self}: there is no table {path}: it has {', '.join(self.tables)}") from None

    @property
    def fibermap(self) -> Table:
        """Target of each fibre, a row a spectrum."""
        return self.table("/fibermap")

    @property
    def scores(self) -> Table:
        """Quality of the extracted spectra, a row a spectrum."""
        return self.table("/scores")

    @property
    def exp_fibermap(self) -> Table:
        """Exposures of coadded spectra, a row a fibre and exposure."""
        return self.table("/exp_fibermap")

    @property
    def provenance(self) -> List[Dict[str, Any]]:
        """How the file was made: a dict a run of a program, in the order in which they ran.

        Keys: program, version, command_line; options (dict), inputs (list), step_seconds (dict of float); and, where it is
        known, device, started (UTC), host.
        """
        if "provenance" not in self.file:
            return []
        group = self.file["provenance"]
        return [_record(strings(group[n])) for n in sorted(group, key=lambda n: (len(n), n)) if n.isdigit()]

    def image_bytes(self) -> bytes:
        """The whole file, as programs read it from a pipe."""
        if self._image is not None:
            return self._image
        assert self.path is not None
        if self.file and self.file.mode == "r+":
            self.file.flush()
        with io.open(self.path, "rb") as f:
            return f.read()

    def save(self, path: Union[str, "os.PathLike[str]"], *, overwrite: bool = False) -> None:
        """Write a copy: a file that appears only when complete, as it is here, with its inventory.

        Raises
        ------
        MachineError
            The file exists, and `overwrite` is False; or it cannot be written.
        """
        from .write import replace_file

        data = self.image_bytes()

        def fill(temporary: str) -> None:
            with io.open(temporary, "wb") as f:
                f.write(data)

        replace_file(os.fspath(path), fill, overwrite)


_KINDS: Dict[str, Type[kinds.Block]] = {
    "image": kinds.Image,
    "psf": kinds.Psf,
    "library": kinds.Library,
    "templates": kinds.Templates,
    "rvfit": kinds.RvFit,
    "flat": kinds.Flat,
    "sky": kinds.Sky,
    "flux": kinds.Flux,
    "shift": kinds.Shift,
    "traces": kinds.Traces,
}


def _record(lines: List[str]) -> Dict[str, Any]:
    record: Dict[str, Any] = {"options": {}, "inputs": [], "step_seconds": {}}
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "option":
            name, _, what = value.partition("=")
            old = record["options"].get(name)
            # an option that was given several times
            record["options"][name] = what if old is None else old + [what] if isinstance(old, list) else [old, what]
        elif field == "input":
            record["inputs"].append(value)
        elif field == "step_seconds":
            name, _, seconds = value.rpartition(" ")
            record["step_seconds"][name] = float(seconds)
        else:
            record[field] = record[field] + "\n" + value if field in record else value
    return record


def from_image(image: bytes) -> Product:
    """The product whose file these bytes are."""
    try:
        return Product(h5py.File(io.BytesIO(image), "r"), None, image)
    except OSError as e:
        raise InputError(f"the product is damaged: {e}") from e


def _stream(source: Source) -> Optional[BinaryIO]:
    """Stream of a source that is no file name."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if isinstance(source, str) and source == "-":
        return sys.stdin.buffer
    return None if isinstance(source, (str, os.PathLike)) else source


def _open_file(path: str, mode: str) -> h5py.File:
    try:
        return h5py.File(path, mode)
    except OSError as e:
        # HDF5's lock fails on some cluster file systems; programs read without it, too
        if mode != "r" or "lock" not in str(e):
            raise
        return h5py.File(path, mode, locking=False)


def open(source: Source, mode: str = "r") -> Product:
    """Open a product.

    Parameters
    ----------
    source : path, binary stream, or bytes
        ``"-"`` is standard input. Of several products that follow each other the first is read, and the stream stays
        behind it; `products` gives all.
    mode : {"r", "r+"}
        With "r+", ``product.file`` may be changed. HDF5 then removes the inventory of checksums behind the file's end.

    Returns
    -------
    Product
        Nothing but the structure has been read, of a file; a stream is read whole, into memory.

    Raises
    ------
    InputError
        It is no HDF5 file, or damaged.
    MachineError
        It cannot be opened.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is 'r' or 'r+', not '{mode}'")
    s = _stream(source)
    if s is not None:
        if mode != "r":
            raise ValueError("a stream cannot be changed: save() it, and open the file")
        return from_image(next(stream.images(s)))
    path = os.fspath(source)  # type: ignore[arg-type]
    try:
        with io.open(path, "rb") as f:
            head = f.read(48)
            if not f.seekable():
                return from_image(next(stream.images(f, head)))
        return Product(_open_file(path, mode), path, None)
    except OSError as e:
        if e.errno is not None:
            raise MachineError(f"{path}: cannot open: {os.strerror(e.errno)}") from e
        what = "is a FITS file: use fits2h5" if head[:9] == b"SIMPLE  =" else f"is not an HDF5 file, or is damaged ({e})"
        raise InputError(f"{path}: {what}") from e


def products(source: Source) -> Iterator[Product]:
    """Products that follow each other on a stream or in a file, each read when it is asked for.

    Parameters
    ----------
    source : path, binary stream, or bytes
        ``"-"`` is standard input.

    Yields
    ------
    Product
        In memory, and open until it is closed, or no longer used.
    """
    s = _stream(source)
    if s is not None:
        for image in stream.images(s):
            yield from_image(image)
        return
    path = os.fspath(source)  # type: ignore[arg-type]
    try:
        f = io.open(path, "rb")
    except OSError as e:
        raise MachineError(f"{path}: cannot open: {e.strerror}") from e
    with f:
        for image in stream.images(f):
            yield from_image(image)
