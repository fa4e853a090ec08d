"""Products of specpipe as objects, and its programs as functions.

    import specpipe

    frame = specpipe.open("frame-r0.h5").frame
    star = frame[3]
    star.wavelength, star.flux, star.weight, star.resolution @ model

    fit = specpipe.run("rvs-fit", "frame-r0.h5", templates="templates.h5")
    fit.rvfit.table["VRAD"]

The manual is specpipe-python(7).
"""

from . import resolution, schema
from .blocks import (
    Block,
    FitArm,
    Flat,
    Flux,
    Image,
    Library,
    Psf,
    RvFit,
    Setup,
    Shift,
    Sky,
    Templates,
    Traces,
)
from .errors import (
    DeviceError,
    HookError,
    InputError,
    MachineError,
    MissingBlock,
    NoResult,
    ProgramNotFound,
    SpecpipeError,
    SpecpipeWarning,
    UsageError,
)
from .product import Product, open, products
from .run import find_program, run, run_all, run_bytes, run_text
from .spectra import Arm, Spectra, Spectrum
from .tables import Table
from .values import Mask, Values, Wavelength
from .write import (
    ArmData,
    Writer,
    add_record,
    create,
    version,
    write_library,
    write_spectra,
    write_traces,
)

__version__ = version()

__all__ = [
    "Arm", "ArmData", "Block", "DeviceError", "FitArm", "Flat", "Flux", "HookError", "Image", "InputError", "Library",
    "MachineError", "Mask", "MissingBlock", "NoResult", "Product", "ProgramNotFound", "Psf", "RvFit", "Setup", "Shift",
    "Sky", "SpecpipeError", "SpecpipeWarning", "Spectra", "Spectrum", "Table", "Templates", "Traces", "UsageError",
    "Values", "Wavelength", "Writer", "add_record", "create", "find_program", "open", "products", "resolution", "run",
    "run_all", "run_bytes", "run_text", "schema", "version", "write_library", "write_spectra", "write_traces",
]  # fmt: skip
