/* Reads and writes /transmission and /tellurics (products/transmission_h5.h). */
#include "products/transmission_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/wavelength_h5.h"

spx_status spx_transmission_read(hid_t file, spx_transmission *t, spx_err *e)
{
    size_t dims[2] = {0, 0}, n = 0;
    char *names = NULL;
    memset(t, 0, sizeof *t);
    spx_status st = spx_schema_accept(file, "/transmission", "transmission", e);
    if (st == SPX_OK)
        st = spx_wavelength_read(file, "/transmission/wavelength", &t->nwave, &t->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(file, "/transmission/wavelength", &t->medium, NULL, NULL, e);
    dims[1] = t->nwave;
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/transmission/tau", 2, dims, &t->tau, e);
    t->nspecies = dims[0];
    if (st == SPX_OK)
        st = spx_h5_read_strings(file, "/transmission/species", SPX_SPECIES_NAME, &n, &names, e);
    if (st == SPX_OK && (n != t->nspecies || n > SPX_MAX_SPECIES))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/transmission/species", NULL,
                         "names %zu species, tau has %zu; 1 to %d are possible", n, t->nspecies, SPX_MAX_SPECIES);
    for (size_t s = 0; s < n && st == SPX_OK; s++) {
        memcpy(t->name[s], names + s * SPX_SPECIES_NAME, SPX_SPECIES_NAME);
        t->name[s][SPX_SPECIES_NAME - 1] = '\0';
        for (size_t k = strlen(t->name[s]); k > 0 && t->name[s][k - 1] == ' '; k--)
            t->name[s][k - 1] = '\0';
    }
    spx_free(names);
    spx_err why = {0};
    if (st == SPX_OK && spx_transmission_check(t, &why) != SPX_OK)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/transmission", "make the table again", "%s",
                         spx_err_text(&why));
    return st;
}

spx_status spx_transmission_write(hid_t file, const spx_transmission *t, spx_err *e)
{
    const size_t dims[2] = {t->nspecies, t->nwave};
    char names[SPX_MAX_SPECIES][SPX_SPECIES_NAME];
    for (size_t s = 0; s < t->nspecies; s++) { /* padded with blanks */
        memset(names[s], ' ', sizeof names[s]);
        memcpy(names[s], t->name[s], strlen(t->name[s]));
    }
    spx_status st = spx_h5_write_real(file, "/transmission/wavelength", 8, 1, &t->nwave, t->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(file, "/transmission/wavelength", t->medium, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/transmission/tau", 8, 2, dims, t->tau, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/transmission/species", SPX_SPECIES_NAME, t->nspecies, names[0], e);
    return st == SPX_OK ? spx_h5_attach_scale(file, "/transmission/tau", 1, "/transmission/wavelength", "wavelength", e)
                        : st;
}

spx_status spx_tellurics_write(hid_t file, const spx_transmission *t, size_t n, const spx_air *air, spx_err *e)
{
    spx_table *table = spx_table_new(n, e);
    double *number = spx_alloc(n, sizeof *number, e);
    int64_t *whole = spx_alloc(n, sizeof *whole, e);
    spx_status st = table == NULL || number == NULL || whole == NULL ? SPX_EIO : SPX_OK;
    for (int column = 0; column < 2 && st == SPX_OK; column++) {
        for (size_t k = 0; k < n; k++)
            whole[k] = column == 0 ? air[k].expid : (int64_t)air[k].nstar;
        st = spx_table_add(table, column == 0 ? "EXPID" : "NSTAR", H5T_NATIVE_INT64, "", whole, e);
    }
    for (size_t q = 0; q <= t->nspecies; q++)
        for (int error = 0; error < 2 && st == SPX_OK; error++) {
            const int shift = q == t->nspecies;
            char name[32 + SPX_SPECIES_NAME];
            (void)snprintf(name, sizeof name, "%s%s%s%s", shift ? "SHIFT" : "STRENGTH", error ? "_ERR" : "",
                           shift ? "" : "_", shift ? "" : t->name[q]);
            for (size_t k = 0; k < n; k++)
                number[k] = error ? air[k].err[q] : air[k].value[q];
            st = spx_table_add(table, name, H5T_NATIVE_DOUBLE, shift ? "km/s" : "1", number, e);
        }
    if (st == SPX_OK)
        st = spx_table_write(file, "/tellurics/table", table, e);
    spx_table_free(table);
    spx_free(number);
    spx_free(whole);
    return st;
}
