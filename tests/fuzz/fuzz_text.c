/* Fuzz target: texts from users: expressions, numbers, lists, sizes, setups, motion of traces, lamps and skies. Each
 * parser refuses a text, or returns a value that is finite where it promises that. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/opt.h"
#include "base/parse.h"
#include "common/setup_options.h"
#include "common/sim_options.h"
#include "common/sim_shift.h"
#include "num/expr.h"
#include "spectral/lines.h"
#include "template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A motion is refused, or moves a PSF to finite places. */
static void move(char *text)
{
    static spx_psf psf;
    spx_lines lines = {.name = "text", .file = fmemopen(text, strlen(text), "r")};
    spx_sim_motion m;
    spx_psf moved;
    if (psf.nspec == 0 && spx_sim_psf('r', 30, 6000, 6100, &psf, NULL) != SPX_OK)
        abort();
    if (lines.file == NULL) /* an empty text */
        return;
    if (spx_sim_motion_make(&psf, &m, NULL) != SPX_OK)
        abort();
    if (spx_sim_shift_lines(&lines, 1, 'r', &m, NULL) == SPX_OK &&
        spx_sim_motion_apply(&m, &psf, &moved, NULL) == SPX_OK) {
        for (size_t i = 0; i < moved.nspec * moved.x.ncoef; i++)
            if (!isfinite(moved.x.coef[i]))
                abort();
        spx_psf_free(&moved);
    }
    spx_sim_motion_free(&m);
}

static void simulate(const char *text)
{
    const spx_sim_args o = {.sky_lines = text, .arc = text, .amp_offsets = text, .readnoise = 3, .fullwell = 1};
    double factor[SPX_SIM_NSKY];
    unsigned lamps;
    spx_sim_noise noise;
    if (spx_sim_args_sky(&o, factor, NULL) == SPX_OK)
        for (int q = 0; q < SPX_SIM_NSKY; q++)
            if (!(factor[q] >= 0 && isfinite(factor[q])))
                abort();
    if (spx_sim_args_lamps(&o, &lamps, NULL) == SPX_OK && (lamps == 0 || lamps > SPX_LAMP_EVERY))
        abort();
    (void)spx_sim_args_noise(&o, 'r', 10, &noise, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096];
    spx_expr x;
    spx_template_request setup;
    double value, list[8];
    size_t n, bytes;
    long whole;
    if (size >= sizeof text)
        size = sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    if (spx_expr_parse(text, &x, NULL) == SPX_OK) {
        if (x.n < 1 || x.n > SPX_EXPR_MAX)
            abort();
        value = spx_expr_eval(&x, 5000);
        (void)value;
    }
    if (spx_parse_double(text, "text", &value, NULL) == SPX_OK && !isfinite(value))
        abort();
    (void)spx_parse_long(text, "text", &whole, NULL);
    (void)spx_parse_bytes(text, "text", &bytes, NULL);
    if (spx_parse_doubles(text, ',', "text", "N,N...", 8, list, &n, NULL) == SPX_OK && (n < 1 || n > 8))
        abort();
    if (spx_template_parse_setup(text, &setup, NULL) == SPX_OK && !(setup.wmin < setup.wmax && setup.step > 0))
        abort();
    simulate(text);
    move(text);
    return 0;
}
