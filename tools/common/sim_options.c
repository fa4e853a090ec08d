#include "common/sim_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "common/cold_options.h"
#include "sim/sim_lamp.h"
#include "spectral/lines.h"

static spx_status range(const char *text, const char *what, double out[2], spx_err *e)
{
    size_t n;
    spx_status st = spx_parse_doubles(text, ':', what, "a number or MIN:MAX", 2, out, &n, e);
    if (st == SPX_OK && n == 1)
        out[1] = out[0];
    return st;
}

/* FIRST:LAST, or one number that is LAST; whole numbers from 0 on. */
static spx_status interval(const char *text, const char *what, size_t *first, size_t *last, spx_err *e)
{
    double v[2];
    size_t n;
    spx_status st = spx_parse_doubles(text, ':', what, "FIRST:LAST", 2, v, &n, e);
    if (st != SPX_OK)
        return st;
    double a = n == 1 ? 0 : v[0], b = v[n - 1];
    if (!(a >= 0 && b > a && b < 1e9) || a != (double)(size_t)a || b != (double)(size_t)b)
        return spx_fail(e, SPX_EUSAGE,
                        "%s: '%s' should be a number above 0 or FIRST:LAST, whole numbers, FIRST below LAST", what,
                        text);
    *first = (size_t)a;
    *last = (size_t)b;
    return SPX_OK;
}

spx_status spx_sim_args_wavelength(const spx_sim_args *o, double w[2], spx_err *e)
{
    size_t n = 2;
    w[0] = w[1] = 0;
    spx_status st =
        o->wavelength == NULL ? SPX_OK : spx_parse_doubles(o->wavelength, ',', "--wavelength", "MIN,MAX", 2, w, &n, e);
    if (st == SPX_OK && (n != 2 || (o->wavelength != NULL && !(w[0] > 0 && w[1] > w[0]))))
        st = spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' should be MIN,MAX with MIN below MAX", o->wavelength);
    return st;
}

spx_status spx_sim_args_ranges(const spx_sim_args *o, size_t nspec, spx_sim_ranges *r, spx_err *e)
{
    double snr[2];
    const struct {
        const char *text, *what;
        double *out;
    } all[] = {{o->teff, "--teff", r->teff},    {o->logg, "--logg", r->logg},      {o->feh, "--feh", r->feh},
               {o->alpha, "--alpha", r->alpha}, {o->velocity, "--velocity", r->v}, {o->vsini, "--vsini", r->vsini},
               {o->mag, "--mag", r->mag}};
    r->seed = (uint64_t)o->seed;
    r->nsky = o->sky_fibers < 0 ? nspec / 5 : (size_t)o->sky_fibers;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && st == SPX_OK; i++)
        st = range(all[i].text, all[i].what, all[i].out, e);
    if (st == SPX_OK && o->snr != NULL && (st = range(o->snr, "--snr", snr, e)) == SPX_OK)
        for (int i = 0; i < 2 && st == SPX_OK; i++) /* bright is small */
            st = spx_sim_magnitude(snr[1 - i], o->exptime, o->readnoise, o->sky, &r->mag[i], e);
    return st;
}

spx_status spx_sim_args_lamps(const spx_sim_args *o, unsigned *lamps, spx_err *e)
{
    *lamps = 0;
    if (o->arc == NULL)
        return SPX_OK;
    if (strcmp(o->arc, "all") == 0) {
        *lamps = SPX_LAMP_ALL;
        return SPX_OK;
    }
    for (const char *p = o->arc;; p++) {
        const size_t n = strcspn(p, ",");
        const unsigned one = spx_lamp_of(p, n);
        if (one == 0)
            return spx_fail(e, SPX_EUSAGE, "--arc: '%s' should be all, or some of Hg,Cd,Ne,Ar,Kr,Xe,He,Zn", o->arc);
        *lamps |= one;
        p += n;
        if (*p == '\0')
            return SPX_OK;
    }
}

spx_status spx_sim_args_gradient(const char *text, const char *option, double g[2], spx_err *e)
{
    size_t n = 2;
    g[0] = g[1] = 0;
    spx_status st = text == NULL ? SPX_OK : spx_parse_doubles(text, ',', option, "GX,GY", 2, g, &n, e);
    if (st == SPX_OK && (n != 2 || !(fabs(g[0]) + fabs(g[1]) < 1)))
        st = spx_fail(e, SPX_EUSAGE, "%s: '%s' should be GX,GY, together below 1: light is not negative", option, text);
    return st;
}

spx_status spx_sim_args_sky(const spx_sim_args *o, double factor[SPX_SIM_NSKY], spx_err *e)
{
    static const char *const name[SPX_SIM_NSKY] = {"continuum", "OH", "OI", "Na", "rest"};
    static const char form[] = "RMS, or OH=FACTOR,OI=FACTOR,Na=FACTOR,rest=FACTOR,continuum=FACTOR";
    double v;
    spx_status st = SPX_OK;
    for (int q = 0; q < SPX_SIM_NSKY; q++)
        factor[q] = 1;
    if (o->sky_lines == NULL)
        return SPX_OK;
    if (strchr(o->sky_lines, '=') == NULL) {
        st = spx_parse_double(o->sky_lines, "--sky-lines", &v, e);
        if (st == SPX_OK && !(v >= 0 && v <= 2))
            st = spx_fail(e, SPX_EUSAGE, "--sky-lines %s: an rms is from 0 to 2", o->sky_lines);
        if (st == SPX_OK)
            spx_sim_sky_vary(v, spx_sim_args_noise_seed(o), factor);
        return st;
    }
    for (const char *p = o->sky_lines; st == SPX_OK && *p != '\0';) {
        char one[64] = "";
        const size_t n = strcspn(p, ","), k = strcspn(p, "=");
        int q = 0;
        while (q < SPX_SIM_NSKY && !(strlen(name[q]) == k && strncmp(name[q], p, k) == 0))
            q++;
        if (q == SPX_SIM_NSKY || k >= n || n - k >= sizeof one)
            return spx_fail(e, SPX_EUSAGE, "--sky-lines: '%s' should be %s", o->sky_lines, form);
        memcpy(one, p + k + 1, n - k - 1);
        st = spx_parse_double(one, "--sky-lines", &factor[q], e);
        if (st == SPX_OK && !(factor[q] >= 0 && factor[q] <= 1e6))
            st = spx_fail(e, SPX_EUSAGE, "--sky-lines: '%s' should be %s, FACTOR from 0 to 1e6", o->sky_lines, form);
        p += n + (p[n] == ',');
    }
    return st;
}

/* --amp-offsets: four numbers, or the rms of four that are drawn. */
static spx_status offsets(const spx_sim_args *o, spx_sim_noise *n, spx_err *e)
{
    size_t k = 4;
    if (o->amp_offsets == NULL)
        return SPX_OK;
    spx_status st = spx_parse_doubles(o->amp_offsets, ',', "--amp-offsets", "E,E,E,E or RMS", 4, n->offset, &k, e);
    if (st == SPX_OK && (k == 2 || k == 3 || (k == 1 && n->offset[0] < 0)))
        st = spx_fail(e, SPX_EUSAGE, "--amp-offsets: '%s' should be E,E,E,E or RMS", o->amp_offsets);
    if (st == SPX_OK && k == 1)
        spx_sim_amplifiers(n->offset[0], n->seed, n->camera, n->offset);
    return st;
}

spx_status spx_sim_args_fibers(const spx_sim_args *o, size_t *first, size_t *last, spx_err *e)
{
    return o->fibers == NULL ? SPX_OK : interval(o->fibers, "--fibers", first, last, e);
}

uint64_t spx_sim_args_noise_seed(const spx_sim_args *o)
{
    return (uint64_t)(o->has_noise_seed ? o->noise_seed : o->seed);
}

uint64_t spx_sim_args_instrument_seed(const spx_sim_args *o)
{
    return (uint64_t)(o->has_instrument_seed ? o->instrument_seed : o->seed);
}

spx_status spx_sim_args_noise(const spx_sim_args *o, char camera, size_t ny, spx_sim_noise *n, spx_err *e)
{
    /* a lamp's exposure has other noise than one of stars */
    const uint64_t other = o->flat ? 0xF1A70000u : o->arc != NULL ? 0xA2C0000u : 0;
    *n = (spx_sim_noise){.seed = spx_sim_args_noise_seed(o) ^ other,
                         .camera = camera,
                         .photon_noise = o->noise,
                         .readnoise = o->readnoise,
                         .fullwell = o->fullwell,
                         .cosmics = o->cosmics,
                         .badcolumns = (size_t)o->badcolumns,
                         .blocks = (size_t)o->saturated,
                         .nans = (size_t)o->nans,
                         .ivar = o->ivar,
                         .hide_cosmics = !o->flag_cosmics};
    size_t end;
    spx_status st = offsets(o, n, e);
    if (st != SPX_OK || o->gap == NULL)
        return st;
    st = interval(o->gap, "--gap", &n->gap_row, &end, e);
    if (st == SPX_OK && n->gap_row >= ny)
        st = spx_fail(e, SPX_EUSAGE, "--gap: the CCD has rows 0 to %zu only, not %zu", ny - 1, n->gap_row);
    if (st == SPX_OK)
        n->gap = end - n->gap_row;
    return st;
}

spx_status spx_sim_args_axes(const spx_sim_args *o, spx_sim_axis a[SPX_SIM_NAXIS], spx_err *e)
{
    static const char *const name[SPX_SIM_NAXIS] = {"teff", "logg", "feh", "alpha"};
    a[0] = (spx_sim_axis){6, {4500, 5000, 5500, 6000, 6500, 7000}};
    a[1] = (spx_sim_axis){5, {1, 2, 3, 4, 5}};
    a[2] = (spx_sim_axis){6, {-2, -1.5, -1, -0.5, 0, 0.5}};
    a[3] = (spx_sim_axis){2, {0, 0.4}};
    for (size_t i = 0; i < o->axis.n; i++) {
        const char *text = o->axis.value[i], *eq = strchr(text, '=');
        int k = 0;
        while (k < SPX_SIM_NAXIS && (eq == NULL || strlen(name[k]) != (size_t)(eq - text) ||
                                     strncmp(name[k], text, (size_t)(eq - text)) != 0))
            k++;
        if (k == SPX_SIM_NAXIS)
            return spx_fail(e, SPX_EUSAGE, "--axis: '%s' should be teff=, logg=, feh= or alpha= and values", text);
        spx_status st = spx_parse_doubles(eq + 1, ',', "--axis", "NAME=V,V...", SPX_SIM_MAX_NODE, a[k].v, &a[k].n, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

spx_status spx_sim_args_keys(const char *text, const char *option, size_t n, const spx_sim_key *key, spx_err *e)
{
    spx_status st = SPX_OK;
    for (const char *p = text; st == SPX_OK && *p != '\0';) {
        char one[64] = "", names[400] = "";
        const size_t all = strcspn(p, ","), len = strcspn(p, "=");
        size_t k = 0;
        while (k < n && !(strlen(key[k].name) == len && strncmp(key[k].name, p, len) == 0))
            k++;
        for (size_t i = 0, at = 0; i < n; i++)
            at += (size_t)snprintf(names + at, sizeof names - at, " %s", key[i].name);
        if (k == n || len >= all || all - len > sizeof one)
            return spx_fail(e, SPX_EUSAGE, "%s: '%s' should be KEY=VALUE,... with keys%s", option, text, names);
        memcpy(one, p + len + 1, all - len - 1);
        st = spx_parse_double(one, option, key[k].value, e);
        if (st == SPX_OK && !(*key[k].value >= key[k].least && *key[k].value <= key[k].most))
            st = spx_fail(e, SPX_EUSAGE, "%s: %s=%s should be from %g to %g", option, key[k].name, one, key[k].least,
                          key[k].most);
        p += all + (p[all] == ',');
    }
    return st;
}

spx_status spx_sim_args_camera(const spx_sim_args *o, spx_sim_camera *c, size_t **bundle, spx_err *e)
{
    *bundle = NULL;
    *c = spx_sim_camera_defaults();
    if (o->psf != NULL && (o->camera != NULL || o->bundles != NULL))
        return spx_fail(e, SPX_EUSAGE, "--psf and %s contradict each other",
                        o->camera != NULL ? "--camera" : "--bundles");
    const spx_sim_key key[] = {{"pitch", &c->pitch, 2, 1000},
                               {"gap", &c->gap, 2, 10000},
                               {"dispersion", &c->dispersion, 0.01, 100},
                               {"width", &c->width, 0.3, 8},
                               {"mirrored", &c->mirrored, 0, 1},
                               {"falling", &c->falling, 0, 1},
                               {"tail", &c->tail, 0, 1},
                               {"tail-index", &c->tail_index, 0.5, 10},
                               {"tail-core", &c->tail_core, 0, 100}};
    spx_status st =
        o->camera != NULL ? spx_sim_args_keys(o->camera, "--camera", sizeof key / sizeof *key, key, e) : SPX_OK;
    if (st == SPX_OK && o->bundles != NULL) {
        st = spx_bundles_parse(o->bundles, bundle, &c->nbundle, e);
        c->bundle = *bundle;
    }
    return st;
}
