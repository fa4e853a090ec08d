/* Builds pictures of products: gnuplot programs with their data, panel by panel. A picture remembers its first failure,
 * after which all functions do nothing, so that drawing reads as a list of what is drawn.
 *
 * All text that files hold goes into a program through spx_picture_quote(): gnuplot runs commands that it finds in
 * other strings. Lengths are pixels of 1/96 inch from the upper left corner. */
#ifndef SPX_TOOLS_PICTURE_H
#define SPX_TOOLS_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "app/main.h"
#include "base/text.h"
#include "h5/table.h"
#include "products/spectra.h"

typedef struct {
    size_t n;
    spx_input **in;     /* [n] inputs, open; NULL for pictures of many files, which open them one after another */
    char **name;        /* [n] their names */
    long spectrum;      /* row; -1: choose one */
    const char *target; /* TARGETID of a row; NULL: none */
    double wave[2];     /* Angstrom; both 0: all */
    double region[4];   /* columns x0, x1 and rows y0, y1 of a CCD; all 0: all of it */
} spx_picture_args;

typedef struct {
    const spx_picture_args *args;
    double width, height;
    size_t nmap;     /* numbered data blocks so far */
    double panel[3]; /* left and right end, and middle of the height, of the panel in work */
    spx_text script;
    spx_status st;
    spx_err *e;
    size_t nmemory, capacity;
    void **memory; /* freed with the picture */
} spx_picture;

/* Colours, by their role. */
#define SPX_INK    "#303030"
#define SPX_GREY   "#9a9a9a"
#define SPX_PALE   "#cfcfcf"
#define SPX_BLUE   "#0072B2"
#define SPX_RED    "#D55E00"
#define SPX_GREEN  "#009E73"
#define SPX_ORANGE "#E69F00"
#define SPX_PURPLE "#9B3D8F"
#define SPX_VIRIDIS                                                                                                    \
    "(0 '#440154', 1 '#472D7B', 2 '#3B528B', 3 '#2C728E', 4 '#21918C', 5 '#28AE80', 6 '#5EC962', 7 '#ADDC30', "        \
    "8 '#FDE725')"
#define SPX_DIVERGING "(-2 '#2166AC', -1 '#92C5DE', 0 '#F7F7F7', 1 '#F4A582', 2 '#B2182B')"

void spx_picture_free(spx_picture *p);
/* Sets the failure, as spx_fail(). */
void spx_picture_fail(spx_picture *p, spx_status code, const char *fmt, ...) SPX_PRINTF(3, 4);

/* ---- the program ---- */
void spx_picture_add(spx_picture *p, const char *fmt, ...) SPX_PRINTF(2, 3);
/* Adds a text as a string of gnuplot, with its quotes; control characters are left out. */
void spx_picture_quote(spx_picture *p, const char *text);
/* Title over the first panel; adds commands that spx_picture_untitled() takes back after its plot. */
void spx_picture_title(spx_picture *p, double left, const char *fmt, ...) SPX_PRINTF(3, 4);
void spx_picture_untitled(spx_picture *p);
/* Panel: its frame is at left ... right, top ... bottom. */
void spx_picture_panel(spx_picture *p, double left, double right, double top, double bottom);
/* Range of an axis, "x", "y", "cb". Equal ends are moved apart. */
void spx_picture_range(spx_picture *p, const char *axis, double lo, double hi);
/* Label of an axis of the panel in work, with a unit as files have it; a unit of "" or "1" is left out. */
void spx_picture_label(spx_picture *p, const char *axis, const char *text, const char *unit);
/* Data block $name: n rows of ncol columns; NaN where there is none. */
void spx_picture_columns(spx_picture *p, const char *name, size_t n, size_t ncol, const double *const *col);
/* Data block $name, a matrix z[ny][nx]; NaN becomes 1e30, which the function v(z) of the program turns back (gnuplot
 * warns of NaN in a matrix). */
void spx_picture_matrix(spx_picture *p, const char *name, size_t nx, size_t ny, const double *z);
/* Round steps between tics, at most `most` of them. */
void spx_picture_tics(spx_picture *p, const char *axis, double lo, double hi, int most);
/* A power of ten as it is printed: "0.1", "1000", "10⁴". */
void spx_picture_power(int k, char out[16]);
/* Logarithmic axis with labels at the powers of ten. */
void spx_picture_decades(spx_picture *p, const char *axis, double lo, double hi);
/* Colour axis that is linear about 0 and logarithmic far from it: function f(z) = asinh(z / soft), range and labels. */
void spx_picture_asinh(spx_picture *p, double soft, double lo, double hi);

/* ---- data ---- */
/* n zeroed values that live as long as the picture; NULL after a failure. */
double *spx_picture_alloc(spx_picture *p, size_t n);
/* Gives memory of spx_alloc() to the picture. */
void spx_picture_keep(spx_picture *p, void *memory);
/* First input that has an object at `path`; NULL: none. */
spx_input *spx_picture_find(const spx_picture *p, const char *path);
/* The same; a failure where there is none: `remedy` says what makes it. */
spx_input *spx_picture_need(spx_picture *p, const char *path, const char *remedy);
/* Whole datasets; NULL after a failure. Lengths are set where they are 0, else compared. */
double *spx_picture_read1(spx_picture *p, spx_input *in, const char *path, size_t *n);
double *spx_picture_read2(spx_picture *p, spx_input *in, const char *path, size_t *n, size_t *m);
/* Attribute `units` of a dataset, empty where it has none. */
void spx_picture_unit(const spx_picture *p, spx_input *in, const char *path, size_t size, char *unit);
/* Column of numbers; NULL: no such column, or a failure. */
double *spx_picture_column(spx_picture *p, const spx_table *t, const char *name);
/* Quantiles q0 and q1 of the values that are finite, and their number. */
size_t spx_picture_quantiles(const double *v, size_t n, double q0, double q1, double *lo, double *hi);
/* Mean of the finite values of z[ny][nx] in cells of ky rows and kx columns: [(ny+ky-1)/ky][(nx+kx-1)/kx]. */
double *spx_picture_bin(spx_picture *p, const double *z, size_t nx, size_t ny, size_t kx, size_t ky);
/* Mean of the finite values z[n][nwave] in ncol intervals of equal width between lo and hi, and in cells of k rows;
 * intervals between two bins get the nearer one. */
double *spx_picture_resample(spx_picture *p, const double *z, const double *wave, size_t n, size_t nwave, double lo,
                             double hi, size_t ncol, size_t k);

/* ---- maps: rows of spectra as an image ---- */
/* Panel with z[n][nwave] (NaN: no value) over wavelengths and rows, in a data block of its own, and its colour bar.
 * What follows sets range (cb) and palette; spx_picture_plot_map() draws it. */
void spx_picture_map(spx_picture *p, const double *z, const double *wave, size_t n, size_t nwave, double left,
                     double right, double top, double bottom);
void spx_picture_plot_map(spx_picture *p);
/* Place of the colour bar of a panel that ends at `right`. */
void spx_picture_bar(spx_picture *p, double right, double top, double bottom);

/* ---- pulls ---- */
/* Two panels beside each other: diff[n] with error[n] over x[n], and the distribution of diff/error with its median and
 * scatter (1.4826 MAD). NaN: left out. */
void spx_picture_pulls(spx_picture *p, const char *ylabel, const char *yunit, const char *xlabel, const char *plabel,
                       const double *x, const double *diff, const double *error, size_t n, double top, double bottom);

/* ---- lines ---- */
/* Names and thin marks of stellar lines at velocity v (km/s), or of the night sky, in a panel `pixels` wide whose x
 * axis is lo ... hi, in rows from the upper edge of the panel. spx_picture_unlined() takes them back after its plot. */
void spx_picture_star_lines(spx_picture *p, spx_medium medium, double v, double lo, double hi, double pixels);
void spx_picture_sky_lines(spx_picture *p, spx_medium medium, double lo, double hi, double pixels);
void spx_picture_unlined(spx_picture *p);

/* ---- pictures: each needs the blocks of its name, in any of the inputs ---- */
void spx_picture_image(spx_picture *p);    /* CCD with traces and masked pixels, beside its residuals */
void spx_picture_frame(spx_picture *p);    /* all spectra as an image, and one */
void spx_picture_spectrum(spx_picture *p); /* one spectrum, arm by arm */
void spx_picture_fit(spx_picture *p);      /* the same with its model, residuals and names of lines */
void spx_picture_flat(spx_picture *p);
void spx_picture_sky(spx_picture *p);
void spx_picture_flux(spx_picture *p);
void spx_picture_shift(spx_picture *p);
void spx_picture_shifts(spx_picture *p); /* of several exposures */
void spx_picture_stars(spx_picture *p);  /* temperatures and gravities, errors of velocities */
void spx_picture_truth(spx_picture *p);  /* parameters against those of a simulation */
void spx_picture_corner(spx_picture *p); /* covariance of one star */
void spx_picture_templates(spx_picture *p);
void spx_picture_svd(spx_picture *p);
void spx_picture_ccf(spx_picture *p); /* cross-correlation and chi2(v) of one star */
/* Frames of a night, exposure by exposure, and the same numbers as text: a line a frame, tabs between. */
void spx_picture_night(spx_picture *p);
void spx_picture_night_table(spx_picture *p);
/* Two extractions of the same light, bin by bin, and the same numbers as text. */
void spx_picture_compare(spx_picture *p);
void spx_picture_compare_table(spx_picture *p);
void spx_picture_repeats(spx_picture *p); /* velocities of stars that several files have */
/* Any matrix: snapshots of a simulation, stacks, spectra of a library. */
void spx_picture_matrix_of(spx_picture *p);

#endif
