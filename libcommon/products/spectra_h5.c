/* Reads and writes /spectra (products/spectra_h5.h). */
#include "products/spectra_h5.h"

#include <stdio.h>
#include <string.h>

#include "h5/object.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/arm_h5.h"
#include "products/cards_h5.h"
#include "products/frame_h5.h"

/* Reads the head of a frame as spectra of one arm. */
static spx_status frame_head(hid_t file, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    char camera[16] = "";
    spx_status st = spx_schema_accept(file, "/frame", "frame", e);
    s->narm = 1;
    (void)snprintf(path[0], SPX_ARM_PATH, "/frame");
    if (st != SPX_OK || (st = spx_arm_read_head(file, path[0], 0, &s->nspec, &s->arm[0], e)) != SPX_OK ||
        (st = spx_frame_read_camera(file, sizeof camera, camera, &s->arm[0], e)) != SPX_OK)
        return st;
    return spx_cards_read(file, "/frame/header", &s->header, e);
}

/* Sorts arms by wavelength, the usual order of b, r, z; HDF5 lists them by name. */
static void sort_arms(spx_spectra *s, char (*path)[SPX_ARM_PATH])
{
    for (size_t i = 1; i < s->narm; i++)
        for (size_t k = i; k > 0 && s->arm[k].nwave > 0 && s->arm[k - 1].nwave > 0 &&
                           s->arm[k].wavelength[0] < s->arm[k - 1].wavelength[0];
             k--) {
            char name[SPX_ARM_PATH];
            spx_arm t = s->arm[k];
            s->arm[k] = s->arm[k - 1];
            s->arm[k - 1] = t;
            memcpy(name, path[k], sizeof name);
            memcpy(path[k], path[k - 1], sizeof name);
            memcpy(path[k - 1], name, sizeof name);
        }
}

static spx_status spectra_head(hid_t file, int rows, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    size_t n = 0;
    char **names = NULL;
    spx_status st = spx_schema_accept(file, "/spectra", "spectra", e);
    if (st != SPX_OK || (st = spx_h5_list(file, "/spectra", &n, &names, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        char p[300];
        char flux[300]; /* a group without wavelengths, but with flux, is a damaged arm */
        (void)snprintf(p, sizeof p, "/spectra/%s/wavelength", names[i]);
        (void)snprintf(flux, sizeof flux, "/spectra/%s/flux", names[i]);
        if (!spx_h5_exists(file, p) && !spx_h5_exists(file, flux))
            continue;
        if (s->narm == SPX_MAX_ARM || strlen(names[i]) >= sizeof s->arm[0].name) {
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/spectra", NULL,
                             "more than %d arms, or an arm's name is too long", SPX_MAX_ARM);
            break;
        }
        spx_arm *a = &s->arm[s->narm];
        (void)snprintf(a->name, sizeof a->name, "%.15s", names[i]);
        (void)snprintf(path[s->narm], SPX_ARM_PATH, "/spectra/%s", a->name);
        st = spx_arm_read_head(file, path[s->narm++], rows, &s->nspec, a, e);
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && s->narm == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/spectra", NULL, "has no arms");
    if (st == SPX_OK) { /* else the last arm may have no wavelengths */
        sort_arms(s, path);
        st = spx_cards_read(file, "/spectra/header", &s->header, e);
    }
    return st == SPX_OK ? spx_table_read(file, "/exp_fibermap", &s->exp_fibermap, e) : st;
}

spx_status spx_spectra_read_head(hid_t file, int rows, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    spx_status st;
    memset(s, 0, sizeof *s);
    if (spx_h5_exists(file, "/spectra"))
        st = spectra_head(file, rows, s, path, e);
    else if (spx_h5_exists(file, "/frame"))
        st = frame_head(file, s, path, e);
    else
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), NULL,
                         "fits2h5 makes them of FITS files, specx-extract of images",
                         "holds no spectra (/spectra or /frame)");
    if (st == SPX_OK)
        st = spx_row_table_read(file, "/fibermap", s->nspec, &s->fibermap, e);
    return st == SPX_OK ? spx_row_table_read(file, "/scores", s->nspec, &s->scores, e) : st;
}

static spx_status read_all(hid_t file, int rows, int with_resolution, spx_spectra *s, spx_err *e)
{
    char path[SPX_MAX_ARM][SPX_ARM_PATH];
    spx_status st = spx_spectra_read_head(file, rows, s, path, e);
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++)
        st = spx_arm_read_values(file, path[i], s->nspec, with_resolution, &s->arm[i], NULL, e);
    return st;
}

spx_status spx_spectra_read(hid_t file, int with_resolution, spx_spectra *s, spx_err *e)
{
    return read_all(file, 0, with_resolution, s, e);
}

spx_status spx_spectra_read_grids(hid_t file, int with_resolution, spx_spectra *s, spx_err *e)
{
    return read_all(file, 1, with_resolution, s, e);
}

spx_status spx_spectra_write(hid_t file, const spx_spectra *s, int precision, spx_err *e)
{
    spx_status st = spx_h5_group(file, "/spectra", e);
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/spectra/%s", s->arm[i].name);
        st = spx_arm_write(file, path, s->nspec, &s->arm[i], precision, NULL, e);
    }
    if (st == SPX_OK)
        st = spx_cards_write(file, "/spectra/header", &s->header, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", s->fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", s->scores, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/exp_fibermap", s->exp_fibermap, e);
    return st;
}
