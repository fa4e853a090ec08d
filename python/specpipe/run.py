"""Programs as functions: products in memory go through pipes, messages become exceptions and warnings."""

from __future__ import annotations

import io
import logging
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
import warnings
from typing import Any, BinaryIO, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from . import stream
from .errors import BY_STATUS, InputError, ProgramNotFound, SpecpipeError, SpecpipeWarning, UsageError
from .product import Product, from_image
from .product import open as open_product

Input = Union[str, "os.PathLike[str]", Product, bytes]

log = logging.getLogger("specpipe")


def find_program(name: str) -> str:
    """Path of a program: in the folder ``SPX_BIN`` if that is set, else along ``PATH``, else beside the interpreter.

    The last is where pip puts the programs of a wheel, also in an environment that is not activated.

    Raises
    ------
    ProgramNotFound
    """
    folder = os.environ.get("SPX_BIN")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None and not folder:
        found = shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        where = f"in SPX_BIN, {folder}" if folder else "on PATH"
        raise ProgramNotFound(
            f"the program {name} is not {where}: install specpipe (make install PREFIX=...), or set SPX_BIN to the folder of "
            "its programs; pip installs them of a wheel of `make wheel` alone"
        )
    return found


def _text(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) else str(os.fspath(value) if isinstance(value, os.PathLike) else value)


class _Command:
    """Command line of a program, and what it reads from pipes."""

    def __init__(self, program: str, inputs: Sequence[Input], options: Dict[str, Any]) -> None:
        self.program = os.path.basename(program)
        self.argv = [find_program(program)]
        self.stdin: Optional[bytes] = None
        self.inherits = False
        self.pipes: List[Tuple[int, int, bytes]] = []  # read end, write end, bytes
        try:
            for name, value in options.items():
                self._option(name.replace("_", "-"), value)
            files = [self._input(x, first=True) for x in inputs]
        except BaseException:
            self.close()
            raise
        self.argv += ["--"] + files if files else []

    def _option(self, name: str, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, (bool, np.bool_)):
            self.argv.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, list):
            for v in value:
                self._option(name, v)
        elif isinstance(value, (tuple, np.ndarray)):
            self.argv.append(f"--{name}={','.join(_text(v) for v in value)}")
        elif isinstance(value, (Product, bytes)):
            self.argv.append(f"--{name}={self._input(value, first=False)}")
        else:
            self.argv.append(f"--{name}={_text(value)}")

    def _input(self, x: Input, first: bool) -> str:
        """Name under which the program finds an input."""
        if isinstance(x, Product) and x.path is not None:
            if x.file and x.file.mode == "r+":
                x.file.flush()
            return x.path
        if not isinstance(x, (Product, bytes)):
            name = os.fspath(x)
            self.inherits |= name == "-"
            return name
        data = x.image_bytes() if isinstance(x, Product) else x
        if first and self.stdin is None and not self.inherits:
            self.stdin = data
            return "-"
        r, w = os.pipe()
        self.pipes.append((r, w, data))
        return f"/dev/fd/{r}"

    def close(self) -> None:
        for r, w, _ in self.pipes:
            os.close(r)
            os.close(w)
        self.pipes = []

    def start(self) -> "_Process":
        stdin = subprocess.PIPE if self.stdin is not None else None if self.inherits else subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                self.argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[r for r, _, _ in self.pipes],
            )
        except BaseException:
            self.close()
            raise
        feeds: List[Tuple[Any, bytes]] = []
        for r, w, data in self.pipes:
            os.close(r)
            feeds.append((os.fdopen(w, "wb", buffering=0), data))
        self.pipes = []
        if process.stdin is not None:
            assert self.stdin is not None
            feeds.append((process.stdin, self.stdin))
        return _Process(self, process, feeds)


def _feed(pipe: Any, data: bytes) -> None:
    """All bytes into a pipe, as far as its reader wants them: that it stopped is its exit status's to say."""
    try:
        with pipe:
            view = memoryview(data)
            while view:
                view = view[pipe.write(view[: 1 << 20]) :]
    except (BrokenPipeError, ConnectionResetError):
        pass


class _Process:
    """A program that runs, with threads that feed it."""

    def __init__(self, command: _Command, process: "subprocess.Popen[bytes]", feeds: List[Tuple[Any, bytes]]) -> None:
        self.command, self.process = command, process
        self.said: List[bytes] = []
        self.threads = [threading.Thread(target=_feed, args=f, daemon=True) for f in feeds]
        self.threads.append(threading.Thread(target=self._listen, daemon=True))
        for t in self.threads:
            t.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as pipe:
            self.said.append(pipe.read())

    @property
    def stdout(self) -> BinaryIO:
        assert self.process.stdout is not None
        return self.process.stdout  # type: ignore[return-value]

    def stop(self) -> None:
        """End a program whose output nobody wants any more."""
        self.stdout.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()

    def finish(self, output: bytes = b"") -> None:
        """Wait for the end; raise where the exit status is not 0. `output`: what was printed."""
        status = self.process.wait()
        for t in self.threads:
            t.join()
        self.stdout.close()
        lines = b"".join(self.said).decode("utf-8", "replace").strip().splitlines()
        prefix = self.command.program + ": "
        lines = [x[len(prefix) :] if x.startswith(prefix) else x for x in lines]
        if status != 0:
            self._fail(status, lines, output)
        for x in lines:
            if x.startswith("warning: "):
                warnings.warn(prefix + x[len("warning: ") :], SpecpipeWarning, stacklevel=4)
            else:
                log.info("%s%s", prefix, x)

    def _fail(self, status: int, lines: List[str], output: bytes) -> NoReturn:
        if status < 0 or status > 128:
            n = -status if status < 0 else status - 128
            name = signal.Signals(n).name if n in set(signal.Signals) else f"signal {n}"
            lines = lines + [f"was ended by {name}"]
        kind = BY_STATUS.get(status, SpecpipeError)
        message = "\n".join(x for x in lines if not x.startswith("warning: "))
        if not message:  # h5check prints its answer
            message = output[:10000].decode("utf-8", "replace").strip() or "failed without a message"
        raise kind(message, status, self.command.program, self.command.argv, output)


def _arguments(output: Union[None, str, "os.PathLike[str]"], options: Dict[str, Any]) -> Dict[str, Any]:
    return options if output is None else {**options, "output": output}


def run(
    program: str, *inputs: Input, output: Union[None, str, "os.PathLike[str]"] = None, **options: Any
) -> Product:
    """Run a program that writes a product.

    Parameters
    ----------
    program : str
        Such as ``"rvs-fit"``; `find_program` says where it is looked for.
    *inputs : path, Product or bytes
        Files by name; products in memory, which go through pipes; bytes of an HDF5 or FITS file. A product that was opened
        from a file is read from there.
    output : path, optional
        Default: the product comes through a pipe into memory, and no file is made.
    **options
        ``templates="t.h5"`` is ``--templates=t.h5``, ``resolution_matrix=True`` is ``--resolution-matrix``, False is
        ``--no-...``, None leaves the option out. A tuple is joined by commas (``wavelength=(5900, 6850, 0.8)``), a list
        repeats the option. A Product or bytes are passed like inputs.

    Returns
    -------
    Product

    Raises
    ------
    SpecpipeError
        The program failed; the class says how (`NoResult`, `UsageError`, `InputError`, `MachineError`, `DeviceError`,
        `HookError`), the exception has its message and exit status.
    ProgramNotFound

    Warns
    -----
    SpecpipeWarning
        Warnings of a program that succeeded. What else it says goes to the logger ``specpipe``.

    Examples
    --------
    >>> fit = run("rvs-fit", run("h5merge", "b.h5", "r.h5"), templates="templates.h5")  # doctest: +SKIP
    """
    if output is not None and os.path.isdir(output):
        raise UsageError(f"{os.fspath(output)} is a folder: run_text runs a queue of files, run_all gives its products")
    data = run_bytes(program, *inputs, **_arguments(output, options))
    if output is not None:
        return open_product(output)
    if not data.startswith(stream.SIGNATURE):
        raise InputError(f"{program} wrote no product: run_text and run_bytes give what it wrote")
    found = list(stream.images(io.BytesIO(data)))
    if len(found) > 1:
        raise InputError(f"{program} wrote {len(found)} products: run_all gives them one by one")
    return from_image(found[0])


def run_all(program: str, *inputs: Input, **options: Any) -> Iterator[Product]:
    """Run a program that writes several products, as with a queue of images; gives each when it is there.

    Parameters
    ----------
    program, *inputs, **options
        As of `run`.

    Yields
    ------
    Product
        In memory. When no more are asked for, the program is ended.

    Raises
    ------
    SpecpipeError
        As of `run`, after the last product that the program wrote.
    """
    command = _Command(program, inputs, options)
    process = command.start()
    done = False
    try:
        try:
            for image in stream.images(process.stdout):
                yield from_image(image)
        except InputError:
            done = True
            process.finish()  # its own message, where it failed
            raise
        done = True
        process.finish()
    finally:
        if not done:
            process.stop()


def run_bytes(program: str, *inputs: Input, **options: Any) -> bytes:
    """Run a program; returns what it wrote on standard output, such as a FITS file of ``h52fits``.

    Parameters and exceptions as of `run`.

    Examples
    --------
    >>> hdus = astropy.io.fits.open(io.BytesIO(run_bytes("h52fits", fit)))  # doctest: +SKIP
    """
    process = _Command(program, inputs, options).start()
    data = b""
    done = False
    try:
        data = process.stdout.read()
        done = True
    finally:
        if not done:
            process.stop()
    process.finish(data)
    return data


def run_text(program: str, *inputs: Input, **options: Any) -> str:
    """Run a program that prints, such as ``h5table``, ``h5check`` or ``specpipe-info``; returns the text.

    Parameters and exceptions as of `run`.
    """
    return run_bytes(program, *inputs, **options).decode("utf-8", "replace")
