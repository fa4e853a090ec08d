/* Makes spectra of stars from a formula or a library, rotated, shifted, in electrons (sim/sim.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

enum { NLINE = 3600, NBROAD = 22 };

/* Narrow line of the formula, the same for every star. */
typedef struct {
    double centre, sigma; /* Angstrom, vacuum */
    double strength;      /* log10 of the optical depth at 5040 K, logg 4, solar abundances */
    double excitation;    /* eV */
    int alpha, ion;
} line;

/* Broad line, with Lorentzian wings over the whole range. */
typedef struct {
    double centre, depth, width;
} broad;

static void make_lines(line *lines)
{
    const double lo = 3300.0, hi = 10400.0;
    for (uint64_t i = 0; i < NLINE; i++) {
        double u[8];
        for (uint32_t k = 0; k < 4; k++)
            spx_sim_uniform2(20110301, SPX_SIM_LINES, 0, i, k, u + 2 * k);
        lines[i].centre = lo * pow(hi / lo, pow(u[0], 1.15)); /* line density rises to the blue */
        lines[i].sigma = lines[i].centre * (7.5 + 1.5 * u[1]) / SPX_C_KMS;
        lines[i].strength = -1.0 + 0.75 * spx_sim_normal(u + 2);
        lines[i].excitation = 5.0 * u[4] * u[4];
        lines[i].alpha = u[5] < 0.3;
        lines[i].ion = u[6] < 0.25;
    }
}

/* Makes the broad lines of one star: hydrogen by Rydberg's formula, resonance and near-infrared lines of metals. */
static void make_broad(const spx_target *t, broad *b)
{
    static const double metal[] = {3934.78, 3969.59, 8500.35, 8544.44, 8664.52,  /* Ca II H, K and triplet */
                                   5168.76, 5174.13, 5185.05, 5891.58, 5897.56}; /* Mg b, Na D */
    static const double metal_depth[] = {9.0, 7.0, 0.7, 1.4, 1.2, 0.6, 1.0, 1.4, 1.0, 0.8};
    const double rydberg = 1.0967758e-3; /* of hydrogen, 1/Angstrom */
    double warm = exp(-pow((t->teff - 9500.0) / 2800.0, 2)), pressure = pow(10.0, 0.12 * (t->logg - 4.0));
    for (int n = 3; n < 15; n++) {
        b->centre = 1.0 / (rydberg * (0.25 - 1.0 / (n * n)));
        b->depth = 2.2 * warm * pow(3.0 / n, 0.7);
        b->width = b->centre * (190.0 * pressure) / SPX_C_KMS;
        b++;
    }
    for (size_t i = 0; i < sizeof metal / sizeof *metal; i++) {
        /* Ca and Mg are alpha elements, Na is not. Neutral atoms are ionised at lower temperature. */
        double abundance = t->feh + (i < 8 ? t->alpha : 0.0);
        double cool = i < 5 ? exp(-pow((t->teff - 4800.0) / 2600.0, 2)) : pow(10.0, -(t->teff - 4800.0) / 2200.0);
        b->centre = metal[i];
        b->depth = metal_depth[i] * fmin(cool, 4.0) * pow(10.0, 0.5 * abundance);
        b->width = b->centre * (i < 2 ? 110.0 : 45.0) / SPX_C_KMS * pow(10.0, (i < 5 ? 0.03 : 0.1) * (t->logg - 4.0));
        b++;
    }
}

double spx_sim_continuum(double teff, double wavelength)
{
    /* pi B_lambda in erg/s/cm^2/cm: 2 pi h c^2 / lambda^5 / (exp(hc/lambda k T) - 1). */
    double cm = wavelength * 1e-8, planck = 3.741771852e-5 / pow(cm, 5) / expm1(1.438776877 / (cm * teff));
    double jump = 0.5 * exp(-pow((teff - 9000.0) / 2600.0, 2));
    return planck * (1.0 - jump / (1.0 + exp((wavelength - 3680.0) / 25.0)));
}

/* First index with w[i] >= x. */
static size_t lower_bound(size_t n, const double *w, double x)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (w[mid] < x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Computes the flux at rest, without rotation, on rest[n], in place of tau[n]. */
static void formula(const line *lines, const spx_target *t, size_t n, const double *rest, double *tau)
{
    const double reach = 60.0, theta = 5040.0 / t->teff;
    broad b[NBROAD];
    make_broad(t, b);
    for (size_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = 0; k < NBROAD; k++) {
            double x = (rest[i] - b[k].centre) / b[k].width;
            sum += b[k].depth / (1.0 + x * x);
        }
        tau[i] = sum;
    }
    /* Saha-like balance between ion and atom. */
    double log_ion = 1.0 - 4.2 * (theta - 1.0) - 0.4 * (t->logg - 4.0), ion = pow(10.0, log_ion);
    double log_atom_fraction = -log10(1.0 + ion), log_ion_fraction = log_ion + log_atom_fraction;
    double wing = 0.03 * pow(10.0, 0.2 * (t->logg - 4.0)), tail = 1.0 / (1.0 + reach * reach / 4.0);
    for (size_t k = 0; k < NLINE; k++) {
        const line *l = lines + k;
        double log_depth = l->strength + 0.8 * (t->feh + (l->alpha ? t->alpha : 0.0)) - l->excitation * (theta - 1.0) +
                           (l->ion ? log_ion_fraction : 1.0 + log_atom_fraction);
        double depth = pow(10.0, log_depth);
        depth /= 1.0 + depth / 2.5; /* strong lines saturate */
        if (depth < 1e-7)
            continue;
        size_t i0 = lower_bound(n, rest, l->centre - reach * l->sigma);
        size_t i1 = lower_bound(n, rest, l->centre + reach * l->sigma);
        for (size_t i = i0; i < i1; i++) {
            double x = (rest[i] - l->centre) / l->sigma, x2 = x * x;
            double phi = wing * (1.0 / (1.0 + 0.25 * x2) - tail);
            if (x2 < 81.0)
                phi += exp(-0.5 * x2);
            tau[i] += depth * phi;
        }
    }
    for (size_t i = 0; i < n; i++)
        tau[i] = spx_sim_continuum(t->teff, rest[i]) * exp(-tau[i]);
}

/* Makes one star; rotating ones on log grids of 1 km/s. */
static spx_status one_star(const line *lines, const spx_target *t, size_t nwave, const double *wavelength, double *flux,
                           spx_err *e)
{
    const double doppler = spx_sim_doppler(t->v);
    double *rest = NULL, *table = NULL;
    spx_status st = SPX_EIO;
    size_t n = nwave;
    if (t->vsini > 0.0) {
        double step = 1.0 / SPX_C_KMS, margin = t->vsini * step + 4.0 * step;
        double lo = log(wavelength[0] / doppler) - margin, hi = log(wavelength[nwave - 1] / doppler) + margin;
        n = (size_t)ceil((hi - lo) / step) + 1;
        rest = spx_alloc(n, sizeof *rest, e);
        table = spx_alloc(n, sizeof *table, e);
        if (rest == NULL || table == NULL)
            goto done;
        for (size_t i = 0; i < n; i++)
            rest[i] = exp(lo + (double)i * step);
        formula(lines, t, n, rest, table);
        st = spx_sim_observe(n, rest, table, t->v, t->vsini, nwave, wavelength, flux, e);
    } else {
        rest = spx_alloc(n, sizeof *rest, e);
        if (rest == NULL)
            goto done;
        for (size_t i = 0; i < n; i++)
            rest[i] = wavelength[i] / doppler;
        formula(lines, t, n, rest, flux);
        st = SPX_OK;
    }
done:
    spx_free(rest);
    spx_free(table);
    return st;
}

static spx_status increasing(size_t n, const double *w, spx_err *e)
{
    if (n == 0 || !(w[0] > 0.0) || !isfinite(w[n - 1]))
        return spx_fail(e, SPX_EINPUT, "wavelengths are not positive and finite");
    for (size_t i = 1; i < n; i++)
        if (!(w[i] > w[i - 1]))
            return spx_fail(e, SPX_EINPUT, "wavelengths do not increase at value %zu", i);
    return SPX_OK;
}

spx_status spx_sim_stars(size_t nstar, const spx_target *star, size_t nwave, const double *wavelength, double *flux,
                         double *norm, spx_progress *progress, spx_err *e)
{
    spx_status st = increasing(nwave, wavelength, e);
    if (st != SPX_OK)
        return st;
    line *lines = spx_alloc(NLINE, sizeof *lines, e);
    if (lines == NULL)
        return SPX_EIO;
    make_lines(lines);
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t s = 0; s < nstar; s++) {
        double *row = flux + s * nwave;
        spx_err mine = {0};
        if (star[s].sky)
            memset(row, 0, nwave * sizeof *row);
        else if (one_star(lines, star + s, nwave, wavelength, row, &mine) != SPX_OK) {
#pragma omp critical(spx_sim_stars_error)
            if (st == SPX_OK)
                st = spx_err_pass(e, &mine);
        }
        if (norm != NULL)
            norm[s] = star[s].sky ? 0.0 : spx_sim_continuum(star[s].teff, SPX_SIM_WAVE_REF);
        spx_progress_step(progress, 1);
    }
    spx_free(lines);
    return st;
}

size_t spx_sim_strips(double vsini)
{
    /* Neighbouring strips are at most pi vsini/(n + 1) apart. */
    double n = ceil(3.14159265358979 * vsini / 6.0);
    return vsini > 0.0 ? (n < 9.0 ? 9 : (size_t)n) : 1;
}

void spx_sim_disc(size_t n, double *x, double *weight)
{
    /* K(x) ~ 2 (1 - eps) sqrt(1 - x^2) + (pi/2) eps (1 - x^2), times dx = sin(t) dt at x = cos(t). */
    const double pi = 3.14159265358979323846, eps = 0.6;
    double sum = 0.0;
    for (size_t j = 0; j < n; j++) {
        double t = pi * (double)(j + 1) / (double)(n + 1), s = sin(t);
        x[j] = n == 1 ? 0.0 : -cos(t);
        weight[j] = s * s * (2.0 * (1.0 - eps) + 0.5 * pi * eps * s);
        sum += weight[j];
    }
    for (size_t j = 0; j < n; j++)
        weight[j] /= sum;
}

spx_status spx_sim_observe(size_t nin, const double *win, const double *in, double v, double vsini, size_t nout,
                           const double *wout, double *out, spx_err *e)
{
    if (!(fabs(v) < 1e5 && vsini >= 0.0 && vsini <= 1000.0))
        return spx_fail(e, SPX_EUSAGE, "velocity %g, vsini %g km/s: out of range", v, vsini);
    if (nin < 4)
        return spx_fail(e, SPX_EINPUT, "a spectrum of %zu values cannot be interpolated: give at least 4", nin);
    spx_status st = increasing(nin, win, e);
    if (st == SPX_OK)
        st = increasing(nout, wout, e);
    if (st != SPX_OK)
        return st;
    const double doppler = spx_sim_doppler(v), widest = exp(vsini / SPX_C_KMS);
    double lo = wout[0] / doppler / widest, hi = wout[nout - 1] / doppler * widest;
    if (lo < win[0] || hi > win[nin - 1])
        return spx_fail(e, SPX_EINPUT,
                        "the spectrum covers %.1f to %.1f Angstrom, %.1f to %.1f are needed: give a longer one, a "
                        "shorter range, or smaller velocities",
                        win[0], win[nin - 1], lo, hi);

    size_t n = spx_sim_strips(vsini);
    double *x = spx_alloc2(2, n, sizeof *x, e);
    double *den = spx_alloc2(nin - 1, 4, sizeof *den, e); /* 1/denominators of Lagrange's weights of each interval */
    if (x == NULL || den == NULL) {
        spx_free(x);
        spx_free(den);
        return SPX_EIO;
    }
    double *weight = x + n;
    spx_sim_disc(n, x, weight);
    /* Interval i uses the points first .. first + 3 around it, shifted inwards at the ends. */
    for (size_t i = 0; i + 1 < nin; i++) {
        size_t first = i == 0 ? 0 : (i + 3 > nin ? nin : i + 3) - 4;
        const double *w = win + first;
        for (int a = 0; a < 4; a++) {
            double d = 1.0;
            for (int b = 0; b < 4; b++)
                d *= a == b ? 1.0 : w[a] - w[b];
            den[4 * i + (size_t)a] = 1.0 / d;
        }
    }
    memset(out, 0, nout * sizeof *out);
    for (size_t j = 0; j < n; j++) {
        const double factor = exp(x[j] * vsini / SPX_C_KMS) / doppler;
        size_t i = lower_bound(nin, win, wout[0] * factor);
        i = i > 0 ? i - 1 : 0;
        for (size_t k = 0; k < nout; k++) {
            double at = wout[k] * factor;
            while (i + 2 < nin && win[i + 1] < at)
                i++;
            size_t first = i == 0 ? 0 : (i + 3 > nin ? nin : i + 3) - 4;
            const double *w = win + first, *f = in + first, *d = den + 4 * i;
            double d0 = at - w[0], d1 = at - w[1], d2 = at - w[2], d3 = at - w[3];
            out[k] += weight[j] * (d1 * d2 * (d3 * d[0] * f[0] + d0 * d[3] * f[3]) +
                                   d0 * d3 * (d2 * d[1] * f[1] + d1 * d[2] * f[2]));
        }
    }
    spx_free(x);
    spx_free(den);
    return SPX_OK;
}

spx_status spx_sim_members(size_t nstar, const spx_target *star, size_t ntable, const double *wtable, int air,
                           const float *table, size_t nwave, const double *wavelength, double *flux, double *norm,
                           spx_progress *progress, spx_err *e)
{
    spx_status st = increasing(ntable, wtable, e);
    double *win = spx_alloc(ntable, sizeof *win, e), *row = spx_alloc(ntable, sizeof *row, e);
    if (win == NULL || row == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < ntable && st == SPX_OK; i++)
        win[i] = air ? spx_air_to_vacuum(wtable[i]) : wtable[i];
    for (size_t s = 0; s < nstar && st == SPX_OK; s++) {
        norm[s] = 0.0;
        memset(flux + s * nwave, 0, nwave * sizeof *flux);
        if (star[s].sky)
            continue;
        double all = 0.0, near = 0.0;
        size_t n = 0;
        for (size_t i = 0; i < ntable; i++) {
            row[i] = table[s * ntable + i];
            all += row[i];
            if (fabs(win[i] - SPX_SIM_WAVE_REF) <= 100.0) {
                near += row[i];
                n++;
            }
        }
        norm[s] = n > 0 ? near / (double)n : all / (double)ntable;
        if (!isfinite(all))
            st = spx_fail(e, SPX_EINPUT, "member %zu of the library is not finite", star[s].member);
        else
            st = spx_sim_observe(ntable, win, row, star[s].v, star[s].vsini, nwave, wavelength, flux + s * nwave, e);
        spx_progress_step(progress, 1);
    }
    spx_free(win);
    spx_free(row);
    return st;
}

size_t spx_sim_grid_size(double min, double max, double step)
{
    if (!(min > 0.0 && max >= min && step > 0.0 && isfinite(max) && (max - min) / step < 0x1p31))
        return 0;
    return (size_t)floor((max - min) / step + 0.5) + 1;
}

void spx_sim_grid(double min, double step, size_t n, double *wavelength)
{
    for (size_t i = 0; i < n; i++)
        wavelength[i] = min + (double)i * step;
}

double spx_sim_photons(double mag, double wavelength)
{
    /* 3631 Jy / (h lambda) per Angstrom: 3.631e-20 / 6.62607e-27 / lambda. */
    return 5.47987e6 / wavelength * pow(10.0, -0.4 * mag);
}

void spx_sim_throughput(char arm, size_t nwave, const double *wavelength, double *out)
{
    for (size_t i = 0; i < nwave; i++) {
        double w = wavelength[i], t = 0.25;
        double low = 1.0 / (1.0 + exp((w - 5730.0) / 15.0)), high = 1.0 / (1.0 + exp((w - 7545.0) / 16.0));
        if (arm == 'b')
            t = 0.24 * exp(-pow((w - 4900.0) / 1100.0, 2)) * low;
        else if (arm == 'r')
            t = 0.32 * exp(-pow((w - 6650.0) / 2200.0, 2)) * (1.0 - low) * high;
        else if (arm == 'z')
            t = 0.30 * exp(-pow((w - 8400.0) / 1900.0, 2)) * (1.0 - high);
        out[i] = t;
    }
}

spx_status spx_sim_electrons(size_t nstar, const spx_target *star, const double *norm, char arm, double exptime,
                             size_t nwave, const double *wavelength, double *flux, spx_err *e)
{
    double *scale = spx_alloc(nwave, sizeof *scale, e);
    if (scale == NULL)
        return SPX_EIO;
    spx_sim_throughput(arm, nwave, wavelength, scale);
    for (size_t i = 0; i < nwave; i++) /* photons: flux times lambda */
        scale[i] *= SPX_SIM_MIRROR * SPX_SIM_FIBRE_LIGHT * exptime * wavelength[i] / SPX_SIM_WAVE_REF;
    spx_status st = SPX_OK;
    for (size_t s = 0; s < nstar && st == SPX_OK; s++) {
        double *row = flux + s * nwave, photons = star[s].sky ? 0.0 : spx_sim_photons(star[s].mag, SPX_SIM_WAVE_REF);
        if (!star[s].sky && !(norm[s] > 0.0 && isfinite(norm[s])))
            st = spx_fail(e, SPX_EINPUT, "star %zu has no flux at %g Angstrom to scale", s, SPX_SIM_WAVE_REF);
        for (size_t i = 0; i < nwave && st == SPX_OK; i++)
            row[i] = star[s].sky ? 0.0 : row[i] / norm[s] * photons * scale[i];
    }
    spx_free(scale);
    return st;
}

void spx_sim_add_sky(size_t nspec, size_t nwave, const double *sky, double *flux)
{
    for (size_t s = 0; s < nspec; s++)
        for (size_t i = 0; i < nwave; i++)
            flux[s * nwave + i] += sky[i];
}
