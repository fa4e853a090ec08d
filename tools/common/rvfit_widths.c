#include "common/rvfit_widths.h"

#include <math.h>

#include "base/log.h"
#include "calib/resolution.h"
#include "num/stat.h"
#include "num/wave.h"
#include "spectral/lsf_width.h"

enum { ROWS = 5, BINS = 16 }; /* of which the median width is taken */
/* In templates hardly wider than a bin, lines between two bin centres are not seen: vsini scatters by 2.9 +- 0.5 of its
 * error at 0.66 bins, 1.6 +- 0.3 at 0.9, 1.15 +- 0.2 at 1.02. Of spectra with lines of 2.35 bins, without noise, [Fe/H]
 * is off by 0.41 of its error at 1.01 bins, 0.13 at 1.26, 0.04 at 1.51, 0.02 at 2, at a signal-to-noise ratio of 90: by
 * 0.1 at 30 where they have 1.08. */
static const double LEAST = 1.1;      /* FWHM, bins */
static const double ALIKE = 0.15;     /* of a width: what PSFs that are no Gaussians, and widths that vary, allow */
static const double ROTATION = 0.225; /* variance of the rotation's kernel with limb darkening 0.6, of vsini^2 */

/* FWHM of a setup's lines at a wavelength, its own pixels included; 0: not known. */
static double template_fwhm(const spx_rvfit_args *o, const spx_setup *s, double wave)
{
    spx_lsf_width width = {0};
    double fwhm = o->lsf_given ? o->lsf_sigma * SPX_FWHM_PER_SIGMA : 0;
    if (spx_lsf_parse(s->resolution, 0, &width, NULL) == SPX_OK && width.name == NULL)
        (void)spx_lsf_fwhm(&width, wave, &fwhm, NULL);
    return fwhm > 0 ? hypot(fwhm, s->dlnwave * wave / sqrt(12) * SPX_FWHM_PER_SIGMA) : 0;
}

static double bin_of(const spx_arm *a, size_t i)
{
    return 0.5 * (a->wavelength[i + 1] - a->wavelength[i - 1]);
}

/* Medians over some bins of some spectra: ratio of the templates' FWHM to that of the spectra, and FWHM of the latter,
 * Angstrom. Returns 0 where nothing is known. */
static int compare(const spx_rvfit_args *o, const spx_arm *a, const spx_setup *setup, size_t nrow, double *ratio,
                   double *fwhm)
{
    double q[ROWS * BINS], w[ROWS * BINS];
    size_t n = 0;
    for (size_t r = 0; r < nrow && a->resolution != NULL && !a->per_row; r++)
        for (size_t k = 0; k < BINS; k++) {
            const size_t i = (2 * k + 1) * a->nwave / (2 * BINS);
            if (i < a->ndiag || i + a->ndiag >= a->nwave || !(a->ivar[r * a->nwave + i] > 0))
                continue;
            const double v =
                spx_resolution_variance_of_row(a->nwave, a->ndiag, a->resolution + r * a->ndiag * a->nwave, i);
            const double of_templates = template_fwhm(o, setup, a->wavelength[i]);
            if (!(v > 0) || !isfinite(v) || !(of_templates > 0))
                continue;
            w[n] = sqrt(v) * bin_of(a, i) * SPX_FWHM_PER_SIGMA;
            q[n] = of_templates / w[n];
            n++;
        }
    *ratio = n > 0 ? spx_median(q, n) : 0;
    *fwhm = n > 0 ? spx_median(w, n) : 0;
    return n > 0;
}

static void say_other_widths(const spx_rvfit_args *o, const spx_spectra_parts *p, const spx_setup *const *setup,
                             const spx_rvfit_stars *stars)
{
    spx_spectra_parts with = *p;
    spx_spectra s;
    spx_err e = {0}; /* matrices that are not used need not be right */
    size_t row[ROWS], n = 0;
    int any = 0;
    for (size_t a = 0; a < p->all.narm; a++)
        any |= setup[a] != NULL && p->all.arm[a].ndiag > 0;
    for (; any && n < ROWS && n < stars->nrow; n++)
        row[n] = stars->row[stars->nrow <= ROWS ? n : (2 * n + 1) * stars->nrow / (2 * ROWS)];
    with.with_resolution = 1;
    if (n == 0)
        return;
    const spx_status st = spx_spectra_parts_read(&with, n, row, &s, &e);
    for (size_t a = 0; a < p->all.narm && st == SPX_OK; a++) {
        const spx_arm *arm = &p->all.arm[a];
        double ratio, fwhm;
        if (setup[a] == NULL || !compare(o, &s.arm[a], setup[a], n, &ratio, &fwhm) || fabs(ratio - 1) < ALIKE)
            continue;
        const double wave = arm->wavelength[arm->nwave / 2];
        const double vsini = fwhm / SPX_FWHM_PER_SIGMA * sqrt(fabs(1 - ratio * ratio) / ROTATION) / wave * SPX_C_KMS;
        spx_warn(
            "arm '%s': lines of the spectra have a FWHM of %.2f Angstrom by their resolution matrices, those of the "
            "templates %.2f: %s%.0f km/s%s: use --resolution-matrix, or make templates as wide",
            arm->name, fwhm, ratio * fwhm, ratio < 1 ? "vsini will be too large, of slow rotators " : "vsini below ",
            vsini, ratio < 1 ? "" : " will come out as 0");
    }
    spx_spectra_free(&s);
}

void spx_rvfit_say_widths(const spx_rvfit_args *o, const spx_spectra_parts *p, const spx_setup *const *setup,
                          const spx_rvfit_stars *stars)
{
    if (!o->resolution) {
        say_other_widths(o, p, setup, stars);
        return;
    }
    /* with tellurics, templates are sampled between the bins */
    for (size_t a = 0; a < p->all.narm && o->tellurics == NULL; a++) {
        const spx_arm *arm = &p->all.arm[a];
        if (setup[a] == NULL || arm->nwave < 3)
            continue;
        const double bin = bin_of(arm, arm->nwave / 2);
        const double fwhm = template_fwhm(o, setup[a], arm->wavelength[arm->nwave / 2]);
        if (fwhm > 0 && fwhm < LEAST * bin)
            spx_warn(
                "arm '%s': lines of the templates have a FWHM of %.2f Angstrom, less than %.1f bins of %.2f: of "
                "those between bin centres too little is seen, and parameters are off, vsini scatters by more than "
                "its error: make templates with FWHM=%.2f",
                arm->name, fwhm, LEAST, bin, 2 * bin);
    }
}
