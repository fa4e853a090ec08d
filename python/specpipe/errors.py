"""Exceptions: one for each exit status of the programs (specpipe(7), EXIT STATUS)."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple, Type


class SpecpipeError(Exception):
    """A program failed, or a file cannot be used.

    Attributes
    ----------
    status : int
        Exit status of the program; 3 for a file that this package cannot use, negative where a signal ended the program.
    program : str
        Its name, or empty.
    message : str
        What it said: the message of the error, or all of its standard error.
    command : tuple of str
        Its command line; empty where none was run.
    output : bytes
        What it had written on standard output.
    """

    status = 70

    def __init__(
        self, message: str, status: int = 0, program: str = "", command: Sequence[str] = (), output: bytes = b""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status if status != 0 else type(self).status
        self.program = program
        self.command: Tuple[str, ...] = tuple(command)
        self.output = output

    def __str__(self) -> str:
        return f"{self.program}: {self.message} (exit status {self.status})" if self.program else self.message


class NoResult(SpecpipeError):
    """The answer is no: a file is invalid, no star could be fitted."""

    status = 1


class UsageError(SpecpipeError):
    """Wrong options."""

    status = 2


class InputError(SpecpipeError, ValueError):
    """Bad input."""

    status = 3


class MachineError(SpecpipeError, OSError):
    """Reading, writing or memory failed."""

    status = 4


class DeviceError(SpecpipeError):
    """The device asked for is missing or failed."""

    status = 5


class HookError(SpecpipeError):
    """The function of ``--hook`` raised an exception."""

    status = 6


class ProgramNotFound(SpecpipeError, FileNotFoundError):
    """The program is not installed, or not where it is looked for."""

    status = 127


class MissingBlock(InputError, KeyError):
    """The product does not hold this block, dataset or column."""


class SpecpipeWarning(UserWarning):
    """A warning of a program."""


BY_STATUS: Dict[int, Type[SpecpipeError]] = {
    c.status: c for c in (NoResult, UsageError, InputError, MachineError, DeviceError, HookError)
}
