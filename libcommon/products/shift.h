/* Provides block `shift`: how far traces have moved, and how much wider spots have become, since their PSF was made. */
#ifndef SPX_BLOCK_SHIFT_H
#define SPX_BLOCK_SHIFT_H

#include <stddef.h>
#include <stdint.h>

/* Why a fibre has, in part or as a whole, the trace of before. */
enum {
    SPX_SHIFT_NOLIGHT = 1 << 0, /* its own light says nothing of its place across the trace: its neighbours' say it */
    SPX_SHIFT_OLDX = 1 << 1,    /* no light in the bundle either: x and width in x stay as they were */
    SPX_SHIFT_NOLINES = 1 << 2, /* nothing says where it is along the trace: y and width in y stay as they were */
    SPX_SHIFT_RELATIVE = 1 << 3 /* no line list: what all fibres have in common along the trace is not known */
};

/* Changes of a PSF: new minus old. Arrays [nspec][nplace] unless said otherwise; dx, dy in pixels, widths relative. */
typedef struct {
    size_t nspec, nplace;
    char camera[16];
    double *wavelength; /* [nplace] places, Angstrom */
    double *dx, *dx_error, *width_x, *width_x_error;
    double *dy, *dy_error, *width_y, *width_y_error;
    uint32_t *flags; /* [nspec] SPX_SHIFT_... */

    /* Part X: sum over l, m of coef[l][m] P_l(u) P_m(v), u = -1 ... 1 over wmin ... wmax, v over the fibres, and an
     * offset a bundle. Coefficients in the order dx [nterm_wave][nterm_fibre], width_x the same, dx [nbundle],
     * width_x [nbundle]. */
    double wmin, wmax; /* Angstrom */
    size_t nterm_wave, nterm_fibre, nbundle, ncoef;
    double *coef, *covariance; /* [ncoef], [ncoef][ncoef] */
    /* Shifts and widths of single windows, with a prior of 0.5 pixel, [nspec][nwindow]. */
    size_t nwindow;
    double *window_wavelength, *window_dx, *window_dx_error, *window_width_x, *window_width_x_error;
    double chi2_before, chi2_after, dof;   /* of the image in the windows */
    double chi2_smooth, dof_smooth;        /* of the windows' shifts and widths about the smooth functions */
    size_t nwindow_used, nwindow_rejected; /* of fibres times windows with light */
    double scatter_dx;                     /* of the windows' shifts about them beyond errors, pixels */
    int steps, failed;                     /* failed 1: the fit across the traces, which has moved none */

    /* Part Y: delta (Angstrom) and kappa (Angstrom^2) of each fibre, Legendre series over the same u: [nspec][terms].
     * Bins of a fibre hold light of wavelength lambda + delta. */
    size_t nterm_delta, nterm_kappa;
    double *delta, *delta_error, *kappa, *kappa_error;
    double tau_delta, tau_kappa; /* intrinsic scatter about the smooth function of fibres that is their prior */
    size_t nfibre_common;        /* fibres whose common spectrum it is */
    int rounds;

    /* Zero point in the middle of the arm, Angstrom: part of delta of all fibres. Its error contains the scatter of the
     * list's lines; chi2, dof: of these by their own errors. nline 0: relative. */
    double zero_point, zero_point_error, zero_point_chi2, zero_point_dof;
    size_t nline;
} spx_shift;

void spx_shift_free(spx_shift *s);

#endif
