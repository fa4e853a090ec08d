/* Writes /truth (products/truth_h5.h). */
#include "products/truth_h5.h"

#include "h5/attr.h"
#include "h5/table.h"
#include "h5/write.h"

spx_status spx_truth_write(hid_t file, const spx_truth *t, spx_err *e)
{
    size_t dims[2] = {t->nspec, t->nwave};
    spx_status st = spx_h5_write(file, "/truth/wavelength", H5T_NATIVE_DOUBLE, 1, &dims[1], t->wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/truth/wavelength", "medium", "vacuum", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/truth/flux", 4, 2, dims, t->flux, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/truth/flux", 1, "/truth/wavelength", "wavelength", e);
    if (st == SPX_OK && t->sky != NULL)
        st = spx_h5_write_real(file, "/truth/sky", 4, 1, &dims[1], t->sky, e);
    if (st == SPX_OK && t->sky != NULL)
        st = spx_h5_attach_scale(file, "/truth/sky", 0, "/truth/wavelength", "wavelength", e);
    return st == SPX_OK ? spx_table_write(file, "/truth/table", t->table, e) : st;
}
