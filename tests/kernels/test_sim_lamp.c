/* Checks calibration lamps (sim/sim_lamp.h): electrons of lines, vacuum wavelengths, levels, what differs from one
 * exposure to another. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "sim/sim.h"
#include "sim/sim_lamp.h"
#include "spectral/lines.h"

static double nearest(size_t n, const spx_sim_arc_line *line, double wave)
{
    double best = 1e9;
    for (size_t k = 0; k < n; k++)
        best = fabs(line[k].wavelength - wave) < fabs(best) ? line[k].wavelength - wave : best;
    return best;
}

static void test_arc(void)
{
    /* Vacuum wavelengths of the NIST database, rounded to 0.001 Angstrom. */
    static const double known[] = {4359.560, 5462.268, 5087.239, 5854.110, 6404.018, 8117.542, 7603.639, 8821.832};
    spx_err e = {0};
    spx_sim_arc_line *line, *other;
    size_t n = spx_sim_grid_size(3500, 9900, 0.1), nline, nother;
    double *w = spx_alloc(n, sizeof *w, &e), *out = spx_alloc(n, sizeof *out, &e), sum = 0, sent = 0, scatter = 0;
    CHECK(w != NULL && out != NULL, "%s", spx_err_text(&e));
    if (w == NULL || out == NULL)
        return;
    spx_sim_grid(3500, 0.1, n, w);
    CHECK(spx_sim_arc(SPX_LAMP_ALL, 'x', 1e5, 1, n, w, out, &line, &nline, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        CHECK(fabs(nearest(nline, line, known[k])) < 0.0025, "no line at %g, the nearest is off by %g", known[k],
              nearest(nline, line, known[k]));
    for (size_t k = 0; k < nline; k++) {
        sent += line[k].electrons;
        CHECK(k == 0 || line[k].wavelength > line[k - 1].wavelength, "lines are not in order at %zu", k);
    }
    for (size_t k = 0; k < n; k++)
        sum += out[k] * 0.1;
    CHECK(fabs(sum / sent - 1) < 1e-8, "%.12g electrons in the spectrum, %.12g in the lines", sum, sent);
    /* Another exposure: other strengths, by some 10 % for the lamps and 3 % for lines. */
    CHECK(spx_sim_arc(SPX_LAMP_ALL, 'x', 1e5, 2, n, w, out, &other, &nother, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(nother == nline, "%zu lines, %zu", nother, nline);
    for (size_t k = 0; k < nline && nother == nline; k++)
        scatter += pow(log(other[k].electrons / line[k].electrons), 2) / (double)nline;
    CHECK(sqrt(scatter) > 0.04 && sqrt(scatter) < 0.3, "strengths differ by %g", sqrt(scatter));
    spx_free(other);
    spx_free(line);
    /* One gas: its lines alone. */
    CHECK(spx_sim_arc(SPX_LAMP_XE, 'x', 1e5, 1, n, w, out, &line, &nline, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t k = 0; k < nline; k++)
        CHECK(strcmp(line[k].species, "Xe") == 0, "%s at %g in xenon", line[k].species, line[k].wavelength);
    CHECK(nline > 10, "%zu lines of xenon", nline);
    spx_free(line);
    CHECK(spx_lamp_of("hg", 2) == SPX_LAMP_HG && spx_lamp_of("Ne", 2) == SPX_LAMP_NE, "symbols");
    CHECK(spx_lamp_of("Th", 2) == 0 && spx_lamp_of("Neon", 4) == 0 && spx_lamp_of("", 0) == 0, "no lamp");
    spx_free(w);
    spx_free(out);
}

/* Root of the second moment of Ne 6404.018, 30 Angstrom from the next line of neon, on a grid of `step`. */
static double width_of_line(double step, double *place)
{
    spx_err e = {0};
    spx_sim_arc_line *line = NULL;
    size_t n = spx_sim_grid_size(6400, 6408, step), nline;
    double *w = spx_alloc(n, sizeof *w, &e), *out = spx_alloc(n, sizeof *out, &e), sum = 0, square = 0;
    CHECK(w != NULL && out != NULL, "%s", spx_err_text(&e));
    *place = 0;
    if (w == NULL || out == NULL)
        return 0;
    spx_sim_grid(6400, step, n, w);
    CHECK(spx_sim_arc(SPX_LAMP_NE, 'r', 1e5, 1, n, w, out, &line, &nline, &e) == SPX_OK && nline == 1, "%zu lines, %s",
          nline, spx_err_text(&e));
    for (size_t k = 0; k < n; k++) {
        sum += out[k];
        *place += out[k] * w[k];
    }
    *place /= sum;
    for (size_t k = 0; k < n; k++)
        square += out[k] * (w[k] - *place) * (w[k] - *place) / sum;
    spx_free(line);
    spx_free(w);
    spx_free(out);
    return sqrt(square);
}

/* A lamp's lines are narrow where the grid lets them be, half an interval where it does not, and in place: variances of
 * the line and of an interval, step^2/12, add. */
static void test_width(void)
{
    static const struct {
        double step, sigma;
    } known[] = {{0.1, 0.05}, {0.05, 0.025}, {0.02, 0.01}, {0.005, 0.01}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        double place;
        const double width = width_of_line(known[k].step, &place),
                     expected = hypot(known[k].sigma, known[k].step / sqrt(12));
        CHECK(fabs(width / expected - 1) < 0.02, "step %g: width %g, expected %g", known[k].step, width, expected);
        CHECK(fabs(place - 6404.018) < 0.001, "step %g: line at %g", known[k].step, place);
    }
}

static void test_flat(void)
{
    spx_err e = {0};
    for (const char *arm = "brz"; *arm != '\0'; arm++) {
        double lo, hi, top = 0;
        CHECK(spx_sim_arm_range(*arm, &lo, &hi), "no arm %c", *arm);
        size_t n = spx_sim_grid_size(lo, hi, 1), half = n / 2;
        double *w = spx_alloc(n, sizeof *w, &e), *out = spx_alloc(n, sizeof *out, &e), part;
        CHECK(w != NULL && out != NULL, "%s", spx_err_text(&e));
        spx_sim_grid(lo, 1, n, w);
        spx_sim_flat(*arm, 6000, n, w, out);
        for (size_t k = 0; k < n; k++) {
            top = fmax(top, out[k]);
            CHECK(out[k] >= 0 && isfinite(out[k]), "%g electrons at %g", out[k], w[k]);
            /* smooth: the steep ends of the arms change by 1/15 an Angstrom */
            CHECK(k == 0 || fabs(out[k] - out[k - 1]) < 0.08 * fmax(out[k], out[k - 1]), "a step at %g", w[k]);
        }
        CHECK(fabs(top / 6000 - 1) < 1e-3, "%c: %g electrons where it is brightest", *arm, top);
        spx_sim_flat(*arm, 6000, 1, w + half, &part);
        CHECK(fabs(part / out[half] - 1) < 1e-12, "the level depends on the grid");
        spx_free(w);
        spx_free(out);
    }
}

int main(void)
{
    test_arc();
    test_width();
    test_flat();
    return failures != 0;
}
