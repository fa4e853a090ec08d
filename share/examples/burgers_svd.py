"""Snapshots of burgers, gathered where the solution is, and their singular value decomposition there.

    burgers --hook burgers_svd.py -o run.h5
    h5dump -d /insitu/s run.h5

On the CPU this is NumPy; on a CUDA device CuPy: nothing but the result goes to the host. The values are those of
h5svd, which takes them from the snapshots in the file.
"""
MODES = 10

snapshots = None


def array_library(device):
    if device == "cpu":
        import numpy

        return numpy
    import cupy

    return cupy


def hook(step):
    global snapshots, xp
    if snapshots is None:
        xp = array_library(step.device)
        snapshots = xp.empty((step.total,) + step["u"].shape)
    # a view of the stage's memory, made once and read while the hook runs
    snapshots[step.number - 1] = step.view("u", xp.asarray)


def finish():
    _, s, v = xp.linalg.svd(snapshots, full_matrices=False)
    energy = xp.cumsum(s**2) / xp.sum(s**2)
    return {"s": s[:MODES], "v": v[:MODES], "energy": energy[:MODES]}
