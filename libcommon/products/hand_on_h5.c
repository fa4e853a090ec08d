/* Hands blocks on (products/hand_on_h5.h). */
#include "products/hand_on_h5.h"

#include "h5/object.h"

/* A hard link, so that the block is this file's: a hostile file must not make a program open others. */
static int is_here(hid_t file, const char *path)
{
    H5L_info_t link;
    return spx_h5_exists(file, path) && H5Lget_info(file, path, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
}

spx_status spx_blocks_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/psf", "/shift", "/flat", "/sky", "/flux"};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (!is_here(from, blocks[i]) || spx_h5_exists(to, blocks[i]))
            continue;
        if (H5Ocopy(from, blocks[i], to, blocks[i], H5P_DEFAULT, H5P_DEFAULT) < 0)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(from), blocks[i], "check the file with h5check",
                               "cannot be copied");
    }
    return SPX_OK;
}
