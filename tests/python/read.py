"""Products as objects: against h5table and h5py, for every golden product."""

import csv
import glob
import io
import os
import shutil

import h5py
import numpy as np
import specpipe
from must import raises, shell
from specpipe import Block, InputError, Mask, MissingBlock, Table, Values, Wavelength

root = os.environ["SPX_ROOT"]


def text_table(command):
    return list(csv.DictReader(io.StringIO(shell(command).decode())))


def everything(block):
    """Reads all that a block holds; number of datasets."""
    n = 0
    for name in block.names:
        it = block[name]
        if isinstance(it, Block):
            n += everything(it)
        elif isinstance(it, Table):
            assert len(it.units) == len(it.columns) and [len(it[c]) for c in it.columns] == [len(it)] * len(it.columns)
            n += 1
        else:
            assert isinstance(it, Values) and it[...].shape == it.shape and it.unit and it.description
            n += 1
    return n


# every golden product: each block, each dataset, as h5py has it
kinds = set()
for path in sorted(glob.glob(root + "/tests/data/golden/*/*.h5")):
    with specpipe.open(path) as p, h5py.File(path, "r") as f:
        assert p.name == f.attrs.get("product", "") and (p.name or "traces") in p
        for b in p.blocks:
            if b in ("fits", "provenance") or not isinstance(f[b], h5py.Group):
                continue
            kinds.add(b)
            count = []
            f[b].visititems(lambda n, o: count.append(n) if isinstance(o, h5py.Dataset) else None)
            assert everything(p.block(b)) == len(count), (path, b)
            assert type(p.block(b)).__name__.lower() in (b, "block"), b
        for t in p.tables:
            assert p.table(t).array.tobytes() == f[t][...].tobytes()
        assert len(p.provenance) == len(f.get("provenance", ()))
        assert all(r["program"] and r["version"] and r["command_line"] for r in p.provenance)
for name in ("frame", "spectra", "rvfit", "sky", "flat", "flux", "shift", "psf", "image", "library", "templates"):
    assert name in kinds, name

# spectra, against h5table: wavelength, flux, ivar and mask of a row of each arm
p = specpipe.open("spectra.h5")
assert list(p.spectra) == ["b", "r", "z"] and p.spectra.nspec == 8
rows = text_table("h5table --csv --spectrum 5 spectra.h5")
for arm in p.spectra.values():
    s, t = arm[5], [r for r in rows if r["arm"] == arm.name]
    assert isinstance(arm.wavelength, Wavelength) and isinstance(arm.mask, Mask)
    assert arm.flux._all is None  # the row alone was read
    for name in ("wavelength", "flux", "ivar", "mask"):
        have = getattr(s, name)
        assert np.array_equal(np.array([float(r[name]) for r in t]).astype(have.dtype), have), name
    assert (s.unit, s.medium, s.frame) == ("electron/Angstrom", "vacuum", "topocentric")
    assert arm.ivar.unit == "(electron/Angstrom)^-2" and "10 %" not in arm.flux.description
    assert s.target["TARGETID"] == p.fibermap["TARGETID"][5] and arm.camera == arm.name + "0"
    assert np.array_equal(np.asarray(arm.flux)[5], s.flux) and np.array_equal((arm.flux * 2)[5], s.flux * 2)
    assert np.array_equal(arm[-3].flux, s.flux) and len(list(arm)) == 8
    assert np.array_equal(s.good, (s.mask == 0) & (s.ivar > 0)) and np.array_equal(s.weight, arm.weight()[5])
    assert np.isinf(s.error[s.ivar == 0]).all() and np.allclose(s.error[s.ivar > 0] ** -2, s.ivar[s.ivar > 0])
with raises(IndexError, "there is no row 8"):
    p.spectra["r"][8]
with raises(MissingBlock, "no arm x", "b, r, z"):
    p.spectra["x"]
with raises(MissingBlock, "holds no /sky", "/spectra"):
    p.sky
target = int(p.fibermap["TARGETID"][3])
assert p.spectra.row_of(TARGETID=target) == 3 and [s.arm for s in p.spectra.of(3)] == ["b", "r", "z"]
with raises(LookupError, "2 rows have OBJTYPE SKY"):
    p.spectra.row_of(OBJTYPE="SKY")

# a frame is spectra of one arm
f = specpipe.open("frame-r0.h5")
assert list(f.spectra) == ["r"] and np.array_equal(f.frame.flux[2], p.spectra["r"].flux[2])
assert f.spectra["r"] is f.frame and any(c.startswith("CAMERA") for c in f.frame.header)

# names of bits come from the file; without them, from the definition
shutil.copy("frame-r0.h5", "mine.h5")
with specpipe.open("mine.h5", "r+") as m:
    d = m.file["frame/mask"]
    d.attrs["flag_meanings"] = "ONE TWO FOUR EIGHT SIXTEEN F5 F6 F7 F8 F9"
    d[0, 0] = 1 | 4 | 1 << 12
mine = specpipe.open("mine.h5")
m = mine.frame
assert m.mask.names(m.mask[0, 0]) == ["ONE", "FOUR", "bit 4096"] == m[0].flag_names(0)
assert m.mask.has("FOUR", "EIGHT")[0, 0] and not m.mask.has("TWO")[0, 0] and m[0].has("ONE")[0]
with raises(MissingBlock, "no bit COSMIC", "ONE, TWO"):
    m.mask.has("COSMIC")
mine.close()
with specpipe.open("mine.h5", "r+") as c:
    del c.file["frame/mask"].attrs["flag_meanings"]
with specpipe.open("mine.h5") as m:
    assert m.frame.flags["COSMIC"] == 4 == f.frame.flags["COSMIC"]
# signed masks of other programs have the same bits
with specpipe.open("mine.h5", "r+") as c:
    del c.file["frame/mask"]
    c.file["frame/mask"] = np.full(f.frame.flux.shape, -(2**31), np.int32)
with specpipe.open("mine.h5") as m:
    assert m.frame[0].flag_names(0) == ["bit 2147483648"]

# wavelengths: the words of the file, in any case of letters, and its unit
with specpipe.open("mine.h5", "r+") as c:
    w = c.file["frame/wavelength"]
    w.attrs.update(medium="AIR", frame="Barycentric", units="nm")
    w[...] = w[...] / 10
with specpipe.open("mine.h5") as m:
    w = m.frame.wavelength
    assert (w.medium, w.frame, w.unit) == ("air", "barycentric", "Angstrom") and np.allclose(w, f.frame.wavelength)
for name, value in (("medium", "water"), ("units", "furlong")):
    with specpipe.open("mine.h5", "r+") as c:
        c.file["frame/wavelength"].attrs[name] = value
    with specpipe.open("mine.h5") as m, raises(InputError, value):
        m.frame.wavelength.medium

# a newer version, another type, a closed product
with specpipe.open("mine.h5", "r+") as c:
    c.file["frame"].attrs["version"] = "2.0"
with specpipe.open("mine.h5") as m, raises(InputError, "schema version 2.0", "use a newer"):
    m.frame
with specpipe.open("mine.h5", "r+") as c:
    c.file["frame"].attrs["type"] = "psf"
with specpipe.open("mine.h5") as m, raises(InputError, "type 'psf'"):
    m.frame
with specpipe.open("frame-b0.h5") as c:
    arm, flux = c.frame, c.frame.flux
    kept = np.asarray(c.frame.wavelength)
assert len(kept) == 251
with raises(ValueError, "closed"):
    flux[0]
with raises(ValueError, "closed"):
    c.frame.product.psf

# the table of a fit, its models, and which spectra they belong to
rv = specpipe.open("rv.h5")
t = rv.rvfit.table
assert [f"{v:.6f}" for v in t["VRAD"]] == [f"{float(r['VRAD']):.6f}" for r in text_table("h5table --csv rv.h5")]
assert t.units["VRAD"] == "km/s" and t["OBJTYPE"].dtype.kind == "U" and set(t["OBJTYPE"]) == {"TGT"}
assert t.descriptions["VRAD"] == "Radial velocity" and t[0]["FIBER"] == 0 and "VRAD" in t and len(list(t)) == len(t) == 6
assert t["TARGETID"].dtype.isnative and t["COVAR"].shape == (6, 6, 6)
with raises(MissingBlock, "no column TEMP", "TEFF"):
    t["TEMP"]
assert list(rv.rvfit.rows_of(p.spectra)) == [0, 1, 2, 4, 5, 6]
assert rv.rvfit.explain(8 + 16) == ["parameter at the edge of the grid", "vsini > 100 km/s"] and rv.rvfit.explain(0) == []
star = p.spectra["r"].spectrum(int(rv.rvfit.rows_of(p.spectra)[2]))
chi2 = (star.weight * (star.flux - rv.rvfit.arms["r"].model[2]) ** 2).sum()
assert abs(chi2 / t["CHISQ_R"][2] - 1) < 1e-3  # models are float32

# provenance
steps = specpipe.open("frame-r0.h5").provenance
assert [s["program"] for s in steps] == ["fits2h5", "specx-extract"]
assert steps[1]["options"]["precision"] == "float" and steps[1]["device"] == "cpu" and len(steps[1]["inputs"]) == 1
assert steps[1]["step_seconds"]["extract.solve"] >= 0
setups = specpipe.open("templates.h5").provenance[-1]["options"]["setup"]
assert len(setups) == 3 and setups[0].startswith("b:5000")

# traces of a PSF, where the image has its light; templates and library by name
im = specpipe.open("image-r0.h5")
light = np.where(im.image.mask[...] == 0, im.image.data[...], 0)
for fiber in (1, 4):
    y = int(round(float(im.psf.y(fiber, 6500.0))))
    x = float(im.psf.x(fiber, 6500.0))
    rows = light[y - 10 : y + 11, int(x) - 3 : int(x) + 5].sum(0)
    assert abs((rows * (np.arange(int(x) - 3, int(x) + 5))).sum() / rows.sum() - x) < 0.3
assert 0.8 < im.psf.parameter("GHSIGX", 3, 6500.0) < 1.3
with raises(MissingBlock, "no parameter", "GHSIGX"):
    im.psf.parameter("SIGMA", 0, 6500.0)
lib = specpipe.open("library.h5").library
assert sorted(set(lib.parameters["teff"])) == [5000, 5500, 6000] and len(lib.flux) == len(lib.parameters["feh"])
setup = specpipe.open("templates.h5").templates.setups["r"]
assert np.array_equal(setup.flux, np.exp(setup.lnflux[:])) and set(setup.parameters) == set(lib.parameters)
tr = specpipe.open("array.h5").traces
assert len(tr) == 9 and np.array_equal(tr[8], tr.data[int(tr.start[8]) : int(tr.start[9])])

# coadds: which exposures a star has
fibermap = {n: p.fibermap.array[n] for n in p.fibermap.columns}
noise = np.random.default_rng(3)
night2 = {}
for a in p.spectra.values():
    d = specpipe.ArmData.of(a)
    d.flux = d.flux + noise.normal(size=d.flux.shape) / np.sqrt(np.maximum(d.ivar, 1e-9)) * (d.ivar > 0)
    night2[a.name] = d
specpipe.write_spectra("night2.h5", night2, fibermap={**fibermap, "EXPID": [2] * 8}).close()
shell("h5merge -q --coadd auto --allow-topocentric spectra.h5 night2.h5 -o coadd.h5")
c = specpipe.open("coadd.h5")
e = c.spectra.exposures(2)
assert len(e) == 2 and {r["TARGETID"] for r in e} == {int(c.fibermap["TARGETID"][2])} and e[0]["COADD_SCALE_R"] > 0

# no HDF5
with raises(InputError, "FITS", "fits2h5"):
    specpipe.open("preproc-r0.fits")
with raises(specpipe.MachineError, "nothing.h5: cannot open"):
    specpipe.open("nothing.h5")
