"""desispec_reads.py: its readers take our files; what it does with them is what our programs did."""

import h5py
import numpy as np
from desispec import io
from desispec.coaddition import coadd, coadd_cameras
from desispec.fiberflat import apply_fiberflat, compute_fiberflat
from desispec.sky import compute_sky, subtract_sky
from desispec.specscore import compute_and_append_frame_scores


def close(a, b, error):
    """The largest difference, in units of the error, of what both have."""
    return np.max(np.abs(a - b)[error > 0] / error[error > 0])


frame = io.read_frame("frame.fits")
error = np.where(frame.ivar > 0, 1 / np.sqrt(np.maximum(frame.ivar, 1e-30)), 0)
with h5py.File("raw.h5") as h5:
    assert np.array_equal(frame.flux, h5["/frame/flux"][()]) and np.array_equal(frame.mask, h5["/frame/mask"][()])
    assert np.array_equal(frame.resolution_data, h5["/frame/resolution"][()])
    ours = h5["/scores"][()]
# its resolution matrix is that of specpipe-schema(5): resolution[s, k, j] = R[j - off, j], off = ndiag / 2 - k
ndiag, nwave = frame.resolution_data.shape[1:]
dense = np.zeros((nwave, nwave))
for k in range(ndiag):
    for j in range(nwave):
        if 0 <= j - (ndiag // 2 - k) < nwave:
            dense[j - (ndiag // 2 - k), j] = frame.resolution_data[3, k, j]
assert np.array_equal(frame.R[3].toarray(), dense)
# its scores are ours, where both are of the flux per Angstrom
scores = compute_and_append_frame_scores(frame, suffix="RAW", flux_per_angstrom=True)[0]
assert np.allclose(scores["SUM_RAW_COUNT_R"], ours["SUM_RAW_COUNT_R"], rtol=1e-5)

# sky: theirs of our frame, and ours subtracted by their code as by ours
subtract_sky(frame, io.read_sky("sky.fits"))
done = io.read_frame("sframe.fits")
assert close(frame.flux, done.flux, error) < 1e-3
frame = io.read_frame("frame.fits")
subtract_sky(frame, compute_sky(frame))
sky = frame.fibermap["OBJTYPE"] == "SKY"
pull = frame.flux[sky] * np.sqrt(frame.ivar[sky])
assert abs(np.median(pull)) < 0.2 and 0.7 < 1.4826 * np.median(np.abs(pull - np.median(pull))) < 1.3

# flat: theirs of our lamp, ours applied by their code
lamp = io.read_frame("lamp.fits")
assert np.isfinite(compute_fiberflat(lamp).fiberflat).all()
flat = io.read_fiberflat("fiberflat.fits")
before = lamp.flux.copy()
apply_fiberflat(lamp, flat)
good = (flat.mask == 0) & (flat.fiberflat > 0)
assert np.allclose(lamp.flux[good], (before / np.where(good, flat.fiberflat, 1))[good], rtol=1e-5)

assert io.read_frame("cframe.fits").flux.shape == (8, nwave)
assert io.read_image("preproc.fits").pix.ndim == 2

# spectra: one exposure each, so that the coadd is what went in
spectra = io.read_spectra("spectra.fits")
assert spectra.bands == ["b", "r", "z"] and spectra.num_targets() == 8
flux, ivar = spectra.flux["r"].copy(), spectra.ivar["r"].copy()
coadd(spectra)
assert np.allclose(spectra.flux["r"][ivar > 0], flux[ivar > 0], rtol=1e-5)
assert len(spectra.fibermap["COADD_NUMEXP"]) == 8
assert io.read_spectra("coadd.fits").exp_fibermap is not None
assert coadd_cameras(io.read_spectra("spectra.fits")).bands == ["brz"]
