/* Reads what detectorMaps of PFS lay over splines. LayeredDetectorMap: offsets of the slit, distortions of the camera,
 * and the place of the right one of two CCDs; MultipleDistortionsDetectorMap: distortions, one after another; older
 * classes of one distortion. */
#ifndef SPX_FITS_PSF_LAYERS_H
#define SPX_FITS_PSF_LAYERS_H

#include "fits/scan.h"

/* The splines below: wavelength (nm) and column of a fibre at a row. */
typedef void spx_layers_base(const void *of, size_t fibre, double row, double *wave, double *column);

/* A polynomial in x and y, -1 to 1: coefficients of 1, x, y, x^2, x y, y^2 ... of the columns and rows to add. */
typedef struct {
    double middle[2], scale[2]; /* of columns and rows */
    const double *x, *y;        /* [nterm] */
} spx_layers_piece;

typedef struct {
    int order;
    size_t nterm;
    int npiece; /* 2: of two CCDs, which meet at column `edge` */
    spx_layers_piece piece[2];
    double edge;
    int mosaic; /* the right CCD has an affine map besides, of x and y of the polynomial */
    double right[6];
    double *all; /* coefficients */
} spx_distortion;

typedef struct {
    size_t nfibre;
    const uint32_t *id; /* increase */
    spx_layers_base *base;
    const void *of;
    double *spatial, *spectral; /* [nfibre] offsets of the slit, pixels */
    double pitch, dispersion;   /* columns from fibre to fibre, nm a row, in the middle */
    size_t ndistortion;
    spx_distortion *distortion;
    int chained;                /* each distortion is at the place that those before have led to, not at the splines' */
    double middle[2], scale[2]; /* of the detector */
    int divided;                /* into two CCDs, the right one placed by `right`: of x and y, -1 to 1, the columns and
                                 * rows to add: xx, yx, xy, yy, x, y */
    double right[6];
} spx_layers;

/* 1: a table DISTORTIONS, of distortions that are polynomials or rotations, of one CCD or two, with a table LAYERS or
 * without, or a table COEFFICIENTS of an older class; -1: other distortions; 0: none. */
int spx_layers_found(const spx_fits *f);
/* Layers over the splines of nfibre fibres on a detector of `box`, first and last column, first and last row. Free also
 * after an error. SPX_EINPUT: a column is missing, shapes disagree, or a number is not finite. */
spx_status spx_layers_read(spx_fits *f, size_t nfibre, const uint32_t *id, const double box[4], spx_layers_base *base,
                           const void *of, spx_layers *l, spx_err *e) SPX_NODISCARD;
void spx_layers_free(spx_layers *l);
/* Where the light of a fibre lies, column and row, of the wavelength (nm) that its splines have at a row. */
void spx_layers_place(const spx_layers *l, size_t fibre, double row, double *wave, double place[2]);

#endif
