"""Writers: h5check passes their files, programs take them, and mistakes are named."""

import os

import astropy.table
import h5py
import numpy as np
import scipy.sparse
import specpipe
from astropy import units
from must import raises, shell, valid
from specpipe import ArmData, InputError, MachineError

rng = np.random.default_rng(5)
wave = 6410 + 0.8 * np.arange(200)


def arm(**changes):
    return ArmData(**{**dict(
        wavelength=wave, flux=100 + rng.normal(size=(3, 200)), ivar=np.ones((3, 200)), medium="vacuum", frame="barycentric",
        unit="electron/Angstrom",
    ), **changes})  # fmt: skip


# spectra: arms, masks, matrices, a fibermap of astropy
fibermap = astropy.table.Table({"TARGETID": [1, 2, 3], "OBJTYPE": ["TGT", "SKY", "TGT"], "FIBER": np.arange(3)})
fibermap["TARGET_RA"] = [1.0, 2.0, 3.0] * units.deg
fibermap["FIBERASSIGN_X"] = [0.1, 0.2, 0.3] * units.m
mask = rng.random((3, 200)) < 0.1
bits = np.where(mask, 2, 0)
flux = 100 + rng.normal(size=(3, 200)).astype("f4")
bad = flux.copy()
bad[1, 7] = np.nan
ivar = np.ones((3, 200))
ivar[1, 7] = 0
r = arm(
    flux=bad, ivar=ivar, mask=bits, flags={"GOOD_ENOUGH": 1, "BROKEN": 2}, resolution=[scipy.sparse.identity(200)] * 3
)
old = specpipe.open("rv.h5")
made = specpipe.write_spectra("mine.h5", {"r": r, "z": arm(wavelength=wave + 2000, mask=mask)}, fibermap=fibermap,
                              history=[old], header=["OBSERVER= 'me'"])  # fmt: skip
valid("mine.h5")
with made as p:
    s = p.spectra["r"][1]
    assert s.flux.dtype == np.float32 and s.flux[7] == 0 and s.ivar[7] == 0 and np.array_equal(s.flux[8:], flux[1, 8:])
    assert np.array_equal(s.has("BROKEN"), mask[1]) and not s.has("GOOD_ENOUGH").any()
    assert np.array_equal(p.spectra["z"].mask.has("NODATA"), mask)
    assert (s.resolution != scipy.sparse.identity(200)).nnz == 0
    assert p.fibermap.units["TARGET_RA"] == "degree" and p.fibermap.units["FIBERASSIGN_X"] == "m"
    assert list(p.fibermap["OBJTYPE"]) == ["TGT", "SKY", "TGT"]
    assert [x["program"] for x in p.provenance[:-1]] == [x["program"] for x in old.provenance]
    assert p.provenance[-1]["program"] == "write.py" and p.provenance[-1]["inputs"] == ["rv.h5"]
    assert p.file["spectra/r/flux"].dims[1][0] == p.file["spectra/r/wavelength"]
assert shell("h5table -q --csv -t /fibermap -c OBJTYPE mine.h5").split() == [b"OBJTYPE", b"TGT", b"SKY", b"TGT"]
shell("h5merge -q --by rows mine.h5 -o merged.h5")
valid("merged.h5")
assert (shell("stat -c %a mine.h5"), shell("stat -c %a merged.h5")) == (b"644\n",) * 2 or os.umask(0o22) != 0o22

# a single spectrum, an arm of another product, any product in memory
with specpipe.write_spectra(None, {"b": arm(flux=[1.0] * 200, ivar=[1.0] * 200)}) as p:
    p.save("one.h5")
    assert p.spectra.nspec == 1 and p.path is None
valid("one.h5")
with specpipe.open("spectra.h5") as s:
    specpipe.write_spectra("copy.h5", s.spectra, fibermap=s.fibermap).close()
    with specpipe.open("copy.h5") as c:
        for n in s.spectra:
            for d in ("wavelength", "flux", "ivar", "mask", "resolution"):
                assert np.array_equal(c.spectra[n][d][...], s.spectra[n][d][...]) and c.spectra[n][d].dtype == s.spectra[n][d].dtype
valid("copy.h5")
shell("rvs-fit -q -t templates.h5 copy.h5 -o copy-rv.h5")
with specpipe.open("copy-rv.h5") as c:
    assert np.array_equal(c.rvfit.table["VRAD"], old.rvfit.table["VRAD"])

# an inventory stays in a copy, and goes when the file is changed
with specpipe.open("frame-r0.h5") as p:
    p.save("same.h5")
    with raises(MachineError, "same.h5: exists already"):
        p.save("same.h5")
    p.save("same.h5", overwrite=True)
assert open("same.h5", "rb").read() == open("frame-r0.h5", "rb").read()
assert b"as it was written" in shell("h5check -v same.h5 2>&1")
with specpipe.open("same.h5", "r+") as p:
    p.file["frame/flux"][0, 0] += 1
    specpipe.add_record(p.file, "my command", step=3)
assert b"has no inventory" in shell("h5check -v same.h5 2>&1")
assert os.path.getsize("same.h5") < os.path.getsize("frame-r0.h5") + 8192
with specpipe.open("same.h5") as p:
    assert p.provenance[-1]["command_line"] == "my command" and p.provenance[-1]["options"] == {"step": "3"}

# a library, which rvs-template takes
teff = np.repeat([5000.0, 5500, 6000], 2)
logg = np.tile([3.5, 4.5], 3)
w = np.arange(6300, 6700, 0.2)
lines = 1 - 0.5 * np.exp(-0.5 * ((w[:, None] - rng.uniform(6300, 6700, 60)) / 0.4) ** 2).sum(1)
specpipe.write_library(
    "mylibrary.h5", w, np.maximum(lines, 0.05) ** (teff[:, None] / 5500), {"teff": teff, "logg": logg}, medium="air",
    names=[f"model {i}" for i in range(6)],
).close()  # fmt: skip
valid("mylibrary.h5")
shell("rvs-template -q --setup r:6400:6600:0.5:FWHM=1.8 mylibrary.h5 -o mytemplates.h5")
valid("mytemplates.h5")

# traces, which h5stack takes: its own answer
traces = [rng.normal(size=n) for n in (30, 40, 35)]
shift = np.array([[0, 1, 2], [3, 0, -1]])
weight = np.array([[1.0, 2, 3], [1, 0, 0.5]])
specpipe.write_traces("mytraces.h5", traces, shift=shift, weight=weight, offset=[0, 5, -3], sampling_rate=50,
                      position=[[0, 1], [2, 3], [4, 5]]).close()  # fmt: skip
valid("mytraces.h5")
stack = specpipe.run("h5stack", "mytraces.h5").block("stack")
for k in range(2):
    for t, value in zip(stack["sample"][:], stack["stack"][k]):
        each = [t - o - s for o, s in zip([0, 5, -3], shift[k])]
        want = sum(w * a[int(i)] for w, a, i in zip(weight[k], traces, each) if 0 <= i < len(a))
        assert abs(value - want) < 1e-12
with specpipe.write_traces(None, [np.ones(3, "f4")] * 2) as p:
    assert p.traces.data.dtype == np.float32

# any product: what the definition requires
def svd(w):
    w.put("/svd/u", [[1.0], [0.0]])
    w.put("/svd/s", [2.0], units="1")
    w.put("/svd/v", [[1.0, 0, 0]])
    w.put("/svd/energy", [1.0])
    w.put("/mine/more", [1], units="1", long_name="Mine")


specpipe.create("svd.h5", "svd", svd).close()
valid("svd.h5")
with raises(InputError, "/svd/s, /svd/v, /svd/energy: is missing"):
    specpipe.create(None, "svd", lambda w: w.put("/svd/u", [[1.0]]))
with raises(InputError, "no product spectrum", "spectra"):
    specpipe.create(None, "spectrum", svd)

# mistakes: each is named, and leaves nothing behind
before = sorted(os.listdir("."))
for words, changes in (
    (("/spectra/r/ivar", "nwave is 199, but 200 of /spectra/r/wavelength"), dict(ivar=np.ones((3, 199)))),
    (("/spectra/r/ivar", "nspec is 2, but 3 of /spectra/r/flux"), dict(ivar=np.ones((2, 200)))),
    (("/spectra/r/ivar", "negative"), dict(ivar=-np.ones((3, 200)))),
    (("/spectra/r/flux", "not finite"), dict(flux=bad)),
    (("/spectra/r/wavelength", "do not increase"), dict(wavelength=wave[::-1])),
    (("/spectra/r/wavelength", "give medium: vacuum or air"), dict(medium="water")),
    (("/spectra/r/wavelength", "give frame: topocentric or barycentric or unknown"), dict(frame="heliocentric")),
    (("/spectra/r/mask", "float64", "uint32"), dict(mask=np.full((3, 200), 0.5))),
    (("/spectra/r/flux", "should be float32 or float64"), dict(flux=np.full((3, 200), "x"))),
    (("BAD ONE", "blanks"), dict(mask=bits, flags={"BAD ONE": 1})),
):
    with raises(InputError, *words):
        specpipe.write_spectra("bad.h5", {"r": arm(**changes)})
with raises(InputError, "/fibermap", "nspec is 2, but 3"):
    specpipe.write_spectra("bad.h5", {"r": arm()}, fibermap={"TARGETID": [1, 2]})
with raises(InputError, "/fibermap", "different lengths"):
    specpipe.write_spectra("bad.h5", {"r": arm()}, fibermap={"TARGETID": [1, 2, 3], "FIBER": [1]})
with raises(InputError, "TARGETID", "int64"):
    specpipe.write_spectra("bad.h5", {"r": arm()}, fibermap={"TARGETID": [1.5, 2, 3]})
with raises(InputError, "no name of an arm"):
    specpipe.write_spectra("bad.h5", {"r/b": arm()})
with raises(MachineError, "mine.h5: exists already"):
    specpipe.write_spectra("mine.h5", {"r": arm()})
with raises(MachineError, "no/such.h5: cannot be written"):
    specpipe.write_spectra("no/such.h5", {"r": arm()})
assert sorted(os.listdir(".")) == before
specpipe.write_spectra("mine.h5", {"r": arm()}, overwrite=True).close()
with h5py.File("mine.h5", "r") as f:
    assert list(f["spectra"]) == ["r"]
