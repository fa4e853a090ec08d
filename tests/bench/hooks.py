"""Hooks that bench_burgers times: nothing, and a row copied on the device, by NumPy, CuPy and PyTorch.

    SPX_BENCH_HOOK=tests/bench/hooks.py:torch_view build/bench/bench_burgers cuda

Those called _view take a view of an array once (step.view()), the others each time.
"""
rows = None


def empty(step):
    pass


def numpy_row(step):
    global rows
    if rows is None:
        import numpy

        rows = numpy.empty((step.total, 256))
    rows[step.number - 1] = step["u"]


def cupy_row(step):
    global rows, take
    if rows is None:
        import cupy

        rows, take = cupy.empty((step.total, 256)), cupy.from_dlpack
    rows[step.number - 1] = take(step["u"])


def cupy_view(step):
    global rows, take
    if rows is None:
        import cupy

        rows, take = cupy.empty((step.total, 256)), cupy.asarray
    rows[step.number - 1] = step.view("u", take)


def torch_row(step):
    global rows, take
    if rows is None:
        import torch

        rows, take = torch.empty((step.total, 256), dtype=torch.float64, device=step.device), torch.from_dlpack
    rows[step.number - 1] = take(step["u"])


def torch_view(step):
    global rows, take
    if rows is None:
        import torch

        rows, take = torch.empty((step.total, 256), dtype=torch.float64, device=step.device), torch.from_dlpack
    rows[step.number - 1] = step.view("u", take)
