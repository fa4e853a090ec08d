/* rvs-telluric: optical depth of the atmosphere, from a text or from the lines of the simulation, for rvs-fit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/main.h"
#include "base/lines.h"
#include "base/mem.h"
#include "base/parse.h"
#include "products/transmission_h5.h"
#include "sim/sim_telluric.h"

static struct {
    const char *species, *simulated;
    int air, transmitted;
    double step;
} o = {.species = "O2,H2O", .step = 0.02};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "species", 0, "NAME,...", o.species,
               "Names of the columns behind the wavelength, in their order"),
    SPX_OPTION(FLAG, "transmission", 0, NULL, o.transmitted,
               "The columns are transmissions, 0 to 1, not optical depths"),
    SPX_OPTION(FLAG, "air", 0, NULL, o.air, "The wavelengths are in air"),
    SPX_OPTION(STRING, "simulated", 0, "MIN,MAX", o.simulated,
               "Make the lines of specx-sim --tellurics between these wavelengths, Angstrom in vacuum, without a file. "
               "For its images only: those of water are made up"),
    SPX_OPTION(DOUBLE, "step", 0, "ANGSTROM", o.step, "Step of these wavelengths", .min = 1e-3, .max = 1),
    {0}};

/* Least transmission that has a logarithm of use. */
static const double OPAQUE = 1e-12;

static spx_status names(spx_transmission *t, spx_err *e)
{
    for (const char *p = o.species; *p != '\0'; p += *p == ',') {
        const size_t n = strcspn(p, ",");
        if (t->nspecies == SPX_MAX_SPECIES)
            return spx_fail(e, SPX_EUSAGE, "--species %s: more than %d", o.species, SPX_MAX_SPECIES);
        if (n == 0 || n >= SPX_SPECIES_NAME)
            return spx_fail(e, SPX_EUSAGE, "--species %s: a name has 1 to %d characters", o.species,
                            SPX_SPECIES_NAME - 1);
        memcpy(t->name[t->nspecies++], p, n);
        p += n;
    }
    return t->nspecies > 0 ? SPX_OK : spx_fail(e, SPX_EUSAGE, "--species: names none");
}

/* Rows of a text, each a wavelength and a number for every species: *rows[*n], to be freed. */
static spx_status read_rows(spx_run *s, const char *file, size_t ncol, size_t *n, double **rows, spx_err *e)
{
    size_t held = 0;
    spx_lines lines;
    spx_status st = spx_run_text_input(s, file, &lines, e);
    if (st != SPX_OK)
        return st;
    for (char *p; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        double *more = spx_grow(*rows, *n, 1, &held, ncol * sizeof *more, e);
        if (more == NULL) {
            st = SPX_EIO;
            break;
        }
        *rows = more;
        for (size_t c = 0; c < ncol && st == SPX_OK; c++) {
            char *end;
            const double value = more[*n * ncol + c] = strtod(p, &end);
            const int last = c + 1 == ncol;
            if (end == p || !isfinite(value) || (last && end[strspn(end, " \t")] != '\0'))
                st = spx_fail(
                    e, SPX_EINPUT,
                    "%s:%zu: is not a row of %zu numbers, a wavelength and one for each of %s: name the columns "
                    "with --species",
                    file, lines.number, ncol, o.species);
            else if (c > 0 && !(value >= 0 && (!o.transmitted || value <= 1.01)))
                st = spx_fail(e, SPX_EINPUT, "%s:%zu: %g is no %s", file, lines.number, value,
                              o.transmitted ? "transmission" : "optical depth (transmissions: --transmission)");
            p = end;
        }
        *n += st == SPX_OK;
    }
    return spx_lines_close(&lines, st, e);
}

static spx_status read_table(spx_run *s, const char *file, spx_transmission *t, spx_err *e)
{
    const size_t ncol = 1 + t->nspecies;
    double *rows = NULL;
    size_t n = 0;
    spx_status st = read_rows(s, file, ncol, &n, &rows, e);
    if (st == SPX_OK && ((t->wavelength = spx_alloc(n, sizeof *t->wavelength, e)) == NULL ||
                         (t->tau = spx_alloc2(t->nspecies, n, sizeof *t->tau, e)) == NULL))
        st = SPX_EIO;
    t->nwave = n;
    t->medium = o.air ? SPX_AIR : SPX_VACUUM;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        t->wavelength[k] = rows[k * ncol];
        for (size_t c = 1; c < ncol; c++) {
            const double x = rows[k * ncol + c];
            t->tau[(c - 1) * n + k] = o.transmitted ? fmax(0, -log(fmax(x, OPAQUE))) : x;
        }
    }
    spx_free(rows);
    if (st == SPX_OK && (st = spx_transmission_check(t, e)) != SPX_OK)
        spx_err_context(e, "%s", file);
    return st;
}

static spx_status simulate(spx_transmission *t, spx_err *e)
{
    static const char *const name[SPX_SIM_NSPECIES] = {[SPX_SIM_O2] = "O2", [SPX_SIM_H2O] = "H2O"};
    double range[2];
    size_t n;
    if (spx_parse_doubles(o.simulated, ',', "--simulated", "MIN,MAX", 2, range, &n, NULL) != SPX_OK || n != 2 ||
        !(range[0] > 0 && range[1] > range[0] + 2 * o.step && range[1] < 1e6))
        return spx_fail(e, SPX_EUSAGE, "--simulated: '%s' is not MIN,MAX, Angstrom", o.simulated);
    t->nspecies = SPX_SIM_NSPECIES;
    t->nwave = (size_t)((range[1] - range[0]) / o.step) + 1;
    t->wavelength = spx_alloc(t->nwave, sizeof *t->wavelength, e);
    t->tau = spx_alloc2(t->nspecies, t->nwave, sizeof *t->tau, e);
    if (t->wavelength == NULL || t->tau == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < t->nwave; k++)
        t->wavelength[k] = range[0] + o.step * (double)k;
    for (size_t i = 0; i < t->nspecies; i++) {
        strcpy(t->name[i], name[i]);
        spx_sim_telluric_depth((spx_sim_species)i, t->nwave, t->wavelength, t->tau + i * t->nwave);
    }
    return SPX_OK;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_transmission t = {0};
    hid_t file;
    if ((o.simulated != NULL) == (s->ninput == 1) || s->ninput > 1)
        return spx_fail(e, SPX_EUSAGE, "give one text, or --simulated MIN,MAX");
    spx_run_step(s, "read");
    spx_status st = o.simulated != NULL ? simulate(&t, e) : names(&t, e);
    if (st == SPX_OK && o.simulated == NULL)
        st = read_table(s, s->input[0], &t, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "transmission", &file, e);
    if (st == SPX_OK)
        st = spx_transmission_write(file, &t, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    if (st == SPX_OK && o.simulated != NULL)
        spx_warn("lines of water are made up, and those of oxygen rough: this table is for images of specx-sim. Real "
                 "spectra need a table of real lines");
    spx_transmission_free(&t);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "rvs-telluric",
                                        .summary = "lines of the atmosphere for the fit of stars",
                                        .usage = "[OPTION...] TABLE",
                                        .options = options,
                                        .example = "rvs-telluric --species O2,H2O -o air.h5 table.txt",
                                        .flags = SPX_IN_OPTIONAL,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
