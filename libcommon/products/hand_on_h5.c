/* Hands blocks on (products/hand_on_h5.h). */
#include "products/hand_on_h5.h"

#include "h5/object.h"

/* A hard link, so that the block is this file's: a hostile file must not make a program open others. */
static int is_here(hid_t file, const char *path)
{
    H5L_info_t link;
    return spx_h5_exists(file, path) && H5Lget_info(file, path, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
}

static spx_status copy(hid_t from, hid_t to, size_t n, const char *const *path, spx_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_here(from, path[i]) || spx_h5_exists(to, path[i]))
            continue;
        if (H5Ocopy(from, path[i], to, path[i], H5P_DEFAULT, H5P_DEFAULT) < 0)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(from), path[i], "check the file with h5check",
                               "cannot be copied");
    }
    return SPX_OK;
}

spx_status spx_blocks_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/psf", "/shift", "/flat", "/sky", "/flux"};
    return copy(from, to, sizeof blocks / sizeof *blocks, blocks, e);
}

spx_status spx_exposure_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/image", "/fibermap"};
    return copy(from, to, sizeof blocks / sizeof *blocks, blocks, e);
}
