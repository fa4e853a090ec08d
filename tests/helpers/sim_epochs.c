/* sim_epochs N E SEED FILE [NAME=VALUE...]: spectra of N stars of the simulator's formula, E exposures of each (rows
 * star after star), for tests of velocities of single exposures, zero points and double-lined stars. Photons go through
 * a Gaussian of FWHM 1.55 Angstrom and are sampled at the centres of pixels of 0.8; noise is Gaussian, half of its
 * variance at the median flux is the spectrum's own.
 *
 *   arm=NAME:LO:HI     an arm, Angstrom in vacuum; repeatable (r:5100:5400)
 *   sn=LO:HI           signal-to-noise ratio of a pixel, of each exposure, uniform in the logarithm (20:40)
 *   teff=LO:HI logg=LO:HI feh=LO:HI v=LO:HI vsini=LO:HI
 *   change=LO:HI       velocities of exposures are v + A sin(random phase), A uniform in LO ... HI km/s (0:0)
 *   errors=F           noise is F times what ivar says (1)
 *   hits=N:S           N pixels of the first exposure of each star are S errors too bright (0:0)
 *   lines=D            each star has 40 lines per 1000 Angstrom that the formula lacks, of depths up to D (0)
 *   zero=S             offsets of velocities, Gaussian with sigma S km/s, one for each arm, fibre (of 20) and night (of
 *                      5); columns ZERO_B, ... (0)
 *   second=LO:HI       light of a second star of the same metallicity, as a fraction of the first one's, mean of all
 *                      pixels (0:0: none); it is 0 to 1500 K cooler, and so its share is larger in redder arms
 *   apart=LO:HI        difference of the two velocities, km/s, of either sign (0:0)
 *
 * The fibermap holds what was put in: columns of spx_target_truth (MAG is the signal-to-noise ratio; VRAD that of the
 * exposure), VRAD_MEAN, VRAD2, RATIO, TEFF2, NIGHT, EXPID, MJD, EXPTIME. Exit status 0, or 1 with a message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"
#include "num/stat.h"
#include "num/wave.h"
#include "products/spectra_h5.h"
#include "products/target.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

enum { FINE = 8, REACH = 33, MOST_ARM = 4, NFIBER = 20, NNIGHT = 5 };
static const double STEP = 0.1, SIGMA = 1.55 / 2.3548200450309493, MARGIN = 10, LINES = 0.04;

static struct {
    size_t n, e, narm;
    uint64_t seed;
    char arm[MOST_ARM][16];
    double lo[MOST_ARM], hi[MOST_ARM];
    double sn[2], teff[2], logg[2], feh[2], v[2], vsini[2], change[2], errors, hits[2], lines, zero, second[2],
        apart[2];
} o = {.sn = {20, 40},
       .teff = {4800, 6800},
       .logg = {2, 4.5},
       .feh = {-1.5, 0},
       .v = {-300, 300},
       .vsini = {0, 10},
       .errors = 1};

/* Random numbers that depend on what they are for alone. */
enum { FOR_NOISE = 1, FOR_STAR, FOR_EXPOSURE, FOR_HIT, FOR_LINE, FOR_ZERO };
static void random2(int what, size_t i, size_t k, double *u)
{
    spx_sim_uniform2(o.seed, SPX_SIM_READ, (unsigned)what, i, (unsigned)k, u);
}

static double within(const double *range, double u)
{
    return range[0] + u * (range[1] - range[0]);
}

/* Flux of one star, unit of its median, which is *level, on wave[n]; lines: it has some that the formula lacks, of
 * star i. */
static spx_status shine(const spx_target *star, size_t i, size_t n, const double *wave, double *flux, double *level,
                        double *tmp, spx_err *e)
{
    spx_status st = spx_sim_stars(1, star, n, wave, flux, NULL, NULL, e);
    const double shift = 1 + star->v / SPX_C_KMS;
    const size_t nline = o.lines > 0 ? (size_t)(LINES * (wave[n - 1] - wave[0])) : 0;
    for (size_t l = 0; l < nline; l++) {
        double u[2], at;
        random2(FOR_LINE, i, l, u);
        at = (wave[0] + u[0] * (wave[n - 1] - wave[0])) * shift;
        for (size_t k = 0; k < n; k++)
            if (fabs(wave[k] - at) < 1)
                flux[k] *= 1 - o.lines * u[1] * exp(-0.5 * pow((wave[k] - at) / 0.3, 2));
    }
    memcpy(tmp, flux, n * sizeof *tmp);
    const double middle = spx_median(tmp, n);
    for (size_t k = 0; k < n; k++)
        flux[k] /= middle;
    *level = middle;
    return st;
}

/* Star i in exposure k: what it is, and its second star. */
typedef struct {
    spx_target first, second;
    double ratio, sn;
} scene;

static scene scene_of(const spx_target *star, size_t i, size_t k)
{
    scene s = {.first = *star};
    double u[2], w[2], x[2];
    random2(FOR_STAR, i, 0, u);
    random2(FOR_STAR, i, 1, x);
    random2(FOR_EXPOSURE, i, k, w);
    s.sn = exp(within((double[]){log(o.sn[0]), log(o.sn[1])}, w[0]));
    s.first.mag = s.sn;
    s.first.v += within(o.change, u[0]) * sin(2 * acos(-1) * w[1]);
    s.second = s.first;
    s.ratio = within(o.second, u[1]);
    s.second.teff = fmax(4200, s.first.teff - 1500 * x[0]);
    s.second.v += (x[1] < 0.5 ? -1 : 1) * within(o.apart, x[1] < 0.5 ? 2 * x[1] : 2 * x[1] - 1);
    return s;
}

/* Light of the second star over that of the first one in all arms, for radii that are equal: mean of the continua. */
static double surfaces(const scene *s)
{
    double sum = 0, width = 0;
    for (size_t a = 0; a < o.narm; a++) {
        const double middle = 0.5 * (o.lo[a] + o.hi[a]);
        sum +=
            (o.hi[a] - o.lo[a]) * spx_sim_continuum(s->second.teff, middle) / spx_sim_continuum(s->first.teff, middle);
        width += o.hi[a] - o.lo[a];
    }
    return sum / width;
}

static double mean(size_t n, const double *x)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += x[k] / (double)n;
    return sum;
}

static double zero_of(size_t arm, size_t fiber, size_t night)
{
    double u[2];
    random2(FOR_ZERO, fiber * NNIGHT + night, arm, u);
    return o.zero > 0 ? o.zero * spx_sim_normal(u) : 0;
}

/* Photons of star i in exposure k, clean[nwave of the arm], and the second star's light there, of the first one's. */
static spx_status expose(const scene *s, size_t i, size_t k, size_t arm, const spx_arm *m, double *clean, double *share,
                         spx_err *e)
{
    const size_t n = spx_sim_grid_size(o.lo[arm] - MARGIN, o.hi[arm] + MARGIN, STEP);
    double *wave = spx_alloc(n, sizeof *wave, e), *one = spx_alloc(n, sizeof *one, e), lsf[2 * REACH + 1], sum = 0;
    double ratio = 0, level[2];
    double *two = spx_alloc(n, sizeof *two, e), *tmp = spx_alloc(n, sizeof *tmp, e);
    spx_status st = wave == NULL || one == NULL || two == NULL || tmp == NULL ? SPX_EIO : SPX_OK;
    for (int j = -REACH; j <= REACH; j++)
        sum += lsf[j + REACH] = exp(-0.5 * pow(j * STEP / SIGMA, 2));
    if (st == SPX_OK) {
        scene seen = *s;
        const double z = zero_of(arm, i % NFIBER, k % NNIGHT);
        seen.first.v += z;
        seen.second.v += z;
        spx_sim_grid(o.lo[arm] - MARGIN, STEP, n, wave);
        st = shine(&seen.first, i, n, wave, one, &level[0], tmp, e);
        if (st == SPX_OK && s->ratio > 0) {
            st = shine(&seen.second, i, n, wave, two, &level[1], tmp, e);
            ratio = s->ratio / surfaces(s) * level[1] / level[0];
        }
        *share = ratio * mean(n, two) / mean(n, one);
    }
    for (size_t p = 0; p < m->nwave && st == SPX_OK; p++) {
        const size_t at = (size_t)((m->wavelength[p] - wave[0]) / STEP + 0.5);
        clean[p] = 0;
        for (int j = -REACH; j <= REACH; j++) {
            const size_t q = at + (size_t)j;
            clean[p] += lsf[j + REACH] / sum * (one[q] + ratio * two[q]) / (1 + ratio) * wave[q] / m->wavelength[p];
        }
    }
    spx_free(wave);
    spx_free(one);
    spx_free(two);
    spx_free(tmp);
    return st;
}

/* A row of an arm: photons, noise and hits. */
static void measure(const scene *s, size_t row, size_t arm, const double *clean, spx_arm *m)
{
    double *flux = m->flux + row * m->nwave, *ivar = m->ivar + row * m->nwave, u[2];
    for (size_t p = 0; p < m->nwave; p++) {
        const double sigma = sqrt(0.5 + 0.5 * clean[p]) / s->sn;
        spx_sim_uniform2(o.seed, SPX_SIM_READ, FOR_NOISE, row * MOST_ARM + arm, (unsigned)p, u);
        flux[p] = clean[p] + o.errors * sigma * spx_sim_normal(u);
        ivar[p] = 1 / (sigma * sigma);
    }
    for (size_t h = 0; h < (size_t)o.hits[0] && row % o.e == 0; h++) {
        random2(FOR_HIT, row * MOST_ARM + arm, h, u);
        const size_t p = (size_t)(u[0] * (double)m->nwave);
        flux[p] += o.hits[1] / sqrt(ivar[p]);
    }
}

/* All exposures of a star, seen[e], and its light ratio. */
static spx_status observe(const spx_target *star, size_t i, spx_spectra *s, spx_target *seen, double *ratio, spx_err *e)
{
    const int moves = o.change[1] > 0 || o.zero > 0;
    spx_status st = SPX_OK;
    double share = 0, npix = 0;
    *ratio = 0;
    for (size_t a = 0; a < o.narm && st == SPX_OK; a++) {
        spx_arm *m = &s->arm[a];
        double *clean = spx_alloc(m->nwave, sizeof *clean, e);
        st = clean == NULL ? SPX_EIO : SPX_OK;
        for (size_t k = 0; k < o.e && st == SPX_OK; k++) {
            const scene x = scene_of(star, i, k);
            if (k == 0 || moves)
                st = expose(&x, i, k, a, m, clean, &share, e);
            if (st == SPX_OK)
                measure(&x, i * o.e + k, a, clean, m);
            seen[k] = x.first;
        }
        *ratio += share * (double)m->nwave;
        npix += (double)m->nwave;
        spx_free(clean);
    }
    *ratio /= npix;
    return st;
}

/* ---- the fibermap ---- */

static spx_status add_truth(spx_table *t, const spx_target *star, const double *ratio, size_t nrow, spx_err *e)
{
    static const char *const name[] = {"VRAD_MEAN", "VRAD2", "RATIO", "TEFF2", "MJD", "EXPTIME"};
    double *v = spx_alloc(nrow, sizeof *v, e);
    int64_t *w = spx_alloc(nrow, sizeof *w, e);
    spx_status st = v == NULL || w == NULL ? SPX_EIO : SPX_OK;
    for (size_t c = 0; c < 6 && st == SPX_OK; c++) {
        for (size_t r = 0; r < nrow; r++) {
            const size_t i = r / o.e, k = r % o.e;
            const scene s = scene_of(&star[i], i, k);
            v[r] = (double[]){star[i].v, s.second.v, ratio[i], s.second.teff, 60000 + (double)k, 1728}[c];
        }
        st = spx_table_add(t, name[c], H5T_NATIVE_DOUBLE, NULL, v, e);
    }
    for (size_t a = 0; a < o.narm && o.zero > 0 && st == SPX_OK; a++) {
        char column[32];
        (void)snprintf(column, sizeof column, "ZERO_%s", o.arm[a]);
        for (size_t r = 0; r < nrow; r++)
            v[r] = zero_of(a, r / o.e % NFIBER, r % o.e % NNIGHT);
        st = spx_table_add(t, column, H5T_NATIVE_DOUBLE, NULL, v, e);
    }
    for (size_t c = 0; c < 2 && st == SPX_OK; c++) {
        for (size_t r = 0; r < nrow; r++)
            w[r] = c == 0 ? (int64_t)(20230101 + r % o.e % NNIGHT) : (int64_t)(1000 + r % o.e);
        st = spx_table_add(t, c == 0 ? "NIGHT" : "EXPID", H5T_NATIVE_INT64, NULL, w, e);
    }
    for (size_t r = 0; r < nrow && st == SPX_OK; r++)
        st = spx_table_set_i64(t, "FIBER", r, (int64_t)(r / o.e % NFIBER), e);
    spx_free(v);
    spx_free(w);
    return st;
}

static spx_status simulate(hid_t file, spx_err *e)
{
    const spx_sim_ranges range = {.seed = o.seed,
                                  .teff = {o.teff[0], o.teff[1]},
                                  .logg = {o.logg[0], o.logg[1]},
                                  .feh = {o.feh[0], o.feh[1]},
                                  .alpha = {0, 0.4},
                                  .v = {o.v[0], o.v[1]},
                                  .vsini = {o.vsini[0], o.vsini[1]}};
    const size_t nrow = o.n * o.e;
    spx_spectra s = {.nspec = nrow, .narm = o.narm};
    spx_target *star = spx_alloc(o.n, sizeof *star, e), *seen = spx_alloc(nrow, sizeof *seen, e);
    double *ratio = spx_alloc(o.n, sizeof *ratio, e);
    spx_status st = star == NULL || seen == NULL || ratio == NULL ? SPX_EIO : spx_sim_draw(&range, o.n, star, e);
    for (size_t a = 0; a < o.narm && st == SPX_OK; a++) {
        spx_arm *m = &s.arm[a];
        memcpy(m->name, o.arm[a], sizeof m->name);
        m->barycentric = 1;
        m->nwave = spx_sim_grid_size(o.lo[a], o.hi[a], FINE * STEP);
        m->wavelength = spx_alloc(m->nwave, sizeof *m->wavelength, e);
        m->flux = spx_alloc2(nrow, m->nwave, sizeof *m->flux, e);
        m->ivar = spx_alloc2(nrow, m->nwave, sizeof *m->ivar, e);
        st = m->wavelength == NULL || m->flux == NULL || m->ivar == NULL ? SPX_EIO : SPX_OK;
        if (st == SPX_OK)
            spx_sim_grid(o.lo[a], FINE * STEP, m->nwave, m->wavelength);
    }
    spx_err first = {0};
#pragma omp parallel for schedule(dynamic, 8)
    for (size_t i = 0; i < (st == SPX_OK ? o.n : 0); i++) {
        spx_err mine = {0};
        if (observe(&star[i], i, &s, seen + i * o.e, &ratio[i], &mine) != SPX_OK) {
#pragma omp critical(sim_epochs)
            first = mine;
        }
    }
    if (st == SPX_OK && first.code != SPX_OK)
        st = spx_err_pass(e, &first);
    if (st == SPX_OK)
        st = spx_target_truth(nrow, seen, 0, 1, 0, &s.fibermap, e);
    if (st == SPX_OK)
        st = add_truth(s.fibermap, star, ratio, nrow, e);
    if (st == SPX_OK)
        st = spx_spectra_write(file, &s, 4, e);
    spx_spectra_free(&s);
    spx_free(star);
    spx_free(seen);
    spx_free(ratio);
    return st;
}

/* NAME=A or NAME=A:B; 0: not understood. */
static int understand(const char *word)
{
    static const struct {
        const char *name;
        double *to;
        int n;
    } words[] = {{"sn", o.sn, 2},      {"teff", o.teff, 2},    {"logg", o.logg, 2},     {"feh", o.feh, 2},
                 {"v", o.v, 2},        {"vsini", o.vsini, 2},  {"change", o.change, 2}, {"errors", &o.errors, 1},
                 {"hits", o.hits, 2},  {"lines", &o.lines, 1}, {"zero", &o.zero, 1},    {"second", o.second, 2},
                 {"apart", o.apart, 2}};
    double a, b;
    const char *eq = strchr(word, '=');
    if (eq == NULL)
        return 0;
    if (strncmp(word, "arm=", 4) == 0 && o.narm < MOST_ARM &&
        sscanf(eq + 1, "%15[^:]:%lf:%lf", o.arm[o.narm], &o.lo[o.narm], &o.hi[o.narm]) == 3) {
        o.narm++;
        return 1;
    }
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k].name) == (size_t)(eq - word) && strncmp(words[k].name, word, (size_t)(eq - word)) == 0) {
            const int n = sscanf(eq + 1, "%lf:%lf", &a, &b);
            words[k].to[0] = a;
            if (words[k].n == 2)
                words[k].to[1] = b;
            return n == words[k].n;
        }
    return 0;
}

int main(int argc, char **argv)
{
    int ok = argc >= 5;
    for (int k = 5; k < argc && ok; k++)
        ok = understand(argv[k]);
    o.n = ok ? strtoul(argv[1], NULL, 10) : 0;
    o.e = ok ? strtoul(argv[2], NULL, 10) : 0;
    if (o.n < 1 || o.n > 100000 || o.e < 1 || o.e > 100) {
        puts("usage: sim_epochs N E SEED FILE [NAME=VALUE...]");
        return 1;
    }
    o.seed = strtoull(argv[3], NULL, 10);
    if (o.narm == 0)
        (void)understand("arm=r:5100:5400");
    spx_err e = {0};
    hid_t file = H5Fcreate(argv[4], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_status st = file < 0 ? SPX_EIO : simulate(file, &e);
    if (st != SPX_OK)
        printf("sim_epochs: %s\n", spx_err_text(&e));
    return file < 0 || H5Fclose(file) < 0 || st != SPX_OK;
}
