/* Templates with a line-spread function of their own and resolution matrices, against spectra of narrow lines that are
 * extracted by dense algebra: spots on the pixels of a CCD, least squares, and the resolution matrix of Bolton &
 * Schlegel (2010). The model of a line, the band times the template at the bin centres, is compared with what was
 * extracted. Loops of all instruction sets are compared with plain sums. */
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "num/blas.h"
#include "random.h"
#include "rvfit/model/setup.h"

enum { N = 61, NPIX = 200, NDIAG = 11, NPLACE = 8 };
static const double WAVE0 = 6000, BIN = 0.8, PIXEL = 0.6;

/* Light of a line at bin x on CCD pixel i, from a Gaussian of sigma p bins that the pixel integrates. */
static double spot(double x, double p, size_t i)
{
    const double at = (double)i * PIXEL / BIN - 20, half = 0.5 * PIXEL / BIN, s = p * sqrt(2);
    return 0.5 * (erf((at + half - x) / s) - erf((at - half - x) / s));
}

/* R[N][N], and extracted values[NPLACE][N] of single lines at bins N/2 + k/NPLACE. */
static void extract(double p, double *R, double (*value)[N])
{
    static double A[NPIX][N], C[N * N], root[N][N], sum[N];
    double lambda[N];
    for (size_t i = 0; i < NPIX; i++)
        for (size_t j = 0; j < N; j++)
            A[i][j] = spot((double)j, p, i);
    for (size_t j = 0; j < N; j++)
        for (size_t k = 0; k < N; k++) {
            C[j * N + k] = 0;
            for (size_t i = 0; i < NPIX; i++)
                C[j * N + k] += A[i][j] * A[i][k];
        }
    if (LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'V', 'U', N, C, N, lambda) != 0)
        exit(1);
    /* Q = (A'A)^(1/2), R = Q/s, flux = Q f/s = Q^-1 A'image / s */
    for (size_t i = 0; i < N; i++) {
        sum[i] = 0;
        for (size_t j = 0; j < N; j++) {
            root[i][j] = 0;
            R[i * N + j] = 0;
            for (size_t k = 0; k < N; k++) {
                R[i * N + j] += C[i * N + k] * C[j * N + k] * sqrt(lambda[k]);
                root[i][j] += C[i * N + k] * C[j * N + k] / sqrt(lambda[k]);
            }
            sum[i] += R[i * N + j];
        }
    }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++)
            R[i * N + j] /= sum[i];
    for (size_t t = 0; t < NPLACE; t++) {
        double y[N];
        for (size_t j = 0; j < N; j++) {
            y[j] = 0;
            for (size_t i = 0; i < NPIX; i++)
                y[j] += A[i][j] * spot(N / 2 + (double)t / NPLACE, p, i);
        }
        for (size_t i = 0; i < N; i++) {
            value[t][i] = 0;
            for (size_t j = 0; j < N; j++)
                value[t][i] += root[i][j] * y[j];
            value[t][i] /= sum[i];
        }
    }
}

/* An arm of templates whose LSF has a sigma of g bins, pixels included. */
static void make_arm(spx_rv_arm *a, spx_arm *arm, spx_setup *s, double g)
{
    memset(a, 0, sizeof *a);
    (void)snprintf(s->resolution, sizeof s->resolution, "FWHM=%.12g", g * BIN * 2.35482004503094938202);
    s->dlnwave = 1e-12;
    a->arm = arm;
    a->setup = s;
    a->n = N;
    a->wave = arm->wavelength;
    spx_err e = {0};
    CHECK(spx_rv_make_match(a, -1, &e) == SPX_OK, "match: %s", spx_err_text(&e));
}

/* The variance of lines, bins squared, that makes extracted lines value[] most like their models: least squares in it
 * and the lines' depth, with the second derivative by the place of a line. */
static double variance_off(double (*value)[N], double (*model)[N])
{
    double gram[3] = {0}, right[2] = {0};
    for (size_t t = 0; t < NPLACE; t++)
        for (size_t i = 8; i + 8 < N; i++) {
            const double before = t > 0 ? value[t - 1][i] : value[NPLACE - 1][i + 1],
                         after = t + 1 < NPLACE ? value[t + 1][i] : value[0][i - 1], d = value[t][i],
                         slope = 0.5 * (before - 2 * d + after) * NPLACE * NPLACE, more = model[t][i] - d;
            gram[0] += d * d;
            gram[1] += d * slope;
            gram[2] += slope * slope;
            right[0] += d * more;
            right[1] += slope * more;
        }
    return (gram[0] * right[1] - gram[1] * right[0]) / (gram[0] * gram[2] - gram[1] * gram[1]);
}

/* rms of the model less what was extracted, of the rms of that; and variances of both, bins squared. off: what narrow
 * lines' variance is off by, and what is expected of vsini^2. */
static double compare(double p, double g, double variance[2], double *reported, double off[2])
{
    static double R[N * N], models[NPLACE][N], value[NPLACE][N], res[NDIAG * N], band[NDIAG * N], tmp[N], wave[N];
    spx_arm arm = {.nwave = N, .ndiag = NDIAG, .wavelength = wave};
    spx_setup s = {0};
    spx_rv_arm a;
    double width, difference = 0, all = 0, m[2][3] = {{0}};
    for (size_t i = 0; i < N; i++)
        wave[i] = WAVE0 + BIN * (double)i;
    extract(p, R, value);
    memset(res, 0, sizeof res);
    for (size_t k = 0; k < NDIAG; k++) /* res[k][j] = R[j - off][j], off = NDIAG/2 - k */
        for (size_t j = 0; j < N; j++) {
            const size_t i = j + k - NDIAG / 2;
            if (i < N)
                res[k * N + j] = R[i * N + j];
        }
    make_arm(&a, &arm, &s, g);
    spx_rv_match_rows(spx_rv_kernels_base(), &a, res, band, tmp, &width, reported);
    for (size_t t = 0; t < NPLACE; t++)
        for (size_t i = 8; i + 8 < N; i++) {
            const double at = N / 2 + (double)t / NPLACE;
            double model = 0;
            for (size_t k = 0; k < NDIAG; k++) {
                const double x = ((double)(i + k) - NDIAG / 2 - at) / g;
                model += band[k * N + i] * exp(-0.5 * x * x) / (sqrt(2 * M_PI) * g);
            }
            models[t][i] = model;
            difference += (model - value[t][i]) * (model - value[t][i]);
            all += value[t][i] * value[t][i];
            for (int q = 0; q < 3; q++) {
                m[0][q] += model * pow((double)i - at, q);
                m[1][q] += value[t][i] * pow((double)i - at, q);
            }
        }
    for (int k = 0; k < 2; k++)
        variance[k] = m[k][2] / m[k][0] - pow(m[k][1] / m[k][0], 2);
    off[0] = variance_off(value, models);
    off[1] = spx_rv_match_off(spx_rv_kernels_base(), &a, res, width, 0);
    spx_rv_match_free(&a.match);
    return sqrt(difference / all);
}

/* sigma of spots and templates, bins; how far the model may be off. It is less than the filter R/G up to the Nyquist
 * frequency is off, 0.0126 0.0304 0.0074 0.0098 0.0777. Templates of two bins FWHM do best: narrower ones have aliases.
 */
static void lines(void)
{
    static const struct {
        double p, g, most;
    } c[] = {{0.75, 0.85, 0.01}, {0.75, 0.64, 0.027}, {1.05, 0.64, 0.0073}, {0.75, 0.9, 0.007}, {0.5, 0.64, 0.04}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        double v[2], off[2], reported, is = compare(c[k].p, c[k].g, v, &reported, off);
        CHECK(is < c[k].most, "spots %g, templates %g: model off by %.4f rms", c[k].p, c[k].g, is);
        CHECK(fabs(v[0] / v[1] - 1) < 0.016, "spots %g, templates %g: variance of lines %.5f, of the model %.5f",
              c[k].p, c[k].g, v[1], v[0]);
        /* it gives aliases more weight than they have in lines without width */
        CHECK(reported > 0.5 * is && reported < 2 * is + 0.005, "spots %g, templates %g: misfit %.4f reported, is %.4f",
              c[k].p, c[k].g, reported, is);
    }
}

/* Templates that are too wide are recognised, and by how much they make lines too wide, so that vsini^2 is too small by
 * this over 0.225, the variance of the rotation's kernel. Lines of 0.2 bins that it counts with have less power where
 * the two differ: their variance is off by half to three quarters as much. */
static void too_wide(void)
{
    static const double width[][2] = {{0.75, 1.065}, {0.75, 1.17}, {0.6, 1.0}, {0.6, 1.17}, {0.98, 1.28}};
    double v[2], off[2], reported, is = compare(0.5, 1.4, v, &reported, off);
    CHECK(reported > 0.1 && is > 0.1, "templates much wider than spots: misfit %.4f reported, is %.4f", reported, is);
    for (size_t k = 0; k < sizeof width / sizeof *width; k++) {
        (void)compare(width[k][0], width[k][1], v, &reported, off);
        const double expected = off[1] * 0.225;
        CHECK(off[0] > 0 && expected > 0.5 * off[0] && expected < 0.75 * off[0],
              "spots %g, templates %g: variance off by %.5f, %.5f expected", width[k][0], width[k][1], off[0],
              expected);
    }
}

/* A sigma that is given agrees with what the setup says, or is needed because it says nothing. */
static void given(void)
{
    static double wave[N];
    double g[N];
    spx_setup s = {.setup = "r", .dlnwave = 1e-12, .resolution = "R=x/2.35482"};
    spx_err e = {0};
    for (size_t i = 0; i < N; i++)
        wave[i] = WAVE0 + BIN * (double)i;
    CHECK(spx_rv_template_lsf(&s, -1, N, wave, g, &e) == SPX_OK && fabs(g[3] - 1 / BIN) < 1e-5, "R=x/2.35482: %g",
          g[3]);
    CHECK(spx_rv_template_lsf(&s, 1.005, N, wave, g, &e) == SPX_OK && fabs(g[3] - 1 / BIN) < 1e-5, "rounded: %g", g[3]);
    CHECK(spx_rv_template_lsf(&s, 0.5, N, wave, g, &e) == SPX_EUSAGE, "a contradiction is accepted");
    spx_err_clear(&e);
    (void)snprintf(s.resolution, sizeof s.resolution, "R=@table.txt");
    CHECK(spx_rv_template_lsf(&s, -1, N, wave, g, &e) == SPX_EINPUT, "a width that is not known is accepted");
    spx_err_clear(&e);
    CHECK(spx_rv_template_lsf(&s, 0.8, N, wave, g, &e) == SPX_OK && fabs(g[3] - 1) < 1e-9, "given: %g", g[3]);
    spx_err_clear(&e);
}

/* Loops of a set of instructions against the sums that they stand for: rows of odd lengths, bands that are wider than a
 * vector, runs of columns that are no whole vectors. */
static void loops(const spx_rv_kernels *k, size_t n, size_t ndiag)
{
    enum { NROW = 3, MOST = 160, MOST_DIAG = 129 };
    static double band[MOST_DIAG * MOST], got[MOST_DIAG * MOST], M[2][MOST_DIAG * MOST_DIAG], in[NROW * MOST],
        out[NROW * MOST], t[MOST];
    const size_t stride = n + 3, h = ndiag / 2;
    for (size_t i = 0; i < ndiag * n; i++)
        got[i] = band[i] = gauss();
    for (size_t i = 0; i < ndiag * ndiag; i++) {
        M[0][i] = gauss();
        M[1][i] = gauss();
    }
    for (size_t i = 0; i < NROW * stride; i++)
        in[i] = gauss();
    for (size_t i = 0; i < n; i++)
        t[i] = uniform();
    k->resolve(n, ndiag, band, NROW, stride, in, out);
    for (size_t l = 0; l < NROW; l++)
        for (size_t i = 0; i < n; i++) {
            double s = 0;
            for (size_t j = 0; j < n; j++)
                s += j + h >= i && j <= i + h ? band[(j + h - i) * n + i] * in[l * stride + j] : 0;
            CHECK(fabs(out[l * stride + i] - s) < 1e-11, "%zu values, %zu diagonals: value %zu is %g, want %g", n,
                  ndiag, i, out[l * stride + i], s);
        }
    const size_t first = n / 3, m = n / 2;
    for (int with = 0; with < 2; with++) {
        memcpy(got, band, ndiag * n * sizeof *got);
        k->match(ndiag, n, m, M[0], with ? M[1] : NULL, t, got + first);
        for (size_t r = 0; r < ndiag; r++)
            for (size_t i = 0; i < n; i++) {
                double s = 0, next = 0;
                for (size_t c = 0; c < ndiag; c++) {
                    s += M[0][r * ndiag + c] * band[c * n + i];
                    next += M[1][r * ndiag + c] * band[c * n + i];
                }
                if (i < first || i >= first + m)
                    s = band[r * n + i];
                else if (with)
                    s = (1 - t[i - first]) * s + t[i - first] * next;
                CHECK(fabs(got[r * n + i] - s) < 1e-11, "%zu diagonals: row %zu of column %zu is %g, want %g", ndiag, r,
                      i, got[r * n + i], s);
            }
    }
}

/* Templates of the velocity scan at velocities `step` of their pixels apart, as a band makes them, against plain sums:
 * the template begins and ends within the pixels, of which a velocity leaves some. */
static void moves(const spx_rv_kernels *k, size_t n, size_t ndiag, double step)
{
    enum { L = SPX_RV_LANES, MOST = 160, NT = 250 };
    static double band[SPX_MAX_NDIAG * MOST], t[MOST][L], out[MOST * L];
    static spx_rv_scan_pixel pixel[MOST];
    static float curve[4][NT + SPX_RV_KNOTS];
    const float *const row[4] = {curve[0], curve[1], curve[2], curve[3]};
    const size_t h = ndiag / 2;
    double shift[L];
    for (size_t j = 0; j < 4; j++)
        for (size_t i = 0; i < NT + 2; i++) /* constant beyond the ends */
            curve[j][i] = j > 0 && (i == 0 || i >= NT) ? 0 : (float)gauss();
    curve[0][0] = curve[0][1];
    curve[0][NT + 1] = curve[0][NT];
    for (size_t i = 0; i < ndiag * n; i++)
        band[i] = gauss();
    for (size_t v = 0; v < L; v++) /* places are sums without rounding: which step of the template, is beyond doubt */
        shift[v] = floor(64 * (-25 + step * (double)v)) / 64;
    for (size_t i = 0; i < n; i++) {
        pixel[i].k = (int32_t)(2.2 * (double)i) - 3;
        pixel[i].u = (float)(floor(64 * uniform()) / 64);
        for (size_t v = 0; v < L; v++) {
            const double at = pixel[i].k + (double)pixel[i].u + shift[v], j = fmin(fmax(floor(at), -1), NT - 1),
                         u = fmin(fmax(at - j, 0), 1);
            const size_t m = (size_t)(j + 1);
            t[i][v] =
                (double)curve[0][m] + u * ((double)curve[1][m] + u * ((double)curve[2][m] + u * (double)curve[3][m]));
        }
    }
    k->moved(n, pixel, row, NT, shift, ndiag, band, out);
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < L; v++) {
            double s = 0;
            for (size_t j = i < h ? h - i : 0; j < ndiag && i + j - h < n; j++)
                s += band[j * n + i] * t[i + j - h][v];
            /* templates are of single precision, and a sum has up to 129 of them */
            CHECK(fabs(out[i * L + v] - s) < 1e-5,
                  "%zu pixels, %zu diagonals, steps of %g: pixel %zu, velocity %zu is %.9g, "
                  "want %.9g",
                  n, ndiag, step, i, v, out[i * L + v], s);
        }
}

int main(void)
{
    const spx_rv_kernels *set[3] = {spx_rv_kernels_base(), spx_rv_kernels_avx2(), spx_rv_kernels_avx512()};
    spx_err e = {0};
    random_start(11);
    for (int i = 0; i < 3; i++)
        for (size_t n = 9; set[i] != NULL && n < 150; n += 47) {
            loops(set[i], n, 1);
            loops(set[i], n, 11);
            loops(set[i], n, 129);
            for (size_t ndiag = 1; ndiag < 16; ndiag += 5) {
                moves(set[i], n, ndiag, 1.1);
                moves(set[i], n, ndiag, 17);
            }
            moves(set[i], n, SPX_MAX_NDIAG, -0.4);
        }
    CHECK(spx_blas_open(&e) == SPX_OK, "%s", spx_err_text(&e));
    lines();
    too_wide();
    given();
    return failures != 0;
}
