"""fitsio_reads.py FILE...: CFITSIO, through fitsio, reads what astropy reads."""

import sys
import warnings

import fitsio
import numpy as np
from astropy.io import fits

warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    with fits.open(path, memmap=False) as a, fitsio.FITS(path) as b:
        assert len(a) == len(b), path
        for x, y in zip(a, b):
            assert (y.get_extname() or "PRIMARY") == x.name, (path, x.name)
            y.read_header()
            if x.data is None:
                assert not y.has_data(), (path, x.name)
            elif isinstance(x, fits.BinTableHDU):
                table = y.read()
                for c in x.columns.names:
                    p, q = np.asarray(x.data[c]), table[c]
                    if p.dtype.kind in "SU":
                        p, q = np.char.rstrip(p.astype(str)), np.char.rstrip(q.astype(str))
                    assert np.array_equal(p, q, equal_nan=p.dtype.kind == "f"), (path, x.name, c)
            else:
                assert np.array_equal(x.data, y.read()), (path, x.name)
