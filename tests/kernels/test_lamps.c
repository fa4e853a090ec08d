/* Checks lines of lamps and line lists (spectral/lines.h): wavelengths against other lists, order, air and vacuum. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "num/wave.h"
#include "spectral/lines.h"

/* Wavelengths in air as other lists have them. Hg, Ar, Zn: FLOYDS spectrographs (Las Cumbres Observatory). Ne, Kr, Cd,
 * Xe: this program's list of before, of 0.001 Angstrom. He: lists of stellar lines, which agree. */
static const struct {
    const char *element;
    double air;
} sample[] = {{"Hg", 4046.565},  {"Hg", 4358.335},  {"Hg", 5460.750},  {"Hg", 5790.670},  {"Ar", 6965.4307},
              {"Ar", 7383.9805}, {"Ar", 7635.1056}, {"Ar", 8115.3108}, {"Ar", 9122.9674}, {"Ar", 9657.7863},
              {"Zn", 4680.1359}, {"Zn", 5181.9819}, {"Ne", 5852.488},  {"Ne", 6402.248},  {"Ne", 7032.413},
              {"Ne", 8377.608},  {"Kr", 5570.289},  {"Kr", 5870.916},  {"Kr", 8112.901},  {"Cd", 6438.470},
              {"Cd", 5085.822},  {"Xe", 8231.634},  {"Xe", 8280.117},  {"He", 5015.678},  {"He", 6678.151}};

static const char symbols[][3] = {"Hg", "Cd", "Ne", "Ar", "Kr", "Xe", "He", "Zn"};

static void test_list(const spx_arc_line *line, size_t n)
{
    for (size_t k = 0; k < sizeof sample / sizeof *sample; k++) {
        double best = HUGE_VAL;
        for (size_t i = 0; i < n; i++)
            if (strcmp(line[i].element, sample[k].element) == 0)
                best = fmin(best, fabs(spx_vacuum_to_air(line[i].wavelength) - sample[k].air));
        CHECK(best < 2e-3, "%s %.4f: the nearest line is off by %.4f", sample[k].element, sample[k].air, best);
    }
    size_t count[8] = {0};
    for (size_t i = 0; i < n; i++) {
        size_t g = 0;
        while (g < 8 && strcmp(line[i].element, symbols[g]) != 0)
            g++;
        CHECK(g < 8 && line[i].ion == 1, "line %zu is of '%s' %d", i, line[i].element, line[i].ion);
        count[g < 8 ? g : 0]++;
        CHECK(line[i].wavelength > 3000 && line[i].wavelength < 11000 && line[i].error > 0 && line[i].intensity >= 0 &&
                  line[i].quality >= SPX_ARC_BRIGHT && line[i].quality <= SPX_ARC_FAINT,
              "line %zu: %g Angstrom, error %g, intensity %g, quality %d", i, line[i].wavelength, line[i].error,
              line[i].intensity, line[i].quality);
        CHECK(i == 0 || line[i].wavelength >= line[i - 1].wavelength, "not in order at %zu", i);
        CHECK(i == 0 || line[i].wavelength > line[i - 1].wavelength ||
                  strcmp(line[i].element, line[i - 1].element) != 0,
              "%s %.4f is there twice", line[i].element, line[i].wavelength);
    }
    for (size_t g = 0; g < 8; g++)
        CHECK(count[g] >= 25, "%zu lines of %s", count[g], symbols[g]);
}

/* Each simulated line is a line of the list. */
static void test_simulated(const spx_arc_line *line, size_t n)
{
    spx_err e = {0};
    spx_line *sim = NULL;
    size_t nsim = 0;
    CHECK(spx_lamp_lines(SPX_LAMP_EVERY, &sim, &nsim, &e) == SPX_OK && nsim > 150, "%zu lines: %s", nsim,
          spx_err_text(&e));
    for (size_t k = 0; k < nsim; k++) {
        size_t i = 0;
        while (i < n && !(line[i].wavelength == sim[k].wavelength &&
                          strcmp(line[i].element, spx_lamp_symbol((size_t)sim[k].source)) == 0))
            i++;
        CHECK(i < n && line[i].quality == SPX_ARC_BRIGHT, "%g of gas %d is no bright line of the list",
              sim[k].wavelength, sim[k].source);
    }
    spx_free(sim);
}

static void test_medium(spx_arc_line *line, size_t n)
{
    spx_err e = {0};
    spx_arc_agreement a;
    CHECK(spx_arc_medium(n, line, 0, &a, &e) == SPX_OK && a.compared == n && a.vacuum == n && a.air == 0 &&
              a.twice == 0,
          "vacuum: %zu compared, %zu, %zu, %zu", a.compared, a.vacuum, a.air, a.twice);
    /* in air, each off by up to 0.02 Angstrom as older lists are, and some that are of no lamp */
    srand(1);
    for (size_t i = 0; i < n; i++) {
        line[i].wavelength = spx_vacuum_to_air(line[i].wavelength) + 0.04 * (rand() / (double)RAND_MAX - 0.5);
        if (i % 7 == 0)
            strcpy(line[i].element, "Th");
    }
    CHECK(spx_arc_medium(n, line, 0, &a, &e) == SPX_OK && a.compared == n - (n + 6) / 7 &&
              (double)a.air > 0.7 * (double)a.compared && (double)(a.vacuum + a.twice) < 0.3 * (double)a.compared,
          "air: %zu compared, %zu, %zu, %zu", a.compared, a.vacuum, a.air, a.twice);
    for (size_t i = 0; i < n; i++) /* twice to vacuum */
        line[i].wavelength = spx_air_to_vacuum(spx_air_to_vacuum(line[i].wavelength));
    CHECK(spx_arc_medium(n, line, 0, &a, &e) == SPX_OK && (double)a.twice > 0.7 * (double)a.compared,
          "twice: %zu compared, %zu", a.compared, a.twice);
}

int main(void)
{
    spx_err e = {0};
    spx_arc_line *line = NULL;
    size_t n = 0;
    CHECK(spx_arc_lines(SPX_LAMP_EVERY, &line, &n, &e) == SPX_OK, "%s", spx_err_text(&e));
    test_list(line, n);
    test_simulated(line, n);
    test_medium(line, n);
    spx_free(line);
    CHECK(spx_arc_lines(SPX_LAMP_ZN | SPX_LAMP_HE, &line, &n, &e) == SPX_OK && n > 50 && n < 100, "%zu lines of He, Zn",
          n);
    spx_free(line);
    return failures != 0;
}
