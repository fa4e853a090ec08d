#include "products/svd.h"

#include <string.h>

#include "app/plot.h"
#include "base/mem.h"
#include "h5/attr.h"
#include "h5/write.h"
#include "products/io.h"

void spx_svd_free(spx_svd *d)
{
    spx_free(d->u);
    spx_free(d->s);
    spx_free(d->v);
    spx_free(d->energy);
    spx_free(d->mean);
    spx_free(d->row_weight);
    spx_free(d->column_weight);
    memset(d, 0, sizeof *d);
}

spx_status spx_svd_write(hid_t file, const spx_svd *d, const char *units, spx_err *e)
{
    const size_t u[2] = {d->nrow, d->nmode}, v[2] = {d->nmode, d->ncol};
    spx_status st = spx_h5_write_real(file, "/svd/u", 8, 2, u, d->u, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/s", 8, 1, &d->nmode, d->s, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd/s", "units", units, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/v", 8, 2, v, d->v, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/svd/energy", 8, 1, &d->nmode, d->energy, e);
    if (st == SPX_OK && d->mean != NULL &&
        (st = spx_h5_write_real(file, "/svd/mean", 8, 1, &d->ncol, d->mean, e)) == SPX_OK)
        st = spx_h5_set_str(file, "/svd/mean", "units", units, e);
    if (st == SPX_OK && d->row_weight != NULL)
        st = spx_h5_write_real(file, "/svd/row_weight", 8, 1, &d->nrow, d->row_weight, e);
    if (st == SPX_OK && d->column_weight != NULL)
        st = spx_h5_write_real(file, "/svd/column_weight", 8, 1, &d->ncol, d->column_weight, e);
    return st;
}

/* Inline data of a plot: `stride` apart, at most about 4000 of them. */
static spx_status plot_data(spx_text *t, const char *name, const double *x, const double *y, size_t n, spx_err *e)
{
    const size_t step = n / 4000 + 1;
    spx_status st = spx_text_add(t, e, "$%s << EOD\n", name);
    for (size_t i = 0; i < n && st == SPX_OK; i += step)
        st = spx_text_add(t, e, "%.9g %.9g\n", x != NULL ? x[i] : (double)i, y[i]);
    return st == SPX_OK ? spx_text_add(t, e, "EOD\n") : st;
}

spx_status spx_svd_plot(spx_text *t, const spx_svd *d, const double *x, const char *xlabel, spx_err *e)
{
    enum { MOST = 4 };
    const size_t n = d->nmode < MOST ? d->nmode : MOST;
    char name[32];
    spx_status st = plot_data(t, "s", NULL, d->s, d->nmode, e);
    if (st == SPX_OK)
        st = plot_data(t, "energy", NULL, d->energy, d->nmode, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        (void)snprintf(name, sizeof name, "v%zu", k);
        st = plot_data(t, name, x, d->v + k * d->ncol, d->ncol, e);
    }
    if (st == SPX_OK)
        st = spx_text_add(
            t, e, "set xlabel '%s'\nset ylabel 'right singular vector'\nset key outside right\nset xzeroaxis\nplot",
            xlabel);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        st = spx_text_add(t, e, "%s $v%zu using 1:2 with lines lw 1.5 title '%zu: %.3g %%'", k > 0 ? "," : "", k, k + 1,
                          100 * (d->energy[k] - (k > 0 ? d->energy[k - 1] : 0)));
    if (st == SPX_OK)
        st = spx_text_add(
            t, e,
            "\nset xlabel 'mode'\nset ylabel 'singular value'\nset y2label 'energy'\nset y2range [0:1.02]\n"
            "set y2tics\nset ytics nomirror\nset xrange [0:%zu]\n%s"
            "plot $s using ($1 + 1):2 with linespoints pt 7 ps 0.6 title 'singular value', \\\n"
            "     $energy using ($1 + 1):2 axes x1y2 with lines lw 1.5 title 'energy'\n",
            d->nmode + 1, d->s[d->nmode - 1] > 0 ? "set logscale y\n" : "");
    return st;
}
