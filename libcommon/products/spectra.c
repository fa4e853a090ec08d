/* Provides blocks `spectra` (any number of arms) and `frame` (one camera, as extracted) (products/spectra.h). */
#include "products/spectra.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"
#include "num/stat.h"
#include "num/wave.h"

/* Most that the barycentre moves against an observer, and a limit for values of it, km/s. */
static const double GROUND_KMS = 30, MOST_KMS = 100;

/* Where the letters of the arm begin in a camera's name; *n of them, 0: none. */
static const char *arm_in(const char *camera, size_t *n)
{
    const char *dash = strrchr(camera, '-');
    const char *from = dash != NULL && isalpha((unsigned char)dash[1]) ? dash + 1 : camera;
    for (*n = 0; isalpha((unsigned char)from[*n]) || (*n > 0 && from[*n] == '_'); ++*n)
        ;
    while (*n > 0 && from[*n - 1] == '_')
        --*n;
    return from;
}

void spx_arm_of_camera(const char *camera, char arm[SPX_ARM_NAME])
{
    size_t n;
    const char *from = arm_in(camera, &n);
    (void)snprintf(arm, SPX_ARM_NAME, "%.*s", n > 0 ? (int)n : SPX_ARM_NAME, n > 0 ? from : "frame");
    for (char *c = arm; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

void spx_arm_upper(const char *arm, char upper[SPX_ARM_NAME])
{
    size_t n = 0;
    for (; n + 1 < SPX_ARM_NAME && arm[n] != '\0'; n++)
        upper[n] = (char)toupper((unsigned char)arm[n]);
    upper[n] = '\0';
}

int spx_same_spectrograph(const char *a, const char *b)
{
    size_t na, nb;
    const char *arm_a = arm_in(a, &na), *arm_b = arm_in(b, &nb);
    return arm_a - a == arm_b - b && memcmp(a, b, (size_t)(arm_a - a)) == 0 && strcmp(arm_a + na, arm_b + nb) == 0;
}

spx_status spx_arm_copy_bins(const spx_arm *a, spx_arm *out, spx_err *e)
{
    *out = (spx_arm){
        .nwave = a->nwave, .medium = a->medium, .barycentric = a->barycentric, .frame_unknown = a->frame_unknown};
    memcpy(out->name, a->name, sizeof out->name);
    memcpy(out->unit, a->unit, sizeof out->unit);
    if ((out->wavelength = spx_alloc(a->nwave, sizeof *out->wavelength, e)) == NULL)
        return SPX_EIO;
    memcpy(out->wavelength, a->wavelength, a->nwave * sizeof *out->wavelength);
    return SPX_OK;
}

void spx_arm_leave_out(const spx_arm *a, size_t row, const double *velocity, size_t nband, const double *band)
{
    const double *wave = a->row_wavelength != NULL ? a->row_wavelength + row * a->nwave : a->wavelength;
    double shift = 0, wider = 0;
    if (a->barycentric && velocity != NULL && fabs(*velocity) < MOST_KMS)
        shift = *velocity / SPX_C_KMS;
    else if (a->barycentric)
        wider = GROUND_KMS / SPX_C_KMS;
    for (size_t i = 0; i < a->nwave; i++)
        for (size_t b = 0; b < nband; b++) {
            const double w = wave[i] / (1 + shift);
            if (w >= band[2 * b] * (1 - wider) && w <= band[2 * b + 1] * (1 + wider))
                a->mask[row * a->nwave + i] |= SPX_NODATA;
        }
}

double spx_resolution_sum(size_t nwave, size_t ndiag, const double *r, const double *ivar)
{
    enum { SAMPLE = 128 };
    double sum[SAMPLE];
    size_t n = 0;
    const size_t half = ndiag / 2, step = nwave / SAMPLE + 1;
    for (size_t k = half; ndiag > 0 && k + half < nwave; k += step) {
        if (!(ivar[k] > 0))
            continue;
        sum[n] = 0;
        for (size_t b = 0; b < ndiag; b++) /* R[row][row + off] is in column row + off, off = half - b */
            sum[n] += k + half >= b && k + half - b < nwave ? r[b * nwave + k + half - b] : 0;
        n++;
    }
    return n > 0 ? spx_median(sum, n) : 1;
}

void spx_arm_free(spx_arm *a)
{
    spx_free(a->wavelength);
    spx_free(a->row_wavelength);
    spx_free(a->flux);
    spx_free(a->ivar);
    spx_free(a->mask);
    spx_free(a->resolution);
    memset(a, 0, sizeof *a);
}

void spx_frame_free(spx_frame *f)
{
    if (f == NULL)
        return;
    spx_arm_free(&f->arm);
    spx_free(f->chi2pix);
    spx_free(f->pixmask_fraction);
    spx_free(f->background);
    spx_cards_free(&f->header);
    spx_table_free(f->fibermap);
    spx_table_free(f->scores);
    spx_free(f->fiber);
    spx_free(f->cosmic_pixels);
    spx_free(f->model);
    memset(f, 0, sizeof *f);
}

/* Copies n blocks of `size` bytes selected from `from`; NULL stays NULL. */
static spx_status select_rows(void **to, const void *from, size_t per_row, size_t size, size_t n, const size_t *row,
                              spx_err *e)
{
    if (from == NULL)
        return SPX_OK;
    if ((*to = spx_alloc2(n, per_row, size, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)*to + i * per_row * size, (const char *)from + row[i] * per_row * size, per_row * size);
    return SPX_OK;
}

spx_status spx_spectra_subset(const spx_spectra *s, size_t n, const size_t *row, spx_spectra *out, spx_err *e)
{
    memset(out, 0, sizeof *out);
    out->nspec = n;
    out->narm = s->narm;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++) {
        const spx_arm *a = &s->arm[i];
        spx_arm *b = &out->arm[i];
        static const size_t all = 0;
        *b = *a;
        b->wavelength = b->row_wavelength = NULL;
        b->flux = b->ivar = b->resolution = NULL;
        b->mask = NULL;
        if ((st = select_rows((void **)&b->wavelength, a->wavelength, a->nwave, sizeof(double), 1, &all, e)) ==
                SPX_OK &&
            (st = select_rows((void **)&b->row_wavelength, a->row_wavelength, a->nwave, sizeof(double), n, row, e)) ==
                SPX_OK &&
            (st = select_rows((void **)&b->flux, a->flux, a->nwave, sizeof(double), n, row, e)) == SPX_OK &&
            (st = select_rows((void **)&b->ivar, a->ivar, a->nwave, sizeof(double), n, row, e)) == SPX_OK &&
            (st = select_rows((void **)&b->mask, a->mask, a->nwave, sizeof(uint32_t), n, row, e)) == SPX_OK)
            st = select_rows((void **)&b->resolution, a->resolution, a->ndiag * a->nwave, sizeof(double), n, row, e);
    }
    if (st == SPX_OK)
        st = spx_cards_copy(&out->header, &s->header, e);
    if (st == SPX_OK && s->fibermap != NULL && (out->fibermap = spx_table_subset(s->fibermap, n, row, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && s->scores != NULL && (out->scores = spx_table_subset(s->scores, n, row, e)) == NULL)
        st = SPX_EIO;
    return st;
}

void spx_spectra_free(spx_spectra *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->narm; i++)
        spx_arm_free(&s->arm[i]);
    spx_cards_free(&s->header);
    spx_table_free(s->fibermap);
    spx_table_free(s->scores);
    spx_table_free(s->exp_fibermap);
    memset(s, 0, sizeof *s);
}
