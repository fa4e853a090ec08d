/* Provides the targets of an exposure, one a fibre, and their fibermap and truth table (products/target.h). */
#include "products/target.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"
#include "num/wave.h"

/* Fills rows of fibres first_row ... first_row+nrow-1. */
static spx_status make_rows(size_t n, const spx_target *target, size_t first, size_t first_row, size_t nrow,
                            spx_table **out, spx_err *e)
{
    spx_table *t = *out = spx_table_new(nrow, e);
    char *objtype = spx_alloc(nrow, 3, e);
    int64_t *targetid = spx_alloc(nrow, sizeof *targetid, e);
    int32_t *fiber = spx_alloc2(2, nrow, sizeof *fiber, e), *status = fiber + nrow;
    double *ra = spx_alloc2(2, nrow, sizeof *ra, e), *dec = ra + nrow;
    spx_status st = t == NULL || objtype == NULL || targetid == NULL || fiber == NULL || ra == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < nrow && st == SPX_OK; i++) {
        size_t row = first_row + i;
        const spx_target *lit = row >= first && row - first < n ? target + (row - first) : NULL;
        targetid[i] = lit != NULL ? lit->targetid : -1;
        fiber[i] = (int32_t)row;
        status[i] = lit == NULL;
        ra[i] = lit != NULL ? lit->ra : 0;
        dec[i] = lit != NULL ? lit->dec : 0;
        memcpy(objtype + 3 * i,
               lit == NULL               ? "BAD"
               : lit->objtype[0] != '\0' ? lit->objtype
               : lit->sky                ? "SKY"
                                         : "TGT",
               3);
    }
    if (st == SPX_OK)
        st = spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, targetid, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "FIBER", H5T_NATIVE_INT32, NULL, fiber, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "OBJTYPE", 3, objtype, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "TARGET_RA", H5T_NATIVE_DOUBLE, "degree", ra, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "TARGET_DEC", H5T_NATIVE_DOUBLE, "degree", dec, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "FIBERSTATUS", H5T_NATIVE_INT32, NULL, status, e);
    spx_free(objtype);
    spx_free(targetid);
    spx_free(fiber);
    spx_free(ra);
    return st;
}

spx_status spx_target_observe(size_t n, const spx_target *target, const spx_site *site, double mjd, double exptime,
                              spx_target *seen, spx_err *e)
{
    for (size_t i = 0; i < n; i++) {
        double factor = 1;
        seen[i] = target[i];
        if (site != NULL) {
            spx_status st =
                spx_barycentric_factors(site, mjd + exptime / 2 / 86400, 1, &target[i].ra, &target[i].dec, &factor, e);
            if (st != SPX_OK)
                return st;
        }
        /* Doppler factor of the source, sqrt((1+b)/(1-b)), divided by the observer's */
        double b = target[i].v / SPX_C_KMS, z = sqrt((1 + b) / (1 - b)) / factor;
        if (site != NULL)
            seen[i].v = SPX_C_KMS * (z * z - 1) / (z * z + 1);
    }
    return SPX_OK;
}

spx_status spx_target_fibermap(size_t n, const spx_target *target, size_t first, size_t nfiber, spx_table **out,
                               spx_err *e)
{
    return make_rows(n, target, first, 0, nfiber, out, e);
}

spx_status spx_target_truth(size_t n, const spx_target *target, size_t first, int stars, int members, spx_table **out,
                            spx_err *e)
{
    static const struct {
        const char *name, *unit;
        size_t at;
    } par[] = {{"TEFF", "K", offsetof(spx_target, teff)}, {"LOGG", NULL, offsetof(spx_target, logg)},
               {"FEH", NULL, offsetof(spx_target, feh)},  {"ALPHAFE", NULL, offsetof(spx_target, alpha)},
               {"VRAD", "km/s", offsetof(spx_target, v)}, {"VSINI", "km/s", offsetof(spx_target, vsini)},
               {"MAG", NULL, offsetof(spx_target, mag)}};
    spx_status st = make_rows(n, target, first, first, n, out, e);
    double *v = spx_alloc(n, sizeof *v, e);
    int64_t *member = spx_alloc(n, sizeof *member, e);
    if (v == NULL || member == NULL)
        st = SPX_EIO;
    for (size_t k = 0; k < sizeof par / sizeof *par && stars && st == SPX_OK; k++) {
        for (size_t i = 0; i < n; i++)
            v[i] = target[i].sky ? 0 : *(const double *)((const char *)(target + i) + par[k].at);
        st = spx_table_add(*out, par[k].name, H5T_NATIVE_DOUBLE, par[k].unit, v, e);
    }
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        member[i] = target[i].sky ? -1 : (int64_t)target[i].member;
    if (st == SPX_OK && members)
        st = spx_table_add(*out, "MEMBER", H5T_NATIVE_INT64, NULL, member, e);
    spx_free(v);
    spx_free(member);
    return st;
}

spx_status spx_target_from_fibermap(const spx_table *fibermap, size_t n, spx_target *target, spx_err *e)
{
    enum { WIDTH = 8 };
    char *objtype = spx_alloc(n, WIDTH, e);
    int64_t *targetid = spx_alloc(n, sizeof *targetid, e);
    spx_status st = objtype == NULL || targetid == NULL ? SPX_EIO : SPX_OK;
    int has_id = spx_table_find(fibermap, "TARGETID") >= 0, has_type = spx_table_find(fibermap, "OBJTYPE") >= 0;
    if (st == SPX_OK && has_id)
        st = spx_table_get_i64(fibermap, "TARGETID", targetid, e);
    if (st == SPX_OK && has_type)
        st = spx_table_get_str(fibermap, "OBJTYPE", WIDTH, objtype, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (has_id)
            target[i].targetid = targetid[i];
        if (has_type)
            target[i].sky = strcmp(objtype + WIDTH * i, "SKY") == 0;
    }
    spx_free(objtype);
    spx_free(targetid);
    return st;
}
