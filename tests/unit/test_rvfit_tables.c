/* Checks results of a fit written in chunks: models and curves row by row, tables of stars with several exposures, and
 * such a table as the start of another fit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table.h"
#include "products/ccf_h5.h"
#include "products/rvfit_h5.h"
#include "products/spectra.h"
#include "products/stack.h"
#include "products/templates.h"

enum { NSTAR = 2, NROW = 3, NWAVE = 4, NLAG = 3 };

static char file[] = "/tmp/spx-rvfit-XXXXXX";

static spx_table *fibermap(void)
{
    static const int64_t target[] = {9, 7, 8, 7}, exposure[] = {50, 51, 52, 53};
    spx_table *t = spx_table_new(4, &e);
    CHECK(t != NULL && spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, target, &e) == SPX_OK);
    CHECK(spx_table_add(t, "EXPID", H5T_NATIVE_INT64, NULL, exposure, &e) == SPX_OK);
    return t;
}

/* Stars 7 (rows 1 and 3) and 8 (row 2). */
static void make_result(spx_rvfit *r, size_t nstar, size_t nrow)
{
    *r = (spx_rvfit){.nstar = nstar, .nrow = nrow, .narm = 1, .npar = 1, .nlag = NLAG, .lag_v0 = -10, .lag_step = 10};
    strcpy(r->parname[0], "teff");
    strcpy(r->arm[0].name, "b");
    r->arm[0].nwave = NWAVE;
    r->star = spx_alloc(nstar, sizeof *r->star, &e);
    r->exposure = spx_alloc(nrow, sizeof *r->exposure, &e);
    r->row = spx_alloc(nrow, sizeof *r->row, &e);
    r->first = spx_alloc(nstar + 1, sizeof *r->first, &e);
    r->arm[0].model = spx_alloc2(nrow, NWAVE, sizeof(float), &e);
    r->arm[0].ccf = spx_alloc2(nrow, NLAG, sizeof(float), &e);
    CHECK(r->star && r->exposure && r->row && r->first && r->arm[0].model && r->arm[0].ccf);
}

static void check_column(hid_t f, const char *path, const char *name, size_t n, const int64_t *want)
{
    spx_table *t = NULL;
    int64_t got[8];
    CHECK(spx_table_read(f, path, &t, &e) == SPX_OK && t != NULL && t->nrow == n);
    CHECK(spx_table_get_i64(t, name, got, &e) == SPX_OK && memcmp(got, want, n * sizeof *got) == 0);
    spx_table_free(t);
}

int main(void)
{
    static const size_t row[NROW] = {1, 3, 2}, first[NSTAR + 1] = {0, 2, 3};
    double wave[NWAVE] = {4000, 4001, 4002, 4003};
    spx_spectra s = {.nspec = 4, .narm = 1, .fibermap = fibermap()};
    spx_rvfit all, part;
    spx_output *out;
    spx_input in;
    strcpy(s.arm[0].name, "b");
    s.arm[0].nwave = NWAVE;
    s.arm[0].wavelength = wave;
    CHECK(spx_cards_append(&s.header, "TILEID  =                   12", &e) == SPX_OK);
    make_result(&all, NSTAR, NROW);
    memcpy(all.row, row, sizeof row);
    memcpy(all.first, first, sizeof first);
    for (size_t k = 0; k < NSTAR; k++)
        all.star[k].vrad = 100 + (double)k;
    for (size_t i = 0; i < NROW; i++)
        all.exposure[i].npix = (int64_t)i;

    int fd = mkstemp(file);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(spx_output_open(&out, file, 1, &e) == SPX_OK);
    hid_t f = spx_output_file(out);
    make_result(&part, 1, 2); /* the first star, then the other */
    CHECK(spx_rvfit_create(f, &part, &s, NROW, 1, &e) == SPX_OK);
    for (size_t i = 0; i < 2 * NWAVE; i++)
        part.arm[0].model[i] = (float)i;
    part.arm[0].ccf[1] = NAN; /* is not stored */
    part.arm[0].ccf[NLAG] = 5;
    CHECK(spx_rvfit_write_rows(f, &part, 0, 1, &e) == SPX_OK);
    part.nrow = 1;
    CHECK(spx_rvfit_write_rows(f, &part, 2, 1, &e) == SPX_OK);
    spx_rvfit_free(&part);
    CHECK(spx_rvfit_write_tables(f, &all, &s, 1, NULL, NULL, &e) == SPX_OK);
    CHECK(spx_output_commit(out, &e) == SPX_OK);

    CHECK(spx_input_open(&in, file, &e) == SPX_OK);
    /* a star of several exposures is of none of them */
    check_column(in.file, "/rvfit/table", "EXPID", NSTAR, (const int64_t[]){-1, 52});
    check_column(in.file, "/rvfit/table", "TARGETID", NSTAR, (const int64_t[]){7, 8});
    check_column(in.file, "/rvfit/table", "NEXP", NSTAR, (const int64_t[]){2, 1});
    check_column(in.file, "/fibermap", "EXPID", NSTAR, (const int64_t[]){-1, 52});
    check_column(in.file, "/rvfit/exposures", "EXPID", NROW, (const int64_t[]){51, 53, 52});
    check_column(in.file, "/rvfit/exposures", "NPIX", NROW, (const int64_t[]){0, 1, 2});
    check_column(in.file, "/exp_fibermap", "EXPID", NROW, (const int64_t[]){51, 53, 52});
    CHECK(spx_h5_exists(in.file, "/rvfit/header"));
    float *model = NULL, *gain = NULL;
    size_t two[2] = {NROW, NWAVE}, three[3] = {NROW, 1, NLAG};
    CHECK(spx_h5_read_f32(in.file, "/rvfit/b/exposure_model", 2, two, &model, &e) == SPX_OK && model[7] == 7 &&
          model[8] == 0 && model[11] == 3);
    CHECK(spx_h5_read_f32(in.file, "/ccf/gain", 3, three, &gain, &e) == SPX_OK && gain[1] == 0 && gain[3] == 5);
    spx_free(model);
    spx_free(gain);
    /* its exposures are those of each star, for stacks */
    spx_traces tr;
    spx_ccf_stars ccf;
    CHECK(spx_ccf_read(&in, &tr, &ccf, &e) == SPX_OK && ccf.nstar == NSTAR && ccf.first[1] == 2 && ccf.first[2] == 3);
    CHECK(tr.ntrace == NROW && tr.start[3] == 3 * NLAG && ccf.v0 == -10 && ccf.step == 10);
    spx_traces_free(&tr);
    spx_ccf_stars_free(&ccf);
    /* EXPID -1 stands for any exposure of the target */
    spx_setup setup = {.npar = 1};
    strcpy(setup.parname[0], "teff");
    double start[4 * 3];
    const size_t want[4] = {0, 1, 2, 3};
    CHECK(spx_rvfit_read_start(in.file, &s, &setup, 4, want, start, &e) == SPX_OK);
    CHECK(isnan(start[0]) && start[3] == 100 && start[6] == 101 && start[9] == 100);
    spx_input_close(&in);
    spx_rvfit_free(&all);
    spx_table_free(s.fibermap);
    spx_cards_free(&s.header);
    unlink(file);
    return 0;
}
