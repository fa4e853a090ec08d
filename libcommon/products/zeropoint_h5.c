/* Reads and writes /zeropoint (products/zeropoint_h5.h). */
#include "products/zeropoint_h5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/table.h"
#include "h5/write.h"

static const char path[] = "/zeropoint/table";

#define AT(field) offsetof(spx_zeropoint, field)
static const struct {
    const char *name;
    size_t at;
} whole[] = {{"PETAL", AT(key.petal)},
             {"FIBER", AT(key.fiber)},
             {"NIGHT", AT(key.night)},
             {"N", AT(n)},
             {"RELATIVE", AT(relative)}};
static const struct {
    const char *name;
    size_t at;
} real[] = {{"ZERO", AT(zero)}, {"ZERO_ERR", AT(err)}, {"SCATTER", AT(scatter)}};
enum { NWHOLE = sizeof whole / sizeof *whole, NREAL = sizeof real / sizeof *real, NKEY = 3, NEEDED = 2 };

static spx_status read_columns(const spx_table *t, spx_zeropoints *z, spx_err *e)
{
    spx_status st = SPX_OK;
    double *v = spx_alloc(t->nrow, sizeof *v, e);
    char *arm = spx_alloc(t->nrow, sizeof z->row->key.arm, e);
    if (v == NULL || arm == NULL)
        st = SPX_EIO;
    for (size_t c = 0; c < NWHOLE && st == SPX_OK; c++) {
        int64_t *w = NULL;
        st = spx_table_find_i64(t, whole[c].name, &w, e);
        for (size_t i = 0; i < t->nrow && st == SPX_OK; i++) {
            const int64_t value = w != NULL ? w[i] : c < NKEY ? -1 : 0;
            memcpy((char *)&z->row[i] + whole[c].at, &value, sizeof value);
        }
        spx_free(w);
    }
    for (size_t c = 0; c < NREAL && st == SPX_OK; c++) {
        if (c > 0 && spx_table_find(t, real[c].name) < 0)
            continue;
        st = spx_table_get_f64(t, real[c].name, v, e);
        for (size_t i = 0; i < t->nrow && st == SPX_OK; i++) {
            if (c < NEEDED && (!isfinite(v[i]) || (c == 1 && v[i] < 0)))
                st = spx_fail(e, SPX_EINPUT, "%s of row %zu is %g", real[c].name, i, v[i]);
            memcpy((char *)&z->row[i] + real[c].at, &v[i], sizeof v[i]);
        }
    }
    if (st == SPX_OK && spx_table_find(t, "ARM") >= 0)
        st = spx_table_get_str(t, "ARM", sizeof z->row->key.arm, arm, e);
    for (size_t i = 0; i < t->nrow && st == SPX_OK; i++)
        memcpy(z->row[i].key.arm, arm + i * sizeof z->row->key.arm, sizeof z->row->key.arm);
    spx_free(v);
    spx_free(arm);
    return st;
}

spx_status spx_zeropoints_read(hid_t file, spx_zeropoints *z, spx_err *e)
{
    spx_table *t = NULL;
    *z = (spx_zeropoints){0};
    spx_status st = spx_table_read(file, path, &t, e);
    if (st == SPX_OK && t == NULL)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "rvs-zero makes one", "is missing");
    if (st != SPX_OK)
        return st;
    z->n = t->nrow;
    z->row = spx_alloc(t->nrow, sizeof *z->row, e);
    st = z->row == NULL ? SPX_EIO : read_columns(t, z, e);
    if (st == SPX_OK)
        qsort(z->row, z->n, sizeof *z->row, spx_zero_key_compare);
    for (size_t i = 1; i < z->n && st == SPX_OK; i++)
        if (spx_zero_key_compare(&z->row[i - 1], &z->row[i]) == 0)
            st = spx_fail(e, SPX_EINPUT, "two rows have arm '%s', petal %lld, fibre %lld, night %lld",
                          z->row[i].key.arm, (long long)z->row[i].key.petal, (long long)z->row[i].key.fiber,
                          (long long)z->row[i].key.night);
    if (st != SPX_OK) {
        spx_err_at(e, spx_h5_filename(file), path);
        spx_zeropoints_free(z);
    }
    spx_table_free(t);
    return st;
}

spx_status spx_zeropoints_write(hid_t file, const spx_zeropoints *z, spx_err *e)
{
    enum { ARM = sizeof z->row->key.arm };
    spx_table *t = spx_table_new(z->n, e);
    double *v = spx_alloc(z->n, sizeof *v, e);
    int64_t *w = spx_alloc(z->n, sizeof *w, e);
    char *arm = spx_alloc(z->n, ARM, e);
    spx_status st = t == NULL || v == NULL || w == NULL || arm == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < z->n && st == SPX_OK; i++) {
        memset(arm + i * ARM, ' ', ARM);
        memcpy(arm + i * ARM, z->row[i].key.arm, strlen(z->row[i].key.arm));
    }
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "ARM", ARM, arm, e);
    for (size_t c = 0; c < NWHOLE + NREAL && st == SPX_OK; c++) {
        /* keys, zero points, then what they are from */
        const int is_real = c >= NKEY && c < NKEY + NREAL;
        const size_t k = c < NKEY ? c : is_real ? c - NKEY : c - NREAL;
        for (size_t i = 0; i < z->n; i++) {
            memcpy(&v[i], (const char *)&z->row[i] + real[is_real ? k : 0].at, sizeof *v);
            memcpy(&w[i], (const char *)&z->row[i] + whole[is_real ? 0 : k].at, sizeof *w);
        }
        st = is_real ? spx_table_add(t, real[k].name, H5T_NATIVE_DOUBLE, "km/s", v, e)
                     : spx_table_add(t, whole[k].name, H5T_NATIVE_INT64, "", w, e);
    }
    if (st == SPX_OK)
        st = spx_h5_group(file, "/zeropoint", e);
    if (st == SPX_OK)
        st = spx_table_write(file, path, t, e);
    spx_table_free(t);
    spx_free(v);
    spx_free(w);
    spx_free(arm);
    return st;
}
