"""Resolution matrices, by diagonals: the convention of DESI and of ``scipy.sparse.dia_matrix`` (specx-extract(1)).

``diagonals[k, j] = R[j - off, j]`` with ``off = ndiag // 2 - k``: rows of the array are diagonals, from the highest
above the main one down to the lowest below it, and its columns are columns of R, a perfect spectrum's bins. A spectrum f
is seen as ``R @ f``.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def offsets(ndiag: int) -> Array:
    """Number of each stored diagonal: positive above the main one.

    Examples
    --------
    >>> [int(k) for k in offsets(5)]
    [2, 1, 0, -1, -2]
    """
    return ndiag // 2 - np.arange(ndiag)


def matrix(diagonals: npt.ArrayLike) -> Any:
    """Sparse matrix of the diagonals of one spectrum.

    Parameters
    ----------
    diagonals : array, [ndiag, nwave]

    Returns
    -------
    scipy.sparse.dia_matrix, [nwave, nwave]
        R of ``flux = R @ model``.
    """
    import scipy.sparse

    d = np.asarray(diagonals)
    if d.ndim != 2:
        raise ValueError(f"diagonals of one spectrum have 2 dimensions [ndiag, nwave], not {d.ndim}")
    return scipy.sparse.dia_matrix((d, offsets(d.shape[0])), shape=(d.shape[1], d.shape[1]))


def diagonals(r: Any, ndiag: Optional[int] = None) -> Array:
    """Diagonals of a matrix, sparse or dense; the inverse of `matrix`.

    Parameters
    ----------
    r : matrix, [nwave, nwave]
    ndiag : int, optional
        Number of diagonals, odd. Default: all that are not zero.

    Raises
    ------
    ValueError
        An element that is not zero lies beyond ndiag diagonals.
    """
    import scipy.sparse

    coo = scipy.sparse.coo_matrix(r)
    coo.sum_duplicates()
    if coo.shape[0] != coo.shape[1]:
        raise ValueError(f"a resolution matrix is square, not {coo.shape[0]} x {coo.shape[1]}")
    off = coo.col.astype(np.int64) - coo.row
    widest = int(np.abs(off[coo.data != 0]).max(initial=0))
    if ndiag is None:
        ndiag = 2 * widest + 1
    if ndiag % 2 != 1 or ndiag < 1:
        raise ValueError(f"the number of diagonals is odd, not {ndiag}")
    if widest > ndiag // 2:
        raise ValueError(f"the matrix has elements {widest} bins off its diagonal: {2 * widest + 1} diagonals hold them")
    out = np.zeros((ndiag, coo.shape[1]), coo.data.dtype if coo.data.dtype.kind == "f" else np.float64)
    inside = np.abs(off) <= ndiag // 2
    out[ndiag // 2 - off[inside], coo.col[inside]] = coo.data[inside]
    return out


def convolve(diagonals: npt.ArrayLike, model: npt.ArrayLike) -> Array:
    """R times a model, for one spectrum or many; needs no SciPy.

    Parameters
    ----------
    diagonals : array, [..., ndiag, nwave]
    model : array, [..., nwave]
        Sampled at the bin centres, not averaged over the bins. One model does for all spectra.

    Returns
    -------
    array, [..., nwave], float64
    """
    d, m = np.asarray(diagonals), np.asarray(model, np.float64)
    n = d.shape[-1]
    if m.shape[-1:] != (n,):
        raise ValueError(f"the model has {m.shape[-1] if m.ndim else 0} samples, the resolution matrix {n} bins")
    out = np.zeros(np.broadcast_shapes(d.shape[:-2], m.shape[:-1]) + (n,))
    for k, off in enumerate(offsets(d.shape[-2])):
        lo, hi = max(0, int(off)), min(n, n + int(off))  # columns j whose row j - off exists
        if lo < hi:
            out[..., lo - off : hi - off] += d[..., k, lo:hi] * m[..., lo:hi]
    return out
