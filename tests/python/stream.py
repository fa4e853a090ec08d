"""Products on pipes: several that follow each other, with and without inventories, slow, cut, or something else."""

import io
import os
import subprocess
import threading

import numpy as np
import specpipe
from must import raises, shell
from specpipe import InputError

names = ["frame-b0.h5", "spectra.h5", "frame-r0.h5"]
files = [open(n, "rb").read() for n in names]
bare = []
for n in names:  # without inventory, as h5py leaves a file that it has changed
    with specpipe.open(n) as p:
        p.save("bare.h5", overwrite=True)
    with specpipe.open("bare.h5", "r+") as p:
        p.file.attrs["note"] = "mine"
    bare.append(open("bare.h5", "rb").read())
joined = files[0] + bare[1] + bare[2] + files[1] + files[2]
want = [["b"], ["b", "r", "z"], ["r"], ["b", "r", "z"], ["r"]]


class Raw(io.RawIOBase):
    """A stream that cannot be looked into, and gives a few bytes at a time."""

    def __init__(self, data):
        self.data = io.BytesIO(data)

    def read(self, n=-1):
        return self.data.read(min(n, 1000))


def pipe(data):
    """Read end of a pipe into which a thread writes in small pieces."""
    r, w = os.pipe()

    def feed():
        with os.fdopen(w, "wb", buffering=0) as f:
            for i in range(0, len(data), 30011):
                f.write(data[i : i + 30011])

    threading.Thread(target=feed, daemon=True).start()
    return os.fdopen(r, "rb")


with open("joined.h5", "wb") as f:
    f.write(joined)
for source in (joined, io.BytesIO(joined), Raw(joined), pipe(joined), "joined.h5", memoryview(joined)):
    assert [list(p.spectra) for p in specpipe.products(source)] == want
with specpipe.open("joined.h5") as p:  # the first alone
    assert list(p.spectra) == ["b"]

# open() takes one, and leaves the stream behind it
with pipe(joined) as s:
    for arms in want:
        assert list(specpipe.open(s).spectra) == arms
    with raises(InputError, "empty"):
        specpipe.open(s)

# an iterator reads no further than it is asked
s = io.BytesIO(joined)
first = next(specpipe.products(s))
assert s.tell() == len(files[0]) and np.array_equal(first.frame.flux, specpipe.open(names[0]).frame.flux)

# what comes in goes out as it was, with its inventory
assert first.image_bytes() == files[0]
first.save("again.h5")
assert b"as it was written" in shell("h5check -v again.h5 2>&1")

# standard input and named pipes
script = "import specpipe; print([p.name for p in specpipe.products('-')], specpipe.open('/dev/fd/3').name)"
out = shell("python3 -c \"$SCRIPT\" < joined.h5 3< <(cat spectra.h5)".replace("python3", "$SPX_PYTHON"),
            env={**os.environ, "SCRIPT": script})  # fmt: skip
assert out == b"['frame', 'spectra', 'frame', 'spectra', 'frame'] spectra\n", out

# damage
for data, words in (
    (b"", ["empty"]),
    (joined[:-5], ["truncated"]),
    (files[0][:3000], ["truncated (3000 of "]),
    (bare[0] + b"\x8bSPX\r\n\x1a\n" + b"\xff" * 100, ["damaged", "belongs to no other"]),
    (b"x" * 1000, ["no HDF5"]),
    (files[0] + b"junk", ["no HDF5"]),
    (open("preproc-r0.fits", "rb").read(), ["FITS", "fits2h5"]),
):
    for source in (data, Raw(data)):
        with raises(InputError, *words):
            list(specpipe.products(source))
done = subprocess.run(
    [os.environ["SPX_PYTHON"], "-c", "import specpipe; specpipe.open('-')"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
)
assert done.returncode == 1 and b"the stream is empty" in done.stderr
