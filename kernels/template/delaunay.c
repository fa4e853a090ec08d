/* Provides Delaunay triangulation by Qhull (Barber, Dobkin and Huhdanpaa 1996, ACM Transactions on Mathematical
 * Software 22, 469): the only file that needs it. Without it (BARE=1) a library has to be a regular grid. */
#include "template/template_impl.h"

#ifdef SPX_BARE

spx_status spx_template_delaunay(spx_setup *s, size_t dim, double *x, spx_err *e)
{
    (void)x;
    return spx_fail(e, SPX_EINPUT,
                    "%zu spectra with %zu parameters cannot be triangulated: specpipe was built without Qhull (BARE=1)",
                    s->ntemp, dim);
}

#else

#include <libqhull_r/libqhull_r.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* Copies the corners of the lower Delaunay facets into the setup. */
static spx_status collect(qhT *qh, spx_setup *s, size_t dim, spx_err *e)
{
    facetT *facet;
    vertexT *vertex, **vertexp;
    size_t n = 0, at = 0;
    FORALLfacets
    {
        n += !facet->upperdelaunay;
    }
    s->simplex = spx_alloc2(n, dim + 1, sizeof *s->simplex, e);
    if (!s->simplex)
        return SPX_EIO;
    FORALLfacets
    {
        size_t k = 0;
        if (facet->upperdelaunay)
            continue;
        FOREACHvertex_(facet->vertices)
        {
            int id = qh_pointid(qh, vertex->point);
            if (k <= dim && id >= 0 && (size_t)id < s->ntemp)
                s->simplex[at * (dim + 1) + k++] = id;
        }
        at += k == dim + 1;
    }
    s->nsimplex = at;
    s->ncorner = dim + 1;
    return at > 0 ? SPX_OK
                  : spx_fail(e, SPX_EINPUT,
                             "the parameters of %zu spectra span no volume: leave out those that follow from others",
                             s->ntemp);
}

spx_status spx_template_delaunay(spx_setup *s, size_t dim, double *x, spx_err *e)
{
    /* Qz adds a point at infinity: all points may lie on one sphere, as the corners of a single cell do */
    char *text = NULL, command[] = "qhull d Qbb Qt Qc Qz Q12";
    size_t size = 0;
    FILE *log = open_memstream(&text, &size); /* Qhull writes its messages to a stream */
    if (!log)
        return spx_fail(e, SPX_EIO, "out of memory");
    qhT qh;
    int curlong, totlong;
    qh_zero(&qh, log);
    spx_status st = SPX_OK;
    if (qh_new_qhull(&qh, (int)dim, (int)s->ntemp, x, False, command, log, log) != 0)
        st = spx_fail(e, SPX_EINPUT,
                      "the parameters of %zu spectra cannot be triangulated: leave out those of one value, or spectra "
                      "that lie on a line with others",
                      s->ntemp);
    else
        st = collect(&qh, s, dim, e);
    qh_freeqhull(&qh, !qh_ALL);
    qh_memfreeshort(&qh, &curlong, &totlong);
    (void)fclose(log);
    free(text);
    return st;
}

#endif
