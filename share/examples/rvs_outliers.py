"""Which fits of rvs-fit are unlike the others: an outlier score of each spectrum, from its residuals.

    rvs-fit --templates templates.h5 --hook rvs_outliers.py spectra.h5 -o rv.h5
    h5dump -d /insitu/outlier_score rv.h5

The model is a linear autoencoder: the residuals of a batch, in bins of 16 pixels, are projected on the few directions
that most of them share, for which large ones are cut off; the score is what is left, root mean square in units of the
noise. Where there is only noise it is about 1, or less where the fitted continuum takes a part of it; with a line that no
template knows it is much more. Rows are those of /rvfit/table.

NumPy on the CPU; on a CUDA device PyTorch, on the residuals that are there already.
"""
import numpy

BIN, DIRECTIONS, LARGE = 16, 4, 3

scores = []


def use_torch(array):
    import torch

    return torch, torch.from_dlpack(array).double()


def use_numpy(array):
    return numpy, array.astype(float)


def hook(step):
    use = use_numpy if step.device == "cpu" else use_torch
    bins = []
    for name in sorted(step.arrays):
        if name.startswith("residual_"):
            xp, r = use(step[name])
            n = r.shape[1] // BIN * BIN
            # the sum of BIN values of unit noise has noise sqrt(BIN)
            bins.append(r[:, :n].reshape(r.shape[0], -1, BIN).sum(2) / BIN**0.5)
    x = xp.concatenate(bins, 1) if use is use_numpy else xp.cat(bins, 1)
    # as many directions as leave enough spectra to tell what is common
    k = min(DIRECTIONS, x.shape[0] // 8)
    middle = xp.median(x, 0)
    centre = x - (middle if use is use_numpy else middle.values)
    if k > 0:
        v = xp.linalg.svd(xp.clip(centre, -LARGE, LARGE), full_matrices=False)[2][:k]
        centre = centre - (centre @ v.T) @ v
    score = (centre**2).mean(1) ** 0.5
    scores.append(score if use is use_numpy else score.cpu().numpy())


def finish():
    return {"outlier_score": numpy.concatenate(scores)} if scores else None
