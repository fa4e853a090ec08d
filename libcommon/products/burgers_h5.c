#include "products/burgers.h"

#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/write.h"
#include "products/io.h"

void spx_burgers_free(spx_burgers *b)
{
    spx_free(b->x);
    spx_free(b->time);
    spx_free(b->snapshot);
    memset(b, 0, sizeof *b);
}

spx_status spx_burgers_write(hid_t file, const spx_burgers *b, spx_err *e)
{
    const size_t dims[2] = {b->nsnapshot, b->nx};
    spx_status st = spx_h5_write_real(file, "/burgers/x", 8, 1, &b->nx, b->x, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/burgers/time", 8, 1, &b->nsnapshot, b->time, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/burgers/snapshot", 8, 2, dims, b->snapshot, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/burgers/snapshot", 0, "/burgers/time", "time", e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/burgers/snapshot", 1, "/burgers/x", "x", e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/burgers", "viscosity", b->viscosity, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/burgers", "dt", b->dt, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/burgers", "every", (int64_t)b->every, e);
    return st == SPX_OK ? spx_h5_set_str(file, "/burgers", "boundary", b->lagged ? "lagged" : "periodic", e) : st;
}

spx_status spx_burgers_plot(spx_text *t, const spx_burgers *b, spx_err *e)
{
    enum { ROWS = 200, COLUMNS = 512, PROFILES = 5 };
    const size_t row = b->nsnapshot / ROWS + 1, column = b->nx / COLUMNS + 1;
    spx_status st = spx_text_add(t, e, "$u << EOD\n");
    for (size_t k = 0; k < b->nsnapshot && st == SPX_OK; k += row) {
        for (size_t i = 0; i < b->nx && st == SPX_OK; i += column)
            st = spx_text_add(t, e, "%.6g %.6g %.6g\n", b->x[i], b->time[k], b->snapshot[k * b->nx + i]);
        if (st == SPX_OK)
            st = spx_text_add(t, e, "\n");
    }
    if (st == SPX_OK)
        st = spx_text_add(
            t, e,
            "EOD\nset xlabel 'x'\nset ylabel 't'\nset cblabel 'u'\nset xrange [0:2*pi]\nset yrange [0:%.6g]\n"
            "set palette defined (-1 '#2050a0', 0 '#f8f8f8', 1 '#c02020')\n"
            "plot $u using 1:2:3 with image notitle\nset autoscale y\n$profile << EOD\n",
            b->time[b->nsnapshot - 1]);
    for (size_t p = 0; p < PROFILES && st == SPX_OK; p++) {
        const size_t k = (b->nsnapshot - 1) * p / (PROFILES - 1);
        st = spx_text_add(t, e, "\"t = %.4g\"\n", b->time[k]);
        for (size_t i = 0; i < b->nx && st == SPX_OK; i += column)
            st = spx_text_add(t, e, "%.6g %.6g\n", b->x[i], b->snapshot[k * b->nx + i]);
        if (st == SPX_OK)
            st = spx_text_add(t, e, "\n\n");
    }
    return st == SPX_OK ? spx_text_add(t, e,
                                       "EOD\nset ylabel 'u'\nset key outside right\nset xzeroaxis\n"
                                       "plot for [i=0:%d] $profile index i using 1:2 with lines lw 1.5 "
                                       "title columnheader(1)\n",
                                       PROFILES - 1)
                        : st;
}
