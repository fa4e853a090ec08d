/* Identifies the object of a file: position, time, TARGETID, fibre (convert/spectrum/identity.h). */
#include "convert/spectrum/identity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "fits/cards.h"
#include "fits/values.h"

static int first_double(const spx_fits *f, const char *const *key, double *out)
{
    for (; *key; key++)
        if (spx_cards_double(&f->hdu[0].header, *key, out))
            return 1;
    return 0;
}

void spx_clean_text(char *to, size_t size, const char *from)
{
    size_t n = 0;
    while (*from == ' ')
        from++;
    for (; *from && n + 1 < size; from++)
        to[n++] = (unsigned char)*from > 31 && (unsigned char)*from < 127 ? *from : '?';
    while (n > 0 && to[n - 1] == ' ')
        n--;
    to[n] = 0;
}

int64_t spx_text_hash(const char *text)
{
    const uint64_t h = spx_fnv1a(SPX_FNV1A, text, strlen(text));
    return (int64_t)(h >> 1 ? h >> 1 : 1);
}

/* Reads the only value of a column from the first table of one row that has it; *out is unchanged if it is not
 * numeric. */
static void only_value(const spx_fits *f, const char *column, double *out)
{
    for (size_t i = 1; i < f->nhdu; i++) {
        size_t n = 0;
        double *v = NULL;
        spx_err ignored = {0};
        if (f->hdu[i].kind == SPX_FITS_BINTABLE && f->hdu[i].nrow == 1 &&
            spx_fits_find_column(&f->hdu[i], column) != NULL &&
            spx_fits_column_f64(f, i, column, &n, &v, &ignored) == SPX_OK && n == 1 && isfinite(v[0]))
            *out = v[0];
        spx_free(v);
    }
}

/* TARGETID of SDSS: plate, MJD and fibre in decimal digits; 0: one is unknown. */
static int64_t sdss_target(const spx_fits *f, int32_t *fiber)
{
    const spx_cards *h = &f->hdu[0].header;
    long plate = 0, mjd = 0, number = 0;
    double id = 0;
    if (!spx_cards_int(h, "PLATEID", &plate))
        spx_cards_int(h, "PLATE", &plate);
    spx_cards_int(h, "MJD", &mjd);
    if (!spx_cards_int(h, "FIBERID", &number))
        spx_cards_int(h, "FIBER", &number);
    if (number == 0)
        only_value(f, "FIBERID", &id);
    if (id > 0 && id < 1e4)
        number = (long)id;
    *fiber = number > 0 && number < 10000 ? (int32_t)number : 0;
    return plate > 0 && plate < 100000 && mjd > 0 && mjd < 100000 && *fiber > 0
               ? ((int64_t)plate * 100000 + mjd) * 10000 + *fiber
               : 0;
}

void spx_identify(const spx_spectrum_file *file, spx_identity *id)
{
    static const char *const ra[] = {"PLUG_RA", "RAOBJ", "RA_OBJ", "OBJRA", "RA_TARG", "RA", NULL};
    static const char *const dec[] = {"PLUG_DEC", "DECOBJ", "DEC_OBJ", "OBJDEC", "DEC_TARG", "DEC", NULL};
    static const char *const when[] = {"MJD-OBS", "UTMJD", "MJD", "LMJD", NULL};
    static const char *const name[] = {"OBJID", "DESIG", "GALAH_ID", "OBJECT", "OBJNAME", "TARGNAME", NULL};
    static const char *const own[] = {"OBSID", "CATALOGID", "SDSS_ID", "SOBJECT_ID", NULL};
    const char *slash = strrchr(file->name, '/');
    const spx_fits *f = file->f;
    *id = (spx_identity){.ra = NAN, .dec = NAN, .when = NAN, .rows = 1};
    spx_clean_text(id->file, sizeof id->file, slash != NULL ? slash + 1 : file->name);
    for (size_t i = 0; i < file->found->n; i++)
        id->rows = file->found->s[i].row + 1 > id->rows ? file->found->s[i].row + 1 : id->rows;
    if (f->nhdu > 0) {
        char text[72];
        long number = 0;
        const spx_cards *h = &f->hdu[0].header;
        for (const char *const *k = name; *k != NULL && !id->object[0]; k++) {
            if (spx_cards_string(h, *k, text, sizeof text))
                spx_clean_text(id->object, sizeof id->object, text);
            else if (spx_cards_int(h, *k, &number))
                snprintf(id->object, sizeof id->object, "%ld", number);
        }
        (void)first_double(f, when, &id->when);
        if (first_double(f, ra, &id->ra))
            (void)first_double(f, dec, &id->dec);
        only_value(f, "PLUG_RA", &id->ra); /* SPECOBJ has the better position */
        only_value(f, "PLUG_DEC", &id->dec);
        id->target = sdss_target(f, &id->fiber);
        for (const char *const *k = own; *k != NULL && id->target == 0; k++)
            if (spx_cards_int(h, *k, &number) && number > 0)
                id->target = number;
    }
    id->by_file = id->target == 0 && !id->object[0];
    if (id->target == 0)
        id->target = spx_text_hash(id->object[0] ? id->object : id->file);
}

int spx_identity_joins(const spx_spectrum_file *a, const spx_identity *ia, const spx_spectrum_file *b,
                       const spx_identity *ib)
{
    if (ia->rows != 1 || ib->rows != 1 || ia->target != ib->target || !ia->object[0] || !(ia->when == ib->when))
        return 0;
    for (size_t i = 0; i < a->found->n; i++)
        for (size_t k = 0; k < b->found->n; k++)
            if (strcmp(a->found->s[i].arm, b->found->s[k].arm) == 0)
                return 0;
    return 1;
}

spx_status spx_identity_fibermap(size_t n, const spx_identity *id, spx_table **out, spx_err *e)
{
    int64_t *target = spx_alloc(n, sizeof *target, e);
    int32_t *fiber = spx_alloc(n, sizeof *fiber, e);
    double *ra = spx_alloc(n, sizeof *ra, e), *dec = spx_alloc(n, sizeof *dec, e);
    char(*object)[SPX_OBJECT_NAME] = spx_alloc(n, sizeof *object, e),
    (*file)[SPX_FILE_NAME] = spx_alloc(n, sizeof *file, e);
    spx_table *t = target != NULL && fiber != NULL && ra != NULL && dec != NULL && object != NULL && file != NULL
                       ? spx_table_new(n, e)
                       : NULL;
    int place = 1, named = 0;
    spx_status st = t != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < n && t != NULL; i++) {
        target[i] = id[i].target;
        fiber[i] = id[i].fiber;
        ra[i] = id[i].ra;
        dec[i] = id[i].dec;
        memcpy(object[i], id[i].object, sizeof *object);
        memcpy(file[i], id[i].file, sizeof *file);
        place = place && isfinite(ra[i]) && isfinite(dec[i]);
        named = named || object[i][0];
    }
    if (st == SPX_OK)
        st = spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, target, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "FIBER", H5T_NATIVE_INT32, NULL, fiber, e);
    if (st == SPX_OK && place)
        st = spx_table_add(t, "TARGET_RA", H5T_NATIVE_DOUBLE, "degree", ra, e);
    if (st == SPX_OK && place)
        st = spx_table_add(t, "TARGET_DEC", H5T_NATIVE_DOUBLE, "degree", dec, e);
    if (st == SPX_OK && named)
        st = spx_table_add_strings(t, "OBJECT", SPX_OBJECT_NAME, object[0], e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "FILENAME", SPX_FILE_NAME, file[0], e);
    spx_free(target);
    spx_free(fiber);
    spx_free(ra);
    spx_free(dec);
    spx_free(object);
    spx_free(file);
    if (st == SPX_OK)
        *out = t;
    else
        spx_table_free(t);
    return st;
}
