/* Checks the parts of a frame that come from its image, rows of the fibermap for any choice of fibres, scores, and
 * bands on the ground that are left out of barycentric wavelengths. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "h5/table.h"
#include "products/frame.h"

/* Fibermap of n rows: columns `name` (fibre numbers) and TARGETID = 1000 + row. */
static spx_table *fibermap(const char *name, size_t n, const int32_t *fiber)
{
    spx_table *t = spx_table_new(n, &e);
    int64_t id[16];
    for (size_t k = 0; k < n; k++)
        id[k] = 1000 + (int64_t)k;
    CHECK(t != NULL && n <= 16);
    CHECK(spx_table_add(t, name, H5T_NATIVE_INT32, NULL, fiber, &e) == SPX_OK);
    CHECK(spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, id, &e) == SPX_OK);
    return t;
}

/* Rows that fibres first .. first+n-1 of a PSF of `nfibre` get, as TARGETIDs, or the message of the refusal. */
static void check_rows_of(spx_psf psf, spx_table *map, size_t first, size_t n, const int64_t *want, const char *refusal)
{
    spx_image im = {.fibermap = map};
    spx_frame f = {.nspec = n};
    spx_status st;
    CHECK(spx_cards_append(&im.header, "EXPID   =                   12", &e) == SPX_OK);
    st = spx_frame_inherit(&f, &im, &psf, first, n, &e);
    if (refusal != NULL) {
        CHECK(st == SPX_EINPUT && strstr(spx_err_text(&e), refusal) != NULL);
        spx_err_clear(&e);
    } else {
        int64_t id[16];
        long expid = 0;
        CHECK(st == SPX_OK && spx_cards_int(&f.header, "EXPID", &expid) && expid == 12);
        CHECK(f.fibermap != NULL && f.fibermap->nrow == n);
        CHECK(spx_table_get_i64(f.fibermap, "TARGETID", id, &e) == SPX_OK && !memcmp(id, want, n * sizeof *id));
    }
    spx_frame_free(&f);
    spx_image_free(&im);
}

static void check_rows(size_t nfibre, spx_table *map, size_t first, size_t n, const int64_t *want, const char *refusal)
{
    check_rows_of((spx_psf){.nspec = nfibre}, map, first, n, want, refusal);
}

/* First and last bin that the band 6000-6010 Angstrom on the ground leaves out of bins of 0.1 from 5990 on. */
static void check_left_out(int barycentric, const double *velocity, size_t first, size_t last)
{
    enum { N = 301 };
    static const double band[2] = {6000, 6010};
    double wave[N];
    uint32_t mask[2 * N] = {0};
    const spx_arm a = {.nwave = N, .wavelength = wave, .mask = mask, .barycentric = barycentric};
    for (size_t i = 0; i < N; i++)
        wave[i] = 5990.05 + 0.1 * (double)i;
    spx_arm_leave_out(&a, 1, velocity, 1, band);
    for (size_t i = 0; i < N; i++)
        CHECK(mask[i] == 0 && mask[N + i] == (i >= first && i <= last ? (uint32_t)SPX_NODATA : 0));
}

int main(void)
{
    const int32_t mixed[4] = {13, 10, 11, 12}, few[3] = {11, 19, 18}, two[3] = {21, 19, 18}, twice[3] = {1, 11, 2},
                  none[4] = {-1, 1, -1, 3};
    /* a row for each fibre: taken by row, whatever FIBER says */
    check_rows(4, fibermap("FIBER", 4, mixed), 1, 2, (const int64_t[]){1001, 1002}, NULL);
    /* fewer rows: FIBER modulo 10 */
    check_rows(10, fibermap("FIBER", 4, mixed), 0, 4, (const int64_t[]){1001, 1002, 1003, 1000}, NULL);
    check_rows(10, fibermap("fiber", 3, few), 8, 2, (const int64_t[]){1002, 1001}, NULL);
    check_rows(10, fibermap("FIBER", 3, few), 0, 2, NULL, "no row for fibre 0");
    check_rows(10, fibermap("FIBER", 3, two), 8, 2, NULL, "FIBER 21 and 19 are not of one spectrograph");
    check_rows(10, fibermap("FIBER", 3, twice), 1, 1, NULL, "rows 0 and 1");
    check_rows(10, fibermap("FIBER", 4, none), 3, 1, (const int64_t[]){1003}, NULL);
    /* no column FIBER: by row */
    check_rows(10, fibermap("ROW", 3, few), 1, 2, (const int64_t[]){1001, 1002}, NULL);
    check_rows(10, fibermap("ROW", 3, few), 2, 2, NULL, "no row for fibre 3");
    check_rows(2, fibermap("ROW", 3, few), 0, 2, NULL, "3 rows for 2 fibres of the PSF, and no column FIBER");

    /* the PSF names its fibres: rows in another order, of more fibres, of fewer, twice; numbers of other fibres tell
     * nothing */
    uint32_t number[] = {12, 14, 17}, same[] = {3, 3, 4};
    const spx_psf named = {.nspec = 3, .fibre = number}, unnamed = {.nspec = 3, .fibre = same};
    check_rows_of(named, fibermap("FIBER", 3, (const int32_t[]){17, 12, 14}), 0, 3, (const int64_t[]){1001, 1002, 1000},
                  NULL);
    check_rows_of(named, fibermap("FIBER", 5, (const int32_t[]){17, 99, 12, 13, 14}), 0, 3,
                  (const int64_t[]){1002, 1004, 1000}, NULL);
    check_rows_of(named, fibermap("FIBER", 2, (const int32_t[]){17, 12}), 2, 1, (const int64_t[]){1000}, NULL);
    check_rows_of(named, fibermap("FIBER", 2, (const int32_t[]){17, 12}), 0, 3, NULL, "no row for fibre 1");
    check_rows_of(named, fibermap("FIBER", 3, (const int32_t[]){17, 12, 17}), 0, 3, NULL, "rows 0 and 2");
    check_rows_of(named, fibermap("FIBER", 3, (const int32_t[]){0, 1, 2}), 0, 3, (const int64_t[]){1000, 1001, 1002},
                  NULL);
    check_rows_of(unnamed, fibermap("FIBER", 3, (const int32_t[]){4, 3, 5}), 0, 3, (const int64_t[]){1000, 1001, 1002},
                  NULL);

    spx_frame f = {.nspec = 2};
    const double sum[2] = {1, 2}, median[2] = {3, 4}, snr[2] = {5, 6};
    double got[2];
    CHECK(spx_frame_set_scores(&f, "z", sum, median, snr, &e) == SPX_OK);
    CHECK(spx_frame_set_scores(&f, "red", sum, median, snr, &e) == SPX_OK); /* replaces them */
    CHECK(f.scores->nrow == 2 && spx_table_ncol(f.scores) == 3);
    CHECK(spx_table_get_f64(f.scores, "MEDIAN_RAW_SNR_RED", got, &e) == SPX_OK && got[1] == 6);
    spx_frame_free(&f);

    static const char *const arms[][2] = {
        {"r0", "r"},       {"B9", "b"},
        {"blue1", "blue"}, {"red", "red"},
        {"rnir", "rnir"},  {"sm1", "sm"},
        {"sp1-b", "b"},    {"SP16-R", "r"},
        {"red-1", "red"},  {"vis_r2", "vis_r"},
        {"ccd_1", "ccd"},  {"", "frame"},
        {"4", "frame"},    {"abcdefghijklmnopqr", "abcdefghijklmno"},
        {"-b", "b"},       {"_x", "frame"},
    };
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        char arm[SPX_ARM_NAME];
        spx_arm_of_camera(arms[i][0], arm);
        CHECK(strcmp(arm, arms[i][1]) == 0);
    }

    /* 6000 Angstrom on the ground are 6000.500 at +25 km/s; 30 km/s are 0.6004 Angstrom there, 0.6014 at 6010 */
    const double velocity = 25, nothing = NAN, mad = 3e5;
    check_left_out(0, NULL, 100, 199);
    check_left_out(0, &velocity, 100, 199);
    check_left_out(1, &velocity, 105, 204);
    check_left_out(1, NULL, 94, 205);
    check_left_out(1, &nothing, 94, 205);
    check_left_out(1, &mad, 94, 205);
    return 0;
}
