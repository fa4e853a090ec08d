"""desispec_writes.py: d-frame.fits, d-spectra.fits and d-coadd.fits, as desispec writes them."""

from desispec import io
from desispec.coaddition import coadd

io.write_frame("d-frame.fits", io.read_frame("frame.fits"))
spectra = io.read_spectra("spectra.fits")
io.write_spectra("d-spectra.fits", spectra)
coadd(spectra)
io.write_spectra("d-coadd.fits", spectra)
