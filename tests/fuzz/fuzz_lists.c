/* Fuzz target: text files from users: layouts of amplifiers, line lists, curves, spectra, lists of stations, of stars
 * and of files. Each reader refuses a text, or returns values that are finite and as many as it says. The first byte:
 * which reader; the rest is the file. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "app/filelist.h"
#include "base/mem.h"
#include "common/arc_list.h"
#include "common/shift_options.h"
#include "convert/spectrum/load.h"
#include "convert/spectrum/text.h"
#include "convert/spectrum/text_table.h"
#include "products/raw.h"
#include "products/stations.h"
#include "run/select.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(int ok)
{
    if (!ok)
        abort();
}

static void need_finite(const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        need(isfinite(v[i]));
}

static void layout(const char *name, spx_err *e)
{
    spx_layout_file f;
    if (spx_layout_file_read(name, &f, e) == SPX_OK) {
        need(f.namp + f.ncross > 0 && f.namp <= SPX_RAW_MOST_AMPLIFIERS);
        for (size_t i = 0; i < f.ncross; i++)
            need(fabs(f.cross[i].factor) < 0.5);
    }
    spx_layout_file_free(&f);
}

static void arc_lines(const char *name, spx_medium medium, spx_err *e)
{
    spx_arc_line *line = NULL;
    size_t n = 0;
    if (spx_arc_list_read(name, medium, &line, &n, e) == SPX_OK)
        for (size_t i = 0; i < n; i++)
            need(isfinite(line[i].wavelength) && (i == 0 || line[i].wavelength > line[i - 1].wavelength));
    spx_free(line);
}

static void shift_lines(const char *name, spx_err *e)
{
    const spx_shift_args o = {.lines = name};
    spx_shift_lines l;
    if (spx_shift_args_lines(&o, &l, e) == SPX_OK)
        for (size_t i = 0; i < l.n; i++)
            need(l.line[i].wavelength > 0 && isfinite(l.line[i].strength));
    spx_free(l.line);
}

static void curve(const char *name, spx_err *e)
{
    size_t n = 0;
    double *wave = NULL, *value = NULL;
    if (spx_textspec_curve(name, &n, &wave, &value, e) == SPX_OK) {
        need(n >= 2);
        need_finite(wave, n);
        for (size_t i = 1; i < n; i++)
            need(wave[i] > wave[i - 1] && !isinf(value[i]));
    }
    spx_free(wave);
    spx_free(value);
}

/* Spectra as they are written: pixels without a wavelength are dropped. */
static void spectrum(const char *name, spx_err *e)
{
    spx_fits f = {0};
    spx_fits_spectra found;
    memset(&found, 0, sizeof found);
    const spx_spectrum_file file = {.f = &f, .name = name, .found = &found};
    if (spx_text_spectrum_find(name, &found, e) == SPX_OK)
        for (size_t i = 0; i < found.n; i++) {
            spx_spectrum_cache cache;
            spx_loaded l = {0};
            spx_fits_noise noise;
            memset(&cache, 0, sizeof cache);
            if (spx_spectrum_load(&file, &found.s[i], &cache, &l, &noise, e) == SPX_OK) {
                need(l.n <= found.s[i].n);
                need_finite(l.wave, l.n);
                need_finite(l.flux, l.n);
                need_finite(l.ivar, l.n);
                for (size_t k = 0; k < l.n; k++)
                    need(l.wave[k] > 0 && l.ivar[k] >= 0 && (k == 0 || l.wave[k] > l.wave[k - 1]));
            }
            spx_loaded_free(&l);
        }
    spx_fits_spectra_free(&found);
}

static void stations(const char *name, spx_err *e)
{
    size_t n = 0;
    double *position = NULL;
    if (spx_stations_read(name, &n, &position, e) == SPX_OK)
        need_finite(position, 2 * n);
    spx_free(position);
}

static void targets(const char *name, spx_err *e)
{
    int64_t *id = NULL, sum = 0;
    size_t n = 0;
    if (spx_targets_collect(0, NULL, name, &n, &id, e) == SPX_OK)
        for (size_t i = 0; i < n; i++)
            sum ^= id[i];
    (void)sum;
    spx_free(id);
}

static void files(const char *name, spx_err *e)
{
    spx_filelist l = {0};
    char at[80];
    (void)snprintf(at, sizeof at, "@%s", name);
    if (spx_filelist_add(&l, at, ".h5", e) == SPX_OK)
        for (size_t i = 0; i < l.n; i++)
            need(l.name[i][0] != '\0');
    spx_filelist_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[64];
    spx_err e = {0};
    if (size < 1)
        return 0;
    const int fd = memfd_create("text", 0);
    need(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    spx_mem_limit(64 << 20);
    switch (data[0] % 9) {
    case 0:
        layout(name, &e);
        break;
    case 1:
        arc_lines(name, SPX_VACUUM, &e);
        break;
    case 2:
        arc_lines(name, SPX_AIR, &e);
        break;
    case 3:
        shift_lines(name, &e);
        break;
    case 4:
        curve(name, &e);
        break;
    case 5:
        spectrum(name, &e);
        break;
    case 6:
        stations(name, &e);
        break;
    case 7:
        targets(name, &e);
        break;
    default:
        files(name, &e);
    }
    need(e.code != SPX_EBUG);
    spx_err_clear(&e);
    (void)close(fd);
    return 0;
}
