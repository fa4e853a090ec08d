/* Reads PSFs of other programs than DESI's from FITS files, as the block psf holds them. */
#ifndef SPX_FITS_PSF_KINDS_H
#define SPX_FITS_PSF_KINDS_H

#include "convert/archive.h"
#include "convert/note_list.h"
#include "fits/scan.h"
#include "products/psf.h"

/* Grid of over-sampled spots of specter (PSFTYPE SPOTGRID): HDUs XCOEFF, YCOEFF [nspec, n] with WAVEMIN and WAVEMAX,
 * SPOTS [npos, nwave, my, mx], FIBERPOS [nspec], SPOTPOS [npos], SPOTWAVE [nwave] (Angstrom); keywords of the first
 * header CCDPIXSZ and PIXSIZE, of which the ratio is a whole number. The middle of an array lies on the trace where
 * specter puts it: half a pixel beyond it, in x and y, where the array is an even number of pixels wide; noted. *psf is
 * not indexed; free with spx_psf_free(), also after an error. SPX_EINPUT: something is missing, or shapes disagree. */
spx_status spx_fits_read_spotgrid(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e) SPX_NODISCARD;

/* Trace sets of SDSS that a file holds: tables of one row with FUNC, XMIN, XMAX and COEFF, functions of the CCD's row.
 * By EXTNAME, or where there is none by their place in spFlat and spArc files. */
enum {
    SPX_TSET_X = 1,     /* TSET, XSET: columns */
    SPX_TSET_WAVE = 2,  /* WSET: wavelengths, Angstrom or their log10 */
    SPX_TSET_WIDTH = 4, /* WIDTHSET: sigma across the traces, pixels */
    SPX_TSET_ALONG = 8, /* DISPSET: sigma along them, pixels */
    SPX_TSET_ALL = 15
};
unsigned spx_fits_trace_sets(const spx_fits *f);

/* A PSF of trace sets: Gaussian spots along traces. other: the file that has those that f lacks, or NULL. Where the
 * rows jump (XJUMPVAL), each fibre becomes two traces, of orders 1 and 2, below the jump and above it. Errors as of
 * spx_psf_of_rows(); SPX_EINPUT also where sets are missing or disagree in the number of traces. */
spx_status spx_fits_read_tsets(spx_fits *f, spx_fits *other, spx_psf *psf, spx_note_list *notes,
                               spx_err *e) SPX_NODISCARD;

/* Traces of APOGEE (apPSF): HDUs 3 and 4, images of coefficients of the columns' polynomials, whose headers have FUNC,
 * XMIN and XMAX, of the traces' places and widths (PROFTYPE). */
int spx_fits_apogee_psf(const spx_fits *f);
/* 1: HDU 2 may be the wavelengths (apWave) of its fibres at all pixels. */
int spx_fits_apogee_waves(const spx_fits *f, const spx_fits *psf);
/* A PSF of both, whose rows are APOGEE's columns: Gaussian spots as wide along the traces as across. Errors as of
 * spx_psf_of_rows(); SPX_EINPUT also where waves is NULL, or the number of traces differs. */
spx_status spx_fits_read_apogee(spx_fits *f, spx_fits *waves, spx_psf *psf, spx_note_list *notes,
                                spx_err *e) SPX_NODISCARD;

/* A detectorMap of PFS: 1: of splines (HDUs FIBERID, SLITOFF, CENTER, WAVELENGTH), and of layers over them
 * (convert/psf_layers.h); -1: one with other distortions, which cannot be read; 0: none. */
int spx_fits_detector_map(const spx_fits *f);

/* A PSF of the traces of a detectorMap. It has no widths: Gaussian spots of SPX_TRACE_SIGMA, noted, for specx-psf to
 * begin with. Errors as of spx_psf_of_rows(). */
spx_status spx_fits_read_detector_map(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e) SPX_NODISCARD;

/* Its traces alone: of the HDUs of a file, or, where map is not NULL, of the SplinedDetectorMap that is this object of
 * an archive. */
spx_status spx_fits_map_traces(spx_fits *f, const spx_archive *a, const spx_archived *map, spx_psf *psf,
                               spx_note_list *notes, spx_err *e) SPX_NODISCARD;

/* Over-sampled spots of single fibres and wavelengths that PFS keeps in the archive of an exposure (NevenPsf): 1: with
 * a detectorMap of splines; -1: with one that is to be given in a file of its own; 0: none. */
int spx_fits_neven(const spx_fits *f);

/* A PSF of them: between wavelengths of a fibre in proportion, beyond them as the last; the centroid of each array lies
 * on the trace. Fibres that have none get what lies between their neighbours', noted. other: the file with the
 * detectorMap, or NULL. Errors as of spx_fits_read_spotgrid(). */
spx_status spx_fits_read_neven(spx_fits *f, spx_fits *other, spx_psf *psf, spx_note_list *notes,
                               spx_err *e) SPX_NODISCARD;

/* Ends the reading of a grid of spots whose arrays and traces are there: sums, half sizes, and GHSIGX and GHSIGY. */
spx_status spx_fits_grid_ends(const spx_fits *f, spx_psf *psf, spx_err *e) SPX_NODISCARD;

/* Traces of DESI without spots, as its bootcalib and write_xytraceset() leave them: HDUs XTRACE and YTRACE with WAVEMIN
 * and WAVEMAX, and no table PSF. */
int spx_fits_desi_traces(const spx_fits *f);

/* A PSF of Gaussian spots of them: widths of XSIG and YSIG (series, pixels), or XSIGMA (pixels) and WSIGMA (Angstrom),
 * numbers or series; without these SPX_TRACE_SIGMA, noted. Free *psf also after an error. SPX_EINPUT: shapes disagree,
 * a number is not finite, or a width is not above 0. */
spx_status spx_fits_read_desi_traces(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e) SPX_NODISCARD;

/* Sub-pixel of an array of n that specter places on the trace, along one axis. */
double spx_fits_specter_place(size_t n, int oversample);

#endif
