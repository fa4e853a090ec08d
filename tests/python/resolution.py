"""Resolution matrices: the convention, against dense loops over its definition, and against the programs."""

import numpy as np
import scipy.sparse
import specpipe
from must import raises
from specpipe import ArmData, resolution

rng = np.random.default_rng(11)

# R[j - off, j] = resolution[k, j], off = ndiag/2 - k (schemas/frame.schema), in a loop
for ndiag, n in ((1, 5), (3, 7), (11, 20), (9, 4)):
    d, model = rng.normal(size=(3, ndiag, n)), rng.normal(size=(3, n))
    for s in range(3):
        dense = np.zeros((n, n))
        for k in range(ndiag):
            for j in range(n):
                off = ndiag // 2 - k
                if 0 <= j - off < n:
                    dense[j - off, j] = d[s, k, j]
        assert np.array_equal(resolution.matrix(d[s]).toarray(), dense)
        assert np.allclose(resolution.convolve(d[s], model[s]), dense @ model[s], rtol=0, atol=1e-13)
        back = resolution.diagonals(dense, ndiag)
        assert np.array_equal(resolution.matrix(back).toarray(), dense)
        assert np.array_equal(resolution.diagonals(scipy.sparse.csr_matrix(dense), ndiag), back)
    assert np.allclose(resolution.convolve(d, model)[1], resolution.convolve(d[1], model[1]))
    assert np.allclose(resolution.convolve(d, model[0])[2], resolution.convolve(d[2], model[0]))
with raises(ValueError, "5 diagonals"):
    resolution.diagonals(np.eye(9, k=2), 3)
with raises(ValueError, "odd"):
    resolution.diagonals(np.eye(9), 2)
with raises(ValueError, "4 samples", "5 bins"):
    resolution.convolve(np.ones((3, 5)), np.ones(4))
assert resolution.diagonals(np.eye(9, k=2)).shape == (5, 9)

# of a product: the spectrum and the arm agree with SciPy
frame = specpipe.open("frame-r0.h5").frame
models = rng.normal(size=frame.flux.shape)
out = frame.convolve(models)
for s in (0, 7):
    assert np.allclose(frame[s].resolution @ models[s], out[s], atol=1e-12)
    assert np.array_equal(frame[s].convolve(models[s]), out[s])
assert np.abs(frame[0].convolve(np.ones(251))[10:-10] - 1).max() < 0.01  # light is kept
none = specpipe.open("rv.h5")
with raises(specpipe.MissingBlock, "no resolution matrix"):
    specpipe.write_spectra(None, {"r": ArmData([1.0, 2], [1.0, 1], [1.0, 1], "air", "topocentric")}).spectra["r"][0].resolution

# What rvs-fit assumes: a star seen through a matrix that blurs light and moves it by two bins has no velocity when the
# matrix is right, and is off by two bins the other way round. The spectrum is a template without noise; rvs-fit takes the
# template's own line-spread function, of 0.96 bins, out of the matrix.
templates = specpipe.open("templates.h5").templates.setups["r"]
step = 0.8
wave = 6410.0 + step * np.arange(225)
row = int(np.argmin(np.abs(templates.parameters["teff"] - 5500)))
truth = 1e3 * np.interp(wave, templates.wavelength[:], templates.flux[row])
bins = np.arange(len(wave))


def blur(sigma):
    """Gaussian of so many bins, moved: R[i, j] is largest at j = i + 2."""
    off = bins - bins[:, None] - 2
    r = np.where(np.abs(off + 2) <= 10, np.exp(-0.5 * (off / sigma) ** 2), 0)
    return r / np.exp(-0.5 * (np.arange(-8, 9) / sigma) ** 2).sum()


moved = blur(2.0)
velocity = {}
for name, r in (("right", moved), ("wrong", moved.T)):
    flux = blur((2.0**2 - (1.8 / 2.3548 / step) ** 2) ** 0.5) @ truth
    ivar = np.full(len(wave), (100 / 1e3) ** 2)
    ivar[:12] = ivar[-12:] = 0
    arm = ArmData(wave, flux, ivar, "vacuum", "barycentric", resolution=[resolution.matrix(resolution.diagonals(r, 21))])
    with specpipe.write_spectra(None, {"r": arm}, fibermap={"TARGETID": [7]}) as product:
        assert np.array_equal(product.spectra["r"][0].resolution.toarray(), r)
        fit = specpipe.run(
            "rvs-fit", product, templates="templates.h5", resolution_matrix=True, rotation=False, vrange=(-300, 300)
        )
        velocity[name] = float(fit.rvfit.table["VRAD"][0])
bin_velocity = 299792.458 * step / 6500
assert abs(velocity["right"]) < 1, velocity
assert abs(velocity["wrong"] + 4 * bin_velocity) < 5, (velocity, bin_velocity)

# What h5merge --coadd assumes: the coadd of two exposures that see the same spectrum through different matrices is the
# spectrum through the coadd's matrix.
truth = 100 + rng.random(len(wave)) * 50
exposures = []
for n, r in enumerate((np.eye(len(wave), k=1), 0.5 * np.eye(len(wave)) + 0.5 * np.eye(len(wave), k=-1))):
    r = np.where(r.sum(1, keepdims=True) > 0, r, np.eye(len(wave)))
    arm = ArmData(
        wave, [r @ truth] * 2, np.full((2, len(wave)), 4.0 + n), "vacuum", "barycentric", resolution=[r, r],
        unit="electron/Angstrom",
    )
    exposures.append(specpipe.write_spectra(None, {"r": arm}, fibermap={"TARGETID": [5, 6], "EXPID": [n, n]}))
coadd = specpipe.run("h5merge", *exposures, coadd="auto", reject=0, scale="none").spectra["r"]
error = (coadd.flux[0] - coadd[0].convolve(truth)) * np.sqrt(coadd.ivar[0])
inner = slice(8, -8)
assert np.abs(error[inner]).max() < 0.01 * np.abs((coadd.flux[0] - truth) * np.sqrt(coadd.ivar[0]))[inner].max()
