/* Provides the match of templates, which have a line-spread function g of their own, to resolution matrices.
 *
 * Resolution matrix: value i of a spectrum is sum_j R_ij f_j, f the spectrum at the bin centres. Lines narrower than a
 * bin are no function that values at the centres determine; the extraction, a least-squares fit of spots P at the
 * centres, gives f_j = integral of eta(x - j) S(x), where eta has the frequency response P^2(w) / sum_m P^2(w + 2 pi
 * m): 1 below the bins' Nyquist frequency, 1/2 there, 0 above. So the line-spread function of value i is d_i(x) = sum_j
 * R_ij eta(x - j). Templates sampled at the centres, on the other hand, contain all that g leaves of higher
 * frequencies.
 *
 * Band: row b_i for which sum_k b_ik g(x - k) is nearest to d_i(x), in the mean square over x, the places of lines,
 *     Gamma b_i = U R_i,   Gamma_kl = integral g(x-k) g(x-l),   U_kj = integral g(x-k) eta(x-j),
 * within the diagonals of R, and which has the same sum, mean and variance. But for ends, b(w) = R(w) sum_m G H / sum_m
 * G^2 of frequencies v = w + 2 pi m. That is R/G where g reaches no further than Nyquist. (R/G up to Nyquist has twice
 * the power there, so that templates are sharper than spectra and slow rotators too fast; the inverse of the samples of
 * g, R / sum_m G, is too smooth.) Alias frequencies have the weight of the power of lines, which have a width of their
 * own. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "rvfit/model/setup.h"
#include "spectral/lsf_width.h"

enum {
    NFREQ = 512, /* the midpoint rule is exact up to this many pixels */
    ZONES = 3    /* Nyquist zones on either side; g and P^2 have nothing beyond */
};
static const double CLASS_STEP = 0.02; /* of ln g, between which is interpolated */
static const double RIDGE = 1e-5;      /* of Gamma at frequency 0; errors of templates, squared */
static const double LINE = 0.2;        /* pixels, sigma of lines, 7 km/s in bins of 0.8 Angstrom */
static const double ROTATION = 0.225;  /* variance of the rotation's kernel with limb darkening 0.6, of vsini^2 */
static const double ROUNDED = 0.01;    /* a sigma that is given and one that templates say are the same */
static const double WIDEST = 4;        /* pixels, sigma of g: no bins see such a spectrum's lines */

enum { GG = SPX_RV_GG, GH = SPX_RV_GH, HH = SPX_RV_HH, NPRODUCT = SPX_RV_PRODUCTS };

static double line_power(double v)
{
    return exp(-LINE * LINE * v * v);
}

static void responses(double g, double p, double w, double product[NPRODUCT])
{
    double sum = 0;
    memset(product, 0, NPRODUCT * sizeof *product);
    for (int m = -ZONES; m <= ZONES; m++) {
        const double v = w + 2 * M_PI * m, weight = line_power(v) / line_power(w);
        const double H = exp(-(v * v - w * w) * p * p), G = exp(-0.5 * g * g * v * v);
        sum += H;
        product[GG] += weight * G * G;
        product[GH] += weight * G * H;
        product[HH] += weight * H * H;
    }
    product[GH] /= sum;
    product[HH] /= sum * sum;
}

double spx_rv_bin_response(double p, double v)
{
    double sum = 0;
    for (int m = -ZONES; m <= ZONES; m++) {
        const double w = v - 2 * M_PI * (round(v / (2 * M_PI)) + m);
        sum += exp((v - w) * (v + w) * p * p);
    }
    return 1 / sum;
}

/* lag[n] += cos(k w) x, k = 0 ... n-1. */
static void add_cosines(double w, double x, size_t n, double *lag)
{
    const double twice = 2 * cos(w);
    double c0 = 1, c1 = cos(w);
    for (size_t k = 0; k < n; k++) {
        lag[k] += x * c0;
        const double next = twice * c1 - c0;
        c0 = c1;
        c1 = next;
    }
}

/* lag[NPRODUCT][n], pixels 0 ... n-1. */
static void lags(double g, double p, size_t n, double *lag)
{
    double product[NPRODUCT];
    memset(lag, 0, NPRODUCT * n * sizeof *lag);
    for (size_t i = 0; i < NFREQ; i++) {
        const double w = M_PI * ((double)i + 0.5) / NFREQ;
        responses(g, p, w, product);
        for (size_t q = 0; q < NPRODUCT; q++)
            add_cosines(w, product[q] / NFREQ, n, lag + q * n);
    }
}

void spx_rv_filter(double g, double p, size_t n, double *filter)
{
    double product[NPRODUCT];
    memset(filter, 0, n * sizeof *filter);
    filter[0] = 1;
    if (!(g > 0)) /* no line-spread function */
        return;
    filter[0] = 0;
    for (size_t i = 0; i < NFREQ; i++) {
        const double w = M_PI * ((double)i + 0.5) / NFREQ;
        responses(g, p, w, product);
        add_cosines(w, product[GH] / (product[GG] + RIDGE) / NFREQ, n, filter);
    }
}

double spx_rv_level_width(size_t level)
{
    return SPX_RV_LEVEL_MIN * exp(SPX_RV_LEVEL_STEP * (double)level);
}

/* Solves L L' x = b in place, of m numbers with the step `stride`. */
static void solve(size_t m, const double *L, size_t stride, double *x)
{
    for (size_t i = 0; i < m; i++) {
        for (size_t k = 0; k < i; k++)
            x[i * stride] -= L[i * m + k] * x[k * stride];
        x[i * stride] /= L[i * m + i];
    }
    for (size_t i = m; i-- > 0;) {
        for (size_t k = i + 1; k < m; k++)
            x[i * stride] -= L[k * m + i] * x[k * stride];
        x[i * stride] /= L[i * m + i];
    }
}

/* Row of the moment matrix C: 1, x, x^2 at pixel k of m. */
static double moment(size_t m, int q, size_t k)
{
    const double x = (double)k - (double)(m / 2);
    return q == 0 ? 1 : q == 1 ? x : x * x;
}

/* out[m][m] = Gamma^-1 U + Gamma^-1 C' (C Gamma^-1 C')^-1 (T - C Gamma^-1 U): C takes the moments 0, 1, 2 of a row of
 * the band, T gives those that it should have. Odd and even moments do not mix. `L`: [m][m] to work in. */
static void match_matrix(double g, size_t m, const double *lag, double *L, double *out)
{
    enum { NMOMENT = 3 };
    const double *gg = lag + GG * m, *gh = lag + GH * m;
    double y[NMOMENT][SPX_MAX_NDIAG], gram[NMOMENT][NMOMENT] = {{0}};
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j <= i; j++) {
            double s = gg[i - j] + (i == j ? RIDGE : 0);
            for (size_t k = 0; k < j; k++)
                s -= L[i * m + k] * L[j * m + k];
            L[i * m + j] = i == j ? sqrt(s) : s / L[j * m + j];
        }
    for (int q = 0; q < NMOMENT; q++) {
        for (size_t i = 0; i < m; i++)
            y[q][i] = moment(m, q, i);
        solve(m, L, 1, y[q]);
    }
    for (int q = 0; q < NMOMENT; q++)
        for (int r = q % 2; r < NMOMENT; r += 2)
            for (size_t i = 0; i < m; i++)
                gram[q][r] += moment(m, q, i) * y[r][i];
    const double det = gram[0][0] * gram[2][2] - gram[0][2] * gram[2][0];
    for (size_t c = 0; c < m; c++) {
        double miss[NMOMENT];
        for (size_t i = 0; i < m; i++)
            out[i * m + c] = gh[i > c ? i - c : c - i];
        solve(m, L, m, out + c);
        for (int q = 0; q < NMOMENT; q++) {
            miss[q] = moment(m, q, c) - (q == 2 ? g * g : 0);
            for (size_t i = 0; i < m; i++)
                miss[q] -= moment(m, q, i) * out[i * m + c];
        }
        const double l0 = (miss[0] * gram[2][2] - gram[0][2] * miss[2]) / det, l1 = miss[1] / gram[1][1],
                     l2 = (gram[0][0] * miss[2] - gram[2][0] * miss[0]) / det;
        for (size_t i = 0; i < m; i++)
            out[i * m + c] += l0 * y[0][i] + l1 * y[1][i] + l2 * y[2][i];
    }
}

spx_status spx_rv_template_lsf(const spx_setup *s, double sigma, size_t n, const double *wave, double *g, spx_err *e)
{
    spx_lsf_width width = {0};
    const int known = spx_lsf_parse(s->resolution, 0, &width, NULL) == SPX_OK && width.name == NULL;
    spx_status st = SPX_OK;
    if (sigma < 0 && !known)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s' do not say the width of their line-spread function ('%.60s'): give "
                        "its sigma ({lsf_sigma})",
                        s->setup, s->resolution);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        const double step = i == 0       ? wave[1] - wave[0]
                            : i + 1 == n ? wave[i] - wave[i - 1]
                                         : 0.5 * (wave[i + 1] - wave[i - 1]);
        const double pixel = s->dlnwave * wave[i];
        double lsf = sigma, fwhm = 0;
        if (known && (st = spx_lsf_fwhm(&width, wave[i], &fwhm, e)) == SPX_OK)
            lsf = fwhm / SPX_FWHM_PER_SIGMA;
        if (st == SPX_OK && sigma >= 0 && fabs(lsf - sigma) > ROUNDED * lsf)
            st = spx_fail(
                e, SPX_EUSAGE,
                "templates of setup '%.63s' have a line-spread function of sigma %.4g Angstrom at %.0f (%.60s), "
                "{lsf_sigma} says %.4g: leave it out",
                s->setup, lsf, wave[i], s->resolution, sigma);
        g[i] = lsf > 0 ? hypot(lsf, pixel / sqrt(12)) / step : 0;
    }
    return st;
}

spx_status spx_rv_make_match(spx_rv_arm *a, double sigma, spx_err *e)
{
    spx_rv_match *m = &a->match;
    const size_t nd = a->arm->ndiag;
    double lo = HUGE_VAL, hi = 0;
    m->g = spx_alloc(a->n, sizeof *m->g, e);
    m->place = spx_alloc(a->n, sizeof *m->place, e);
    double *L = spx_alloc2(nd, nd, sizeof *L, e);
    spx_status st = m->g && m->place && L ? spx_rv_template_lsf(a->setup, sigma, a->n, a->wave, m->g, e) : SPX_EIO;
    for (size_t i = 0; i < a->n && st == SPX_OK; i++) {
        lo = fmin(lo, m->g[i]);
        hi = fmax(hi, m->g[i]);
    }
    if (st == SPX_OK && !(hi < WIDEST))
        st = spx_fail(e, SPX_EUSAGE,
                      "arm '%.15s': templates with a line-spread function of sigma %.3g pixels have no lines that "
                      "{resolution_matrix} could make sharper: make narrow ones with {make_templates}",
                      a->arm->name, hi);
    m->least = lo;
    m->nclass = lo > 0 ? (size_t)ceil(log(hi / lo) / CLASS_STEP) + 1 : 1;
    for (size_t i = 0; i < a->n && m->nclass > 1; i++)
        m->place[i] = log(m->g[i] / lo) / CLASS_STEP;
    if (st == SPX_OK && ((m->matrix = spx_alloc2(m->nclass * SPX_RV_LEVELS, nd * nd, sizeof *m->matrix, e)) == NULL ||
                         (m->lag = spx_alloc2(m->nclass * SPX_RV_LEVELS, NPRODUCT * nd, sizeof *m->lag, e)) == NULL))
        st = SPX_EIO;
    for (size_t c = 0; c < m->nclass * SPX_RV_LEVELS && st == SPX_OK; c++) {
        const double g = lo * exp(CLASS_STEP * (double)(c / SPX_RV_LEVELS));
        double *lag = m->lag + c * NPRODUCT * nd, *out = m->matrix + c * nd * nd;
        if (g > 0) {
            lags(g, spx_rv_level_width(c % SPX_RV_LEVELS), nd, lag);
            match_matrix(g, nd, lag, L, out);
        }
        for (size_t i = 0; !(g > 0) && i < nd; i++)
            out[i * nd + i] = 1;
    }
    spx_free(L);
    return st;
}

void spx_rv_match_free(spx_rv_match *m)
{
    spx_free(m->g);
    spx_free(m->place);
    spx_free(m->lag);
    spx_free(m->matrix);
    *m = (spx_rv_match){0};
}

double spx_rv_row_variance(size_t nd, const double *row)
{
    double s0 = 0, s1 = 0, s2 = 0;
    for (size_t k = 0; k < nd; k++) {
        const double x = (double)k - (double)(nd / 2);
        s0 += row[k];
        s1 += row[k] * x;
        s2 += row[k] * x * x;
    }
    return s2 / s0 - s1 / s0 * (s1 / s0);
}

void spx_rv_raw_row(const spx_rv_arm *a, const double *res, size_t i, double *raw)
{
    const size_t n = a->n, nd = a->arm->ndiag, h = nd / 2;
    for (size_t k = 0; k < nd; k++) {
        /* column j = i - h + k is kept in the diagonal of offset k - h, at j */
        const size_t j = i + k;
        raw[k] = j >= h && j - h < n ? res[(nd - 1 - k) * n + j - h] : 0;
        if (!isfinite(raw[k]))
            raw[k] = 0;
    }
}

/* The class of a pixel: that below its g. */
static size_t class_of(const spx_rv_match *m, size_t i)
{
    const size_t c = (size_t)m->place[i];
    return c < m->nclass - 1 ? c : m->nclass - 1;
}

/* Mean square of sum_k b_k g(x - k) - d(x), of that of d. */
static double misfit(size_t nd, const double *lag, const double *raw, const double *b)
{
    double bb = 0, br = 0, rr = 0;
    for (size_t i = 0; i < nd; i++)
        for (size_t j = 0; j < nd; j++) {
            const size_t k = i > j ? i - j : j - i;
            bb += b[i] * b[j] * lag[GG * nd + k];
            br += b[i] * raw[j] * lag[GH * nd + k];
            rr += raw[i] * raw[j] * lag[HH * nd + k];
        }
    return (bb - 2 * br + rr) / rr;
}

/* R by diagonals as spx_rv_raw_row() has its rows: out[ndiag][n]. */
static void raw_rows(const spx_rv_arm *a, const double *res, double *out)
{
    const size_t n = a->n, nd = a->arm->ndiag, h = nd / 2;
    for (size_t k = 0; k < nd; k++) {
        /* rows that have such a column */
        const size_t first = k < h ? h - k : 0, end = k < h ? n : n + h > k ? n + h - k : 0;
        const double *from = res + (nd - 1 - k) * n + k - h;
        double *to = out + k * n;
        memset(to, 0, n * sizeof *to);
#pragma omp simd
        for (size_t i = first; i < end; i++)
            to[i] = fabs(from[i]) <= DBL_MAX ? from[i] : 0;
    }
}

/* spx_rv_row_variance() of rows first ... first+m-1, v[m]. */
static void row_variances(size_t nd, size_t n, const double *rows, size_t first, size_t m, double *v)
{
    enum { BLOCK = 256 };
    for (size_t at = 0; at < m; at += BLOCK) {
        double s0[BLOCK] = {0}, s1[BLOCK] = {0}, s2[BLOCK] = {0};
        const size_t some = m - at < BLOCK ? m - at : BLOCK;
        for (size_t k = 0; k < nd; k++) {
            const double x = (double)k - (double)(nd / 2), *row = rows + k * n + first + at;
#pragma omp simd
            for (size_t i = 0; i < some; i++) {
                s0[i] += row[i];
                s1[i] += row[i] * x;
                s2[i] += row[i] * x * x;
            }
        }
#pragma omp simd
        for (size_t i = 0; i < some; i++)
            v[at + i] = s2[i] / s0[i] - s1[i] / s0[i] * (s1[i] / s0[i]);
    }
}

/* Rows of R, [ndiag][n], of n pixels from `first` on, to those of the band, as the matrices of the pixels' classes have
 * it. */
static void to_band(const spx_rv_kernels *kernels, const spx_rv_match *m, size_t nd, size_t first, size_t n,
                    size_t level, double *rows)
{
    enum { RUN = 256 };
    const size_t size = SPX_RV_LEVELS * nd * nd;
    for (size_t i = 0, end; i < n; i = end) {
        double t[RUN];
        const size_t c = class_of(m, first + i);
        for (end = i; end < n && end < i + RUN && class_of(m, first + end) == c; end++)
            t[end - i] = m->place[first + end] - (double)c;
        const double *M = m->matrix + c * size + level * nd * nd;
        kernels->match(nd, n, end - i, M, c + 1 < m->nclass ? M + size : NULL, t, rows + i);
    }
}

void spx_rv_match_rows(const spx_rv_kernels *kernels, const spx_rv_arm *a, const double *res, double *band, double *tmp,
                       double *width, double *miss)
{
    const size_t n = a->n, nd = a->arm->ndiag, h = nd / 2;
    const spx_rv_match *m = &a->match;
    double raw[SPX_MAX_NDIAG], out[SPX_MAX_NDIAG], few[SPX_RV_MISFITS];
    size_t whole = 0, nfew = 0;
    raw_rows(a, res, band);
    const size_t inner = n > 2 * h ? n - 2 * h : 0;
    row_variances(nd, n, band, h, inner, tmp);
    for (size_t i = 0; i < inner; i++)
        if (tmp[i] > 0 && isfinite(tmp[i]))
            tmp[whole++] = tmp[i];
    *width = sqrt(spx_median(tmp, whole));
    const size_t level = spx_rv_match_level(*width);
    memset(tmp, 0, n * sizeof *tmp);
    for (size_t k = 0; k < nd; k++)
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            tmp[i] += band[k * n + i];
    to_band(kernels, m, nd, 0, n, level, band);
    for (size_t i = n / SPX_RV_MISFITS / 2; i < n; i += n / SPX_RV_MISFITS + 1) {
        if (i < h || i + h >= n || !(tmp[i] > 0) || !(m->least > 0))
            continue;
        spx_rv_raw_row(a, res, i, raw);
        for (size_t k = 0; k < nd; k++)
            out[k] = band[k * n + i];
        const double x = misfit(nd, m->lag + (class_of(m, i) * SPX_RV_LEVELS + level) * NPRODUCT * nd, raw, out);
        if (isfinite(x))
            few[nfew++] = sqrt(fmax(x, 0));
    }
    /* rows that are cut by the ends of the arm are scaled to the sum that rows have in the middle */
    double middle = spx_median(tmp, n);
    if (middle == 0)
        middle = 1;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        if (i >= h && i + h < n)
            continue;
        for (size_t k = 0; k < nd; k++) {
            if (i + k < h || i + k - h >= n)
                band[k * n + i] = 0;
            sum += band[k * n + i];
        }
        for (size_t k = 0; k < nd && sum != 0; k++)
            band[k * n + i] *= middle / sum;
    }
    *miss = nfew > 0 ? spx_median(few, nfew) : 0;
}

/* At random places of lines the samples' frequencies w and w + 2 pi m are as if of different pixels: each adds to the
 * equations. */
double spx_rv_match_off(const spx_rv_kernels *kernels, const spx_rv_arm *a, const double *res, double width,
                        double vsini)
{
    enum { WAVES = 48, ROWS = 3 };
    const size_t n = a->n, nd = a->arm->ndiag, h = nd / 2, level = spx_rv_match_level(width);
    const double line = LINE * LINE + ROTATION * vsini * vsini;
    double off = 0, rows = 0;
    for (size_t r = 1; r <= ROWS; r++) {
        const size_t i = r * n / (ROWS + 1);
        const double g = a->match.g[i];
        double raw[SPX_MAX_NDIAG], band[SPX_MAX_NDIAG], gram[3] = {0}, right[2] = {0};
        spx_rv_raw_row(a, res, i, raw);
        memcpy(band, raw, nd * sizeof *band);
        to_band(kernels, &a->match, nd, i, 1, level, band);
        for (size_t q = 0; q < WAVES; q++) {
            const double w = M_PI * ((double)q + 0.5) / WAVES;
            double b = 0, d = 0;
            for (size_t k = 0; k < nd; k++) {
                const double wave = cos(((double)k - (double)h) * w);
                b += band[k] * wave;
                d += raw[k] * wave;
            }
            for (int z = -1; z <= 1; z++) { /* farther zones have nothing */
                const double v = w + 2 * M_PI * z, v2 = v * v;
                const double model = b * exp(-0.5 * g * g * v2), data = d * spx_rv_bin_response(width, v);
                const double power = exp(-line * v2), slope = -0.5 * v2 * model; /* by the variance of lines */
                gram[0] += power * model * model;
                gram[1] += power * model * slope;
                gram[2] += power * slope * slope;
                right[0] += power * model * (model - data);
                right[1] += power * slope * (model - data);
            }
        }
        const double det = gram[0] * gram[2] - gram[1] * gram[1];
        if (!(det > 0))
            continue;
        off += (gram[0] * right[1] - gram[1] * right[0]) / det / ROTATION;
        rows++;
    }
    return rows > 0 ? off / rows : 0;
}
