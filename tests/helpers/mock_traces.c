/* mock_traces [-d] [--shifts] OUT.h5: traces of nine stations that a plane wave of slowness 0.10 s/km east and
 * -0.06 s/km north crosses: a pulse of 1 count at the centroid at sample 300, of width 3 samples, with 1 % of noise;
 * 600 samples at 50 Hz. Trace 4 begins 40 samples late, trace 7 is 100 samples short. -d: float64.
 * --shifts: a block of two sets of shifts, 0 and those of that wave, too. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/file.h"
#include "products/shifts_h5.h"
#include "products/stack.h"
#include "products/traces_h5.h"
#include "sim/sim_math.h"
#include "stack/stack.h"

enum { NTRACE = 9, NSAMPLE = 600 };

static spx_status make(const char *name, int precision, int with_shifts, spx_err *e)
{
    static const double position[NTRACE][2] = {{0, 0},  {4, 1},   {-3, 2},  {1, -5}, {6, -4},
                                               {-6, 3}, {-2, -6}, {5, 5.5}, {2, 3.5}};
    const double slowness[4] = {0, 0, 0.10, -0.06}, rate = 50;
    spx_traces t = {.ntrace = NTRACE, .precision = precision, .sampling_rate = rate, .units = "count"};
    spx_shifts s = {0};
    spx_output *out = NULL;
    double x0 = 0, y0 = 0;
    if ((t.start = spx_alloc(NTRACE + 1, sizeof *t.start, e)) == NULL ||
        (t.offset = spx_alloc(NTRACE, sizeof *t.offset, e)) == NULL ||
        (t.data = spx_alloc(NTRACE * NSAMPLE, sizeof(double), e)) == NULL ||
        (t.position = spx_alloc(NTRACE, sizeof position[0], e)) == NULL)
        return SPX_EIO;
    memcpy(t.position, position, sizeof position);
    for (size_t j = 0; j < NTRACE; j++) {
        x0 += position[j][0] / NTRACE;
        y0 += position[j][1] / NTRACE;
    }
    for (size_t j = 0; j < NTRACE; j++) {
        const size_t length = j == 7 ? NSAMPLE - 100 : NSAMPLE;
        const double delay = slowness[2] * (position[j][0] - x0) + slowness[3] * (position[j][1] - y0);
        t.offset[j] = j == 4 ? 40 : 0;
        for (size_t i = 0; i < length; i++) {
            double u[2], dt = ((double)i + t.offset[j] - 300 - delay * rate) / 3;
            spx_sim_uniform2(1, SPX_SIM_READ, (unsigned)j, i, 0, u);
            const double v = exp(-0.5 * dt * dt) + 0.01 * spx_sim_normal(u);
            if (precision == 4)
                ((float *)t.data)[t.nsample++] = (float)v;
            else
                ((double *)t.data)[t.nsample++] = v;
        }
        t.start[j + 1] = t.nsample;
    }
    spx_status st = spx_output_open(&out, name, 1, e);
    if (st == SPX_OK)
        st = spx_traces_write(spx_output_file(out), &t, e);
    if (st == SPX_OK && with_shifts && (st = spx_stack_geometry(&t, 2, slowness, &s, e)) == SPX_OK)
        st = spx_shifts_write(spx_output_file(out), &s, e);
    if (st == SPX_OK)
        st = spx_output_commit(out, e);
    else
        spx_output_discard(out);
    spx_traces_free(&t);
    spx_shifts_free(&s);
    return st;
}

int main(int argc, char **argv)
{
    int precision = 4, with_shifts = 0, i = 1;
    spx_err e = {0};
    for (; i < argc && argv[i][0] == '-'; i++) {
        precision = strcmp(argv[i], "-d") == 0 ? 8 : precision;
        with_shifts |= strcmp(argv[i], "--shifts") == 0;
    }
    if (i + 1 != argc) {
        puts("mock_traces [-d] [--shifts] OUT.h5");
        return 2;
    }
    if (make(argv[i], precision, with_shifts, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        return 1;
    }
    return 0;
}
