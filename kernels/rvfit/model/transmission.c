/* Provides the transmission of the atmosphere in the model: a spectrum is R (X S), where X multiplies the star's light
 * S before the line-spread function, so that neither samples at the bin centres nor a product after R will do.
 *
 * Samples: `per` (odd) a bin, no farther apart than FINE times the sigma g of the templates' own line-spread function,
 * at which templates S_g = g * S are computed. Value i of a spectrum is the integral of d_i(x) X(x) S(x), d_i(x) =
 * sum_j R_ij eta(x - j) (model/lsf_match.c). For a Gaussian g, g * (X S) = X_g S_g + g^2 X_g' S_g' + g^4/2 X_g'' S_g''
 * + ... (each side has the Fourier transform X(u) S(v) exp(-g^2 (u+v)^2/2), and exp(-g^2 u v) is expanded). So value i
 * = sum_m W_im (X_g S_g + g^2 X_g' S_g')_m,   W_i * g = d_i, with derivatives as differences of neighbouring samples; W
 * has the frequency response R H G / (G^2 + ridge). Where g is narrow, the terms that are left out vanish: it should be
 * a third of the spectra's width. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "rvfit/model/setup.h"

enum {
    NFREQ = 512,
    ZONES = 3,
    MOST_PER = 15,
    BEYOND = 3 /* bins of W beyond the rows of R */,
    TAPS = 12,
    MISFITS = 16
};
static const double FINE = 1.2;
static const double RIDGE = 1e-5; /* as in the match at the bin centres */
static const double CLASS_STEP = 0.02;

/* Kernel of a bin at q = 0 ... reach samples from its centre. */
static void make_kernel(double g, double p, size_t per, size_t reach, double *kernel)
{
    const size_t zones = per < 2 * ZONES ? per : 2 * ZONES;
    memset(kernel, 0, (reach + 1) * sizeof *kernel);
    for (size_t i = 0; i < NFREQ * zones; i++) {
        const double v = M_PI * ((double)i + 0.5) / NFREQ, G = exp(-0.5 * g * g * v * v);
        const double x = spx_rv_bin_response(p, v) * G / (G * G + RIDGE) / (NFREQ * (double)per);
        const double twice = 2 * cos(v / (double)per);
        double c0 = 1, c1 = 0.5 * twice;
        for (size_t k = 0; k <= reach; k++) {
            kernel[k] += c0 * x;
            const double next = twice * c1 - c0;
            c0 = c1;
            c1 = next;
        }
    }
}

spx_status spx_rv_make_fine(spx_rv_arm *a, const spx_transmission *t, spx_err *e)
{
    spx_rv_fine *f = &a->fine;
    const spx_setup *s = a->setup;
    const spx_rv_match *m = &a->match;
    double least = m->least > 0 ? m->least : 1. / MOST_PER;
    f->per = 3;
    while (f->per < MOST_PER && 1 / (double)f->per > FINE * least)
        f->per += 2;
    f->n = a->n * f->per;
    f->half = (a->ndiag / 2 + BEYOND) * f->per;
    f->reach = f->half + a->ndiag / 2 * f->per;
    const size_t nkernel = m->nclass * SPX_RV_LEVELS;
    f->place = spx_alloc(f->n, sizeof *f->place, e);
    f->wave = spx_alloc(f->n, sizeof *f->wave, e);
    f->kernel = spx_alloc2(nkernel, f->reach + 1, sizeof *f->kernel, e);
    if (f->place == NULL || f->wave == NULL || f->kernel == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < f->n; k++) {
        const double x = ((double)k - (double)(f->per / 2)) / (double)f->per; /* bins */
        size_t i = x > 0 ? (size_t)x : 0;
        i = i + 2 > a->n ? a->n - 2 : i;
        const double u = x - (double)i;
        const double w = (1 - u) * a->wave[i] + u * a->wave[i + 1];
        double own = w;
        f->wave[k] = w;
        if (a->arm->medium != s->medium)
            own = s->medium == SPX_AIR ? spx_vacuum_to_air(w) : spx_air_to_vacuum(w);
        if (a->arm->medium != t->medium)
            f->wave[k] = t->medium == SPX_AIR ? spx_vacuum_to_air(w) : spx_air_to_vacuum(w);
        f->place[k] = (log(own) - s->lnwave0) / s->dlnwave;
    }
    for (size_t c = 0; c < nkernel; c++)
        make_kernel(m->least * exp(CLASS_STEP * (double)(c / SPX_RV_LEVELS)), spx_rv_level_width(c % SPX_RV_LEVELS),
                    f->per, f->reach, f->kernel + c * (f->reach + 1));
    return SPX_OK;
}

void spx_rv_fine_free(spx_rv_fine *f)
{
    spx_free(f->place);
    spx_free(f->wave);
    spx_free(f->kernel);
    *f = (spx_rv_fine){0};
}

/* rms of what the ridge leaves out of a row, of the row; n elements. */
static double left_out(size_t n, const double *raw, double g, double p)
{
    enum { STEPS = 96 };
    double out = 0, all = 0;
    for (size_t k = 0; k < STEPS; k++) {
        const double v = ZONES * M_PI * ((double)k + 0.5) / STEPS, G = exp(-0.5 * g * g * v * v);
        double re = 0, im = 0;
        for (size_t j = 0; j < n; j++) {
            re += raw[j] * cos(v * (double)j);
            im += raw[j] * sin(v * (double)j);
        }
        const double H = spx_rv_bin_response(p, v), power = (re * re + im * im) * H * H, lost = RIDGE / (G * G + RIDGE);
        out += power * lost * lost;
        all += power;
    }
    return all > 0 ? sqrt(out / all) : 0;
}

void spx_rv_fine_rows(const spx_rv_arm *a, const double *res, double *band, double *tmp, double *width, double *miss)
{
    const spx_rv_fine *f = &a->fine;
    const spx_rv_match *m = &a->match;
    const size_t n = a->n, nd = a->ndiag, h = nd / 2, size = 2 * f->half + 1;
    double raw[SPX_MAX_NDIAG], few[MISFITS];
    size_t whole = 0, nfew = 0;
    for (size_t i = h; i + h < n; i++) {
        spx_rv_raw_row(a, res, i, raw);
        const double v = spx_rv_row_variance(nd, raw);
        if (v > 0 && isfinite(v))
            tmp[whole++] = v;
    }
    *width = sqrt(spx_median(tmp, whole));
    const size_t level = spx_rv_match_level(*width);
    for (size_t i = 0; i < n; i++) {
        double *out = band + i * size, sum = 0, got = 0;
        const size_t c = (size_t)(m->place[i] + 0.5);
        const double *kernel =
            f->kernel + ((c < m->nclass ? c : m->nclass - 1) * SPX_RV_LEVELS + level) * (f->reach + 1);
        spx_rv_raw_row(a, res, i, raw);
        memset(out, 0, size * sizeof *out);
        for (size_t j = 0; j < nd; j++) {
            /* sample q of the row is q - half from the centre of bin i, bin j is (j - h) per from there */
            const long centre = (long)f->half + ((long)j - (long)h) * (long)f->per;
            sum += raw[j];
            for (size_t q = 0; q < size && raw[j] != 0; q++) {
                const long d = (long)q - centre;
                out[q] += raw[j] * kernel[d < 0 ? -d : d];
            }
        }
        tmp[i] = sum;
        if (i % (n / MISFITS + 1) == n / MISFITS / 2 && i >= h && i + h < n && sum > 0 && m->least > 0)
            few[nfew++] = left_out(nd, raw, m->g[i], spx_rv_level_width(level));
        const long first = (long)(i * f->per + f->per / 2) - (long)f->half; /* sample of out[0] */
        for (size_t q = 0; q < size; q++) {
            if (first + (long)q < 0 || first + (long)q >= (long)f->n)
                out[q] = 0;
            got += out[q];
        }
        /* what the ends of the arm and of the row cut off */
        for (size_t q = 0; q < size && got > 0 && sum > 0; q++)
            out[q] *= sum / got;
    }
    /* rows that are cut by the ends of the arm are scaled to the sum that rows have in the middle */
    const double middle = spx_median(tmp, n);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t q = 0; q < size && (i < h || i + h >= n); q++)
            sum += band[i * size + q];
        for (size_t q = 0; q < size && sum > 0 && middle > 0; q++)
            band[i * size + q] *= middle / sum;
    }
    *miss = nfew > 0 ? spx_median(few, nfew) : 0;
}

/* X into out[n], of samples at wave[n]: hats between samples, which keep the centroid of a line and add h^2/6 to its
 * variance, and what then is left of g as a discrete Gaussian. sum[n]: workspace. */
static void transmission(const spx_rv_arm *a, const spx_transmission *t, const double *strength, double *out,
                         double *sum, double *norm)
{
    const spx_rv_fine *f = &a->fine;
    const double shift = exp(-spx_rv_lnshift(strength[t->nspecies])); /* of lines: lambda = table times this */
    const double lo = f->wave[0] / shift, hi = f->wave[f->n - 1] / shift;
    size_t k = 0, end = t->nwave, s = 0;
    memset(sum, 0, f->n * sizeof *sum);
    memset(norm, 0, f->n * sizeof *norm);
    while (k < t->nwave && t->wavelength[k] < lo)
        k++;
    while (end > k && t->wavelength[end - 1] > hi)
        end--;
    for (; k + 1 < end; k++) {
        const double w0 = t->wavelength[k], w1 = t->wavelength[k + 1];
        /* the table in steps that are short against those of the samples; tau is a straight line */
        while (s + 2 < f->n && w0 * shift >= f->wave[s + 1])
            s++;
        const double h = f->wave[s + 1] - f->wave[s];
        const size_t parts = (w1 - w0) * 4 > h ? (size_t)ceil((w1 - w0) * 4 / h) : 1;
        size_t at = s;
        for (size_t j = 0; j < parts; j++) {
            const double u = ((double)j + 0.5) / (double)parts, w = (w0 + u * (w1 - w0)) * shift,
                         size = (w1 - w0) / (double)parts;
            double tau = 0;
            for (size_t p = 0; p < t->nspecies; p++) {
                const double *x = t->tau + p * t->nwave + k;
                tau += strength[p] * ((1 - u) * x[0] + u * x[1]);
            }
            while (at + 2 < f->n && w >= f->wave[at + 1])
                at++;
            const double v = fmin(1, fmax(0, (w - f->wave[at]) / (f->wave[at + 1] - f->wave[at])));
            const double X = exp(-tau);
            sum[at] += (1 - v) * size * X;
            sum[at + 1] += v * size * X;
            norm[at] += (1 - v) * size;
            norm[at + 1] += v * size;
        }
    }
    for (size_t i = 0; i < f->n; i++)
        sum[i] = norm[i] > 0 ? sum[i] / norm[i] : 1;
    for (size_t i = 0; i < f->n; i++) {
        const double g = a->match.g[i / f->per] * (double)f->per, var = g * g - 1. / 6;
        if (!(var > 0.01)) {
            out[i] = sum[i];
            continue;
        }
        double weight = 1, ratio = exp(-0.5 / var), square = ratio * ratio, total = 1, value = sum[i];
        for (size_t q = 1; q <= TAPS; q++) {
            weight *= ratio;
            ratio *= square;
            value += weight * (sum[i >= q ? i - q : 0] + sum[i + q < f->n ? i + q : f->n - 1]);
            total += 2 * weight;
        }
        out[i] = value / total;
    }
}

void spx_rv_air(const spx_rv_arm *a, const spx_transmission *t, const double *strength, double *air, double *tmp)
{
    const spx_rv_fine *f = &a->fine;
    double *X = air, *cross = air + f->n;
    transmission(a, t, strength, X, tmp, cross);
    for (size_t i = 0; i < f->n; i++) {
        const double g = a->match.g[i / f->per] * (double)f->per;
        cross[i] = i > 0 && i + 1 < f->n ? 0.25 * g * g * (X[i + 1] - X[i - 1]) : 0;
    }
}

void spx_rv_apply_fine(const spx_rv_arm *a, const double *band, const double *air, const double *in, double *product,
                       double *out)
{
    const spx_rv_fine *f = &a->fine;
    const size_t size = 2 * f->half + 1;
    const double *X = air, *cross = air + f->n;
    product[0] = X[0] * in[0];
    for (size_t i = 1; i + 1 < f->n; i++)
        product[i] = X[i] * in[i] + cross[i] * (in[i + 1] - in[i - 1]);
    product[f->n - 1] = X[f->n - 1] * in[f->n - 1];
    for (size_t i = 0; i < a->n; i++) {
        const size_t centre = i * f->per + f->per / 2;
        const size_t q0 = centre < f->half ? f->half - centre : 0;
        const size_t q1 = f->n - centre > f->half ? size : f->n - centre + f->half;
        const double *v = product + (centre + q0 - f->half), *b = band + i * size + q0;
        double s[4] = {0};
        size_t q = 0, n = q1 - q0;
        for (; q + 4 <= n; q += 4)
            for (size_t l = 0; l < 4; l++)
                s[l] += b[q + l] * v[q + l];
        for (; q < n; q++)
            s[0] += b[q] * v[q];
        out[i] = (s[0] + s[1]) + (s[2] + s[3]);
    }
    for (size_t i = a->n; i < a->stride; i++)
        out[i] = 0;
}
