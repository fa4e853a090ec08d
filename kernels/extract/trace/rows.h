/* Provides the light of all fibres by rows of the image: for light beyond the spots, which needs spectra to a per cent,
 * of all fibres, and nothing but spectra. Private to kernels/extract/.
 *
 * In row y the light of fibre f is a_f(y) g_f(x): g_f is the cross profile of its spots, their sum over rows, at the
 * place where the trace crosses the row. a of all fibres of a row by weighted least squares, in which profiles that
 * overlap are coupled: a banded system a row. a_f is the spectrum, in electrons a row, as the spots spread it along the
 * trace. Where a spectrum changes within a spot, profiles of a row differ from g by what adds up to 0 over the rows. */
#ifndef SPX_EXTRACT_TRACE_ROWS_H
#define SPX_EXTRACT_TRACE_ROWS_H

#include "extract/common.h"
#include "hostdevice.h"

/* Columns of a vector; a profile has a multiple of it. */
enum { SPX_ROW_LANES = 8 };

/* Sum over lanes, in an order that no vector changes. */
SPX_HD float spx_row_total(const float *lane)
{
    const float a = lane[0] + lane[4], b = lane[1] + lane[5], c = lane[2] + lane[6], d = lane[3] + lane[7];
    return (a + c) + (b + d);
}

/* Fibres beside one that its profile may overlap with, on each side. */
enum { SPX_ROW_REACH = 4 };

/* Share of a profile on pixels in use below which a row's light is taken from those before and behind it. */
#define SPX_ROW_LEAST_SEEN 0.5f
/* Share of what a fibre's own profile tells that those of its neighbours leave at least: where traces of a PSF lie on
 * each other, as beyond the wavelengths that it was made of, or more of them than SPX_ROW_REACH, a row's light is taken
 * from those before and behind it, too. */
#define SPX_ROW_LEAST_LEFT 1e-3

/* Of profiles: knots along a trace, linear in between; intervals of the trace centre within a pixel, with parabolas in
 * between. Of the spread along a trace: rows that it reaches; terms of its inverse beside the first. */
enum { SPX_ROW_KNOTS = 9, SPX_ROW_PHASES = 6, SPX_ROW_SIDE = 5, SPX_ROW_TERMS = 2 };

typedef struct spx_rows spx_rows;

/* Its tables, for a device: these stay where they are. */
typedef struct {
    size_t ny, nx, nspec;
    size_t width;                            /* columns of a profile */
    size_t first, end;                       /* of these, those that have its light */
    size_t pad;                              /* columns before and behind the CCD */
    int hsizex;                              /* columns of a profile before its middle */
    int mirrored;                            /* most fibres lie left of the one before */
    int wide;                                /* spots have a sigma of a pixel along the traces, or more */
    const float *profile;                    /* [nspec][SPX_ROW_KNOTS][SPX_ROW_PHASES + 1][width] */
    const float (*place)[2];                 /* [ny][nspec] column and place among the knots; the second < 0: none */
    const double *range;                     /* [nspec][2] wavelengths of the first and the last knot */
    const size_t (*ends)[2];                 /* [nspec] first row with a trace, and one past the last */
    const float (*spread)[SPX_ROW_SIDE + 1]; /* [nspec] part of a row's light that spots have in those beside it */
} spx_rows_view;

/* One row of an image, with its profiles and equations. Columns are counted from spx_rows_pad() before the CCD. */
typedef struct {
    float *data, *weight;                /* [columns] image - far, and ivar; 0 beyond the CCD */
    size_t n;                            /* fibres that cross the row, in the order of their columns */
    size_t *fibre;                       /* [n] */
    long *start;                         /* [n] first column of the profile */
    unsigned char *seen;                 /* [n] most of the profile is on pixels in use */
    size_t stride;                       /* spx_rows_width() + SPX_ROW_LANES */
    float *profile;                      /* [n][stride], 0 behind the last column */
    float *weighted;                     /* [stride] one of them times weights */
    struct row_products *product;        /* [n] */
    unsigned char *fresh;                /* [n] products are those of the weights as they are */
    size_t from;                         /* first fibre whose equations are not */
    double (*factor)[SPX_ROW_REACH + 1]; /* [n] 1/D, and L of the fibres before, of A = L D L^T */
    unsigned char *reach;                /* [n] how many of those share columns with it */
    double *x;                           /* [n] solution */
} spx_row;

/* Rows of the image of a job, whose spots have no tail, and of all fibres of its PSF. The job has to stay; its weights
 * may change. Free with spx_rows_free(), also after an error. SPX_EIO: memory. */
spx_status spx_rows_make(const spx_extract_job *job, int nthreads, spx_rows **rows, spx_err *e) SPX_NODISCARD;
void spx_rows_free(spx_rows *r);

/* The rows of another job whose PSF, options and size of the image are the same. */
void spx_rows_set_job(spx_rows *r, const spx_extract_job *job);

void spx_rows_look(const spx_rows *r, spx_rows_view *v);

size_t spx_rows_pad(const spx_rows *r);
size_t spx_rows_width(const spx_rows *r);
size_t spx_rows_nspec(const spx_rows *r);

/* Memory of a row: NULL without. */
spx_row *spx_row_alloc(const spx_rows *r);
void spx_row_free(spx_row *row);

/* Row y of the image without far[ny][nx] (NULL: as it is): pixels, fibres, profiles. Pixels and weights may be changed
 * then. */
void spx_row_load(const spx_rows *r, size_t y, const float *far, spx_row *row);

/* Finds which fibres are seen by the pixels as they are. From then on these stay, but for those that spx_row_hide()
 * leaves out: columns first to end - 1; it returns how many of them were in use. */
void spx_row_see(const spx_rows *r, spx_row *row);
size_t spx_row_hide(const spx_rows *r, spx_row *row, size_t first, size_t end);

/* The equations, and which fibres are seen: not those that others leave nothing of. */
void spx_row_factor(const spx_rows *r, spx_row *row);

/* L^-1 v and L^-T v, in place. */
void spx_row_forward(const spx_row *row, double *v);
void spx_row_back(const spx_row *row, double *v);

/* The light of each fibre, and the profiles' part of the pixels into model[columns], which may be NULL. */
void spx_row_solve(const spx_rows *r, spx_row *row, float *model);

/* Light of all fibres in all rows, electrons a row, of image - far, into light[nspec][ny]: along the lines between
 * those rows that are seen; 0 where there is no trace; as if the spots had not spread it along the traces, as far as
 * that is without noise: three terms of the series of van Cittert (1931, Z. Phys. 69, 298). rough: of every other row
 * alone where spots have a sigma of a pixel or more, so that the light of a line is right to 2 exp(-pi^2/2), 1.4 %. The
 * result does not depend on the number of threads. SPX_EIO: memory. */
spx_status spx_rows_light(const spx_rows *r, const float *far, int rough, int nthreads, float *light,
                          spx_err *e) SPX_NODISCARD;

/* Column of a fibre's trace in row y, and its wavelength, Angstrom. 0: there is none. */
int spx_rows_place(const spx_rows *r, size_t fibre, size_t y, double *x, double *lambda);

/* Column of a fibre's trace in the row with a trace that is nearest to y. 0: it has none. */
int spx_rows_nearest(const spx_rows *r, size_t fibre, size_t y, double *x);

#endif
