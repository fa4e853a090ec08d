"""Programs as functions: pipes in and out of memory, messages as exceptions and warnings."""

import io
import logging
import os
import stat
import sys
import unittest.mock
import warnings

import numpy as np
import specpipe
from must import raises, shell

before = sorted(os.listdir("."))
files = specpipe.open("rv.h5").rvfit.table["VRAD"]

# in memory in and out, by standard input and further pipes, more than a pipe holds
spectra = specpipe.run("h5merge", *(specpipe.open(open(f"frame-{c}0.h5", "rb")) for c in "brz"))
assert spectra.path is None and list(spectra.spectra) == ["b", "r", "z"]
templates = specpipe.open(open("templates.h5", "rb").read())
fit = specpipe.run("rvs-fit", spectra, templates=templates)
assert np.array_equal(fit.rvfit.table["VRAD"], files)
assert [s["program"] for s in fit.provenance][-2:] == ["rvs-template", "rvs-fit"]
# by name, and to a file
fit = specpipe.run("rvs-fit", specpipe.open("spectra.h5"), templates="templates.h5", output="out.h5", model=False)
assert fit.path == "out.h5" and np.array_equal(fit.rvfit.table["VRAD"], files) and not fit.rvfit.arms

# options: tuples, lists, switches, numbers of NumPy, None
t = specpipe.run(
    "rvs-template", "library.h5", setup=["r:6400:6600:0.5:FWHM=1.8", "b:5000:5200:0.5:FWHM=1.8"], ccf=False, pca=np.float32(1e-3)
)
assert sorted(t.templates.setups) == ["b", "r"] and "ccf" not in t.templates.setups["r"]
f = specpipe.run("specx-extract", "image-r0.h5", wavelength=(6420, 6500.5, 0.8), spectra=None, reject=np.int64(0))
assert abs(f.frame.wavelength[0] - 6420) < 1e-9 and f.provenance[-1]["options"]["wavelength"] == "6420,6500.5,0.8"

# text, and FITS from memory
assert specpipe.run_text("h5table", fit, columns=("FIBER",), csv=True).split() == ["FIBER", "0", "1", "2", "4", "5", "6"]
assert specpipe.run_bytes("h52fits", spectra)[:9] == b"SIMPLE  ="
assert specpipe.run("fits2h5", open("preproc-r0.fits", "rb").read()).image.data.shape == specpipe.open("image-r0.h5").image.data.shape

os.unlink("out.h5")

# a queue: products one by one
images = ["image-b0.h5", "image-r0.h5", "image-z0.h5"]
cameras = [p.frame.camera for p in specpipe.run_all("specx-extract", *images)]
assert cameras == ["b0", "r0", "z0"]
both = b"".join(open(n, "rb").read() for n in images[:2])
assert [p.frame.camera for p in specpipe.run_all("specx-extract", both, output="-")] == ["b0", "r0"]
some = specpipe.run_all("specx-extract", *images)
assert next(some).frame.camera == "b0"
some.close()  # ends the program
with raises(specpipe.InputError, "wrote 2 products", "run_all"):
    specpipe.run("specx-extract", *images[:2])
with raises(specpipe.UsageError, "is a folder"):
    specpipe.run("specx-extract", *images, output=".")

# failures: class, exit status, message, command line
with raises(specpipe.InputError, "rvs-fit: image-r0.h5: holds no spectra", "(exit status 3)"):
    specpipe.run("rvs-fit", "image-r0.h5", templates="templates.h5")
try:
    specpipe.run("rvs-fit", spectra, templates="templates.h5", nonsense=1)
except specpipe.UsageError as e:
    assert (e.status, e.program) == (2, "rvs-fit") and "--nonsense" in e.message and "\n" not in e.message
    assert e.command[0].endswith("rvs-fit") and "--nonsense=1" in e.command
else:
    raise AssertionError("an unknown option was taken")
with raises(specpipe.SpecpipeError, "empty"):
    specpipe.run("rvs-fit", b"", templates="templates.h5")
with raises(specpipe.InputError, "standard input: is truncated"):
    specpipe.run("rvs-fit", open("spectra.h5", "rb").read()[:9999], templates="templates.h5")
with raises(specpipe.InputError, "nothing.h5"):
    list(specpipe.run_all("specx-extract", "nothing.h5", "image-r0.h5"))
with raises(specpipe.DeviceError, "exit status 5"):
    os.environ["SPX_BACKENDS"] = os.getcwd()
    specpipe.run("rvs-fit", spectra, templates="templates.h5", device="cuda")
with raises(specpipe.MachineError, "exists already"):
    specpipe.run("rvs-fit", spectra, templates="templates.h5", output="rv.h5")
with specpipe.open("frame-b0.h5") as p:
    p.save("broken.h5")
with specpipe.open("broken.h5", "r+") as p:
    del p.file["frame/ivar"]
with raises(specpipe.NoResult, "broken.h5:/frame/ivar: is missing", "(exit status 1)"):
    specpipe.run_text("h5check", "broken.h5")
with raises(specpipe.InputError, "wrote no product", "run_text"):
    specpipe.run("h5table", "rv.h5")
os.unlink("broken.h5")

# programs elsewhere, and programs that a signal ends
os.mkdir("bin")
with open("bin/kill-me", "w") as f:
    f.write("#!/bin/sh\necho 'kill-me: some words' >&2\nkill -TERM $$\n")
with open("bin/warn-me", "w") as f:
    f.write("#!/bin/sh\ncat >/dev/null\necho 'warn-me: warning: mind this' >&2\necho 'warn-me: and this' >&2\necho done\n")
for n in ("kill-me", "warn-me"):
    os.chmod("bin/" + n, stat.S_IRWXU)
with raises(specpipe.ProgramNotFound, "kill-me is not on PATH", "make install", "SPX_BIN"):
    specpipe.run("kill-me")
# where pip puts the programs of a wheel, behind PATH
with unittest.mock.patch("sysconfig.get_path", return_value=os.path.abspath("bin")):
    with raises(specpipe.SpecpipeError, "some words", "ended by SIGTERM"):
        specpipe.run("kill-me")
    assert specpipe.run("h5merge", "frame-b0.h5", "frame-r0.h5").spectra is not None
os.environ["SPX_BIN"] = os.path.abspath("bin")
with raises(specpipe.SpecpipeError, "some words", "ended by SIGTERM"):
    specpipe.run("kill-me")
with raises(FileNotFoundError, "rvs-fit is not in SPX_BIN"):
    specpipe.run("rvs-fit")
said = io.StringIO()
logging.basicConfig(stream=said, level=logging.INFO)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert specpipe.run_text("warn-me", b"x" * 200000) == "done\n"
assert [(w.category, str(w.message)) for w in caught] == [(specpipe.SpecpipeWarning, "warn-me: mind this")]
assert "warn-me: and this" in said.getvalue()
del os.environ["SPX_BIN"]
shell("rm -r bin")
assert sorted(os.listdir(".")) == before  # no file was made
assert len(os.listdir("/proc/self/fd")) < 40 or sys.platform != "linux"
