#include "blocks/select.h"

#include <string.h>

#include "base/mem.h"
#include "h5/table.h"

/* Integer column of the fibermap: out[nspec], to be freed; NULL and SPX_OK when there is none. */
static spx_status fibermap_i64(const spx_spectra *s, const char *name, int64_t **out, spx_err *e)
{
    *out = NULL;
    if (s->fibermap == NULL || spx_table_find(s->fibermap, name) < 0)
        return SPX_OK;
    if ((*out = spx_alloc(s->nspec, sizeof **out, e)) == NULL)
        return SPX_EIO;
    return spx_table_get_i64(s->fibermap, name, *out, e);
}

static spx_status same_column(const spx_spectra *a, const spx_spectra *b, const char *name, spx_err *e)
{
    int64_t *x = NULL, *y = NULL;
    spx_status st = fibermap_i64(a, name, &x, e);
    if (st == SPX_OK)
        st = fibermap_i64(b, name, &y, e);
    if (st == SPX_OK && x != NULL && y != NULL && memcmp(x, y, a->nspec * sizeof *x) != 0)
        st =
            spx_fail(e, SPX_EINPUT, "/fibermap: %s differs from that of the first input: join them with h5merge", name);
    spx_free(x);
    spx_free(y);
    return st;
}

spx_status spx_spectra_add_arms(spx_spectra *to, spx_spectra *more, spx_err *e)
{
    if (more->nspec != to->nspec)
        return spx_fail(e, SPX_EINPUT, "has %zu spectra, the first input %zu: join them with h5merge", more->nspec,
                        to->nspec);
    spx_status st = same_column(to, more, "TARGETID", e);
    if (st == SPX_OK)
        st = same_column(to, more, "FIBER", e);
    for (size_t k = 0; k < more->narm && st == SPX_OK; k++)
        for (size_t j = 0; j < to->narm && st == SPX_OK; j++)
            if (strcmp(to->arm[j].name, more->arm[k].name) == 0)
                st = spx_fail(e, SPX_EINPUT, "has arm '%s' as an earlier input has: join them with h5merge",
                              more->arm[k].name);
    if (st == SPX_OK && to->narm + more->narm > SPX_MAX_ARM)
        st = spx_fail(e, SPX_EINPUT, "brings the number of arms above %d", SPX_MAX_ARM);
    for (size_t k = 0; k < more->narm && st == SPX_OK; k++) {
        to->arm[to->narm++] = more->arm[k];
        memset(&more->arm[k], 0, sizeof more->arm[k]);
    }
    return st;
}

spx_status spx_spectra_drop_sky(const spx_spectra *s, char *take, spx_err *e)
{
    enum { WIDTH = 8 };
    const int64_t harmless = (int64_t)1 << 3 | (int64_t)1 << 20;
    spx_status st = SPX_OK;
    if (s->fibermap != NULL && spx_table_find(s->fibermap, "OBJTYPE") >= 0) {
        char *type = spx_alloc2(s->nspec, WIDTH, 1, e);
        st = type == NULL ? SPX_EIO : spx_table_get_str(s->fibermap, "OBJTYPE", WIDTH, type, e);
        for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
            if (strcmp(type + WIDTH * i, "SKY") == 0 || strcmp(type + WIDTH * i, "BAD") == 0)
                take[i] = 0;
        spx_free(type);
    }
    int64_t *status = NULL;
    if (st == SPX_OK)
        st = fibermap_i64(s, "FIBERSTATUS", &status, e);
    if (st == SPX_OK && status == NULL)
        st = fibermap_i64(s, "COADD_FIBERSTATUS", &status, e);
    for (size_t i = 0; i < s->nspec && st == SPX_OK && status != NULL; i++)
        if ((status[i] & ~harmless) != 0)
            take[i] = 0;
    spx_free(status);
    return st;
}

spx_status spx_spectra_keep_targets(const spx_spectra *s, size_t n, const int64_t *id, char *take, spx_err *e)
{
    int64_t *have = NULL;
    spx_status st = fibermap_i64(s, "TARGETID", &have, e);
    if (st == SPX_OK && have == NULL)
        st = spx_fail(e, SPX_EINPUT, "the spectra have no fibermap with a TARGETID: choose rows by their number");
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++) {
        int wanted = 0;
        for (size_t k = 0; k < n; k++)
            wanted = wanted || have[i] == id[k];
        take[i] = take[i] && wanted;
    }
    spx_free(have);
    return st;
}
