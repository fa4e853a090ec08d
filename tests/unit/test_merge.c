/* Checks merging: frames made here, joined by fibres, cameras and rows, read back; and refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "merge/merge.h"
#include "products/frame_h5.h"
#include "products/spectra_h5.h"

enum { NWAVE = 40, NDIAG = 5, MAXPART = 4 };

/* What a made-up frame is like. */
typedef struct {
    const char *camera;
    int first, n, step; /* fibres first, first+step ... */
    double wave0;
    int expid, tables, model, precision;
    int64_t target; /* TARGETID = target + fibre */
} recipe;

static double flux_of(const char *camera, int fiber, size_t k)
{
    return camera[0] + 0.25 * fiber + 0.0078125 * (double)k;
}

static hid_t in_memory(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    static int count;
    char name[32];
    CHECK(fapl >= 0 && H5Pset_fapl_core(fapl, 1 << 16, 0) >= 0);
    (void)snprintf(name, sizeof name, "part%d.h5", count++);
    hid_t f = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    CHECK(f >= 0);
    return f;
}

static hid_t make(const recipe *r)
{
    spx_frame f = {0};
    size_t n = (size_t)r->n, nw = NWAVE;
    f.nspec = n;
    f.arm.nwave = nw;
    f.arm.ndiag = NDIAG;
    (void)snprintf(f.camera, sizeof f.camera, "%s", r->camera);
    (void)snprintf(f.arm.unit, sizeof f.arm.unit, "electron/Angstrom");
    f.arm.wavelength = spx_alloc(nw, sizeof(double), &e);
    f.arm.flux = spx_alloc2(n, nw, sizeof(double), &e);
    f.arm.ivar = spx_alloc2(n, nw, sizeof(double), &e);
    f.arm.mask = spx_alloc2(n, nw, sizeof(uint32_t), &e);
    f.arm.resolution = spx_alloc2(n, NDIAG * nw, sizeof(double), &e);
    f.chi2pix = spx_alloc2(n, nw, sizeof(double), &e);
    f.pixmask_fraction = spx_alloc2(n, nw, sizeof(double), &e);
    f.fiber = spx_alloc(n, sizeof(int32_t), &e);
    CHECK(e.code == SPX_OK);
    for (size_t k = 0; k < nw; k++)
        f.arm.wavelength[k] = r->wave0 + 0.8 * (double)k;
    for (size_t i = 0; i < n; i++) {
        int fiber = f.fiber[i] = r->first + (int)i * r->step;
        for (size_t k = 0; k < nw; k++) {
            f.arm.flux[i * nw + k] = flux_of(r->camera, fiber, k);
            f.arm.ivar[i * nw + k] = 1 + fiber;
            f.arm.mask[i * nw + k] = k == 3 ? 0x80000001u : 0; /* the highest bit must survive */
            f.chi2pix[i * nw + k] = fiber;
            f.arm.resolution[(i * NDIAG + 2) * nw + k] = 1;
        }
    }
    if (r->model) {
        f.model_ny = 3;
        f.model_nx = 4;
        f.model = spx_alloc2(3, 4, sizeof(float), &e);
        for (size_t k = 0; k < 12; k++)
            f.model[k] = (float)(r->first + (int)k);
    }
    if (r->tables) {
        int64_t target[64];
        int32_t fiber[64];
        double count[64];
        CHECK(n <= 64);
        f.fibermap = spx_table_new(n, &e);
        f.scores = spx_table_new(n, &e);
        for (size_t i = 0; i < n; i++) {
            fiber[i] = 1000 + f.fiber[i];
            target[i] = r->target + f.fiber[i];
            count[i] = flux_of(r->camera, f.fiber[i], 0);
        }
        CHECK(spx_table_add(f.fibermap, "TARGETID", H5T_NATIVE_INT64, NULL, target, &e) == SPX_OK);
        CHECK(spx_table_add(f.fibermap, "FIBER", H5T_NATIVE_INT32, NULL, fiber, &e) == SPX_OK);
        CHECK(spx_table_add(f.fibermap, "DELTA", H5T_NATIVE_DOUBLE, "mm", count, &e) == SPX_OK);
        CHECK(spx_table_add(f.scores, "SUM_RAW_COUNT", H5T_NATIVE_DOUBLE, "electron", count, &e) == SPX_OK);
    }
    if (r->expid != 0)
        CHECK(spx_cards_set_int(&f.header, "EXPID", r->expid, "exposure", &e) == SPX_OK);
    CHECK(spx_cards_set_string(&f.header, "CAMERA", r->camera, NULL, &e) == SPX_OK);
    hid_t file = in_memory();
    CHECK(spx_frame_write(file, &f, r->precision, NULL, &e) == SPX_OK);
    spx_frame_free(&f);
    CHECK(spx_h5_set_str(file, "/", "product", "frame", &e) == SPX_OK);
    CHECK(spx_h5_set_str(file, "/", "schema_version", "1.0", &e) == SPX_OK);
    CHECK(spx_h5_set_str(file, "/", "creator", "test", &e) == SPX_OK);
    return file;
}

/* Merge; the result, or negative with e set. */
static hid_t merge(size_t n, const hid_t *file, spx_merge_options opt, size_t *nmissing)
{
    static const char *const names[MAXPART] = {"A", "B", "C", "D"};
    spx_merge_part part[MAXPART];
    spx_merge *m = NULL;
    spx_err_clear(&e);
    for (size_t i = 0; i < n; i++)
        part[i] = (spx_merge_part){.file = file[i], .name = names[i]};
    if (spx_merge_plan(n, part, &opt, &m, &e) != SPX_OK)
        return H5I_INVALID_HID;
    hid_t out = in_memory();
    spx_merge_repairs repairs = {0};
    spx_status st = spx_merge_write(m, out, NULL, &repairs, &e);
    CHECK(repairs.nvalue == 0);
    if (st == SPX_OK) {
        size_t nbad = 0;
        (void)spx_h5_set_str(out, "/", "product", spx_merge_product(m), &e);
        (void)spx_h5_set_str(out, "/", "schema_version", "1.0", &e);
        (void)spx_h5_set_str(out, "/", "creator", "test", &e);
        CHECK(spx_provenance_append(out, &(spx_provenance){.program = "test", .version = "1", .command_line = "test"},
                                    &e) == SPX_OK);
        CHECK(spx_schema_check(out, "merged", stdout, &nbad, &e) == SPX_OK && nbad == 0);
    }
    if (nmissing != NULL)
        *nmissing = spx_merge_nmissing(m);
    spx_merge_free(m);
    if (st != SPX_OK) {
        H5Fclose(out);
        return H5I_INVALID_HID;
    }
    return out;
}

static void close_all(size_t n, const hid_t *file)
{
    for (size_t i = 0; i < n; i++)
        H5Fclose(file[i]);
}

static void refused(size_t n, const recipe *r, spx_merge_options opt, spx_status code, const char *word)
{
    hid_t file[MAXPART];
    for (size_t i = 0; i < n; i++)
        file[i] = make(&r[i]);
    hid_t out = merge(n, file, opt, NULL);
    if (out >= 0 || e.code != code || strstr(spx_err_text(&e), word) == NULL) {
        printf("expected %d and '%s': %d %s\n", (int)code, word, (int)e.code, spx_err_text(&e));
        exit(1);
    }
    spx_err_clear(&e);
    close_all(n, file);
}

static const spx_merge_options plain = {0}, allow = {.allow_missing = 1};

static void check_row(const spx_arm *a, size_t row, const char *camera, int fiber)
{
    for (size_t k = 0; k < NWAVE; k++) {
        CHECK(a->flux[row * NWAVE + k] == flux_of(camera, fiber, k));
        CHECK(a->ivar[row * NWAVE + k] == 1 + fiber);
        CHECK(a->mask[row * NWAVE + k] == (k == 3 ? 0x80000001u : 0));
        CHECK(a->resolution[(row * NDIAG + 2) * NWAVE + k] == 1);
    }
}

static void check_missing(const spx_arm *a, size_t row)
{
    for (size_t k = 0; k < NWAVE; k++) {
        CHECK(a->flux[row * NWAVE + k] == 0 && a->ivar[row * NWAVE + k] == 0);
        CHECK(a->mask[row * NWAVE + k] == SPX_NODATA);
        CHECK(a->resolution[(row * NDIAG + 2) * NWAVE + k] == 0);
    }
}

static void test_fibers(void)
{
    const recipe r[] = {{"r1", 5, 5, 1, 5760, 7, 1, 1, 4, 100}, {"r1", 0, 5, 1, 5760, 7, 1, 1, 8, 100}};
    hid_t file[] = {make(&r[0]), make(&r[1])}, out = merge(2, file, plain, NULL);
    spx_frame f;
    CHECK(out >= 0 && spx_frame_read(out, &f, &e) == SPX_OK && f.nspec == 10);
    int64_t v[16];
    double d[16];
    CHECK(spx_table_get_i64(f.fibermap, "FIBER", v, &e) == SPX_OK && spx_table_find(f.fibermap, "MISSING_ARMS") < 0);
    CHECK(spx_table_get_f64(f.scores, "SUM_RAW_COUNT", d, &e) == SPX_OK);
    for (int i = 0; i < 10; i++) {
        check_row(&f.arm, (size_t)i, "r1", i);
        CHECK(f.fiber[i] == i && f.chi2pix[i * NWAVE] == i && v[i] == 1000 + i && d[i] == flux_of("r1", i, 0));
    }
    CHECK(f.model != NULL && f.model[1] == 5 + 1 + 0 + 1 && strcmp(f.camera, "r1") == 0);
    char text[80];
    CHECK(spx_cards_string(&f.header, "CAMERA", text, sizeof text) && strcmp(text, "r1") == 0);
    /* float64 in one input: float64 in the product */
    hid_t set = H5Dopen2(out, "/frame/flux", H5P_DEFAULT), type = H5Dget_type(set);
    CHECK(H5Tget_size(type) == 8);
    H5Tclose(type);
    H5Dclose(set);
    spx_frame_free(&f);
    close_all(2, file);
    H5Fclose(out);

    /* a gap: kept as it is, or filled and flagged */
    const recipe gap[] = {{"r1", 0, 2, 1, 5760, 7, 1, 0, 4, 100}, {"r1", 4, 2, 1, 5760, 7, 1, 0, 4, 100}};
    hid_t g[] = {make(&gap[0]), make(&gap[1])};
    size_t nmissing;
    out = merge(2, g, plain, &nmissing);
    CHECK(out >= 0 && nmissing == 0 && spx_frame_read(out, &f, &e) == SPX_OK && f.nspec == 4 && f.fiber[2] == 4);
    spx_frame_free(&f);
    H5Fclose(out);
    spx_merge_options wide = {.allow_missing = 1, .first = 0, .last = 8};
    out = merge(2, g, wide, &nmissing);
    CHECK(out >= 0 && nmissing == 4 && spx_frame_read(out, &f, &e) == SPX_OK && f.nspec == 8);
    char flag[8][4];
    CHECK(spx_table_get_str(f.fibermap, "MISSING_ARMS", 4, flag[0], &e) == SPX_OK);
    CHECK(spx_table_get_i64(f.fibermap, "FIBER", v, &e) == SPX_OK);
    CHECK(spx_table_get_i64(f.fibermap, "TARGETID", v + 8, &e) == SPX_OK);
    for (int i = 0; i < 8; i++) {
        int there = i < 2 || i == 4 || i == 5;
        CHECK(f.fiber[i] == i && v[i] == 1000 + i && v[8 + i] == (there ? 100 + i : -1));
        CHECK(strcmp(flag[i], there ? "" : "r") == 0 && f.pixmask_fraction[i * NWAVE] == !there);
        if (there)
            check_row(&f.arm, (size_t)i, "r1", i);
        else
            check_missing(&f.arm, (size_t)i);
    }
    spx_frame_free(&f);
    /* what was flagged stays flagged in the next merge */
    const recipe blue = {"b1", 0, 8, 1, 3600, 7, 1, 0, 4, 100};
    hid_t two[] = {out, make(&blue)};
    hid_t both = merge(2, two, plain, &nmissing);
    spx_spectra s;
    CHECK(both >= 0 && nmissing == 4 && spx_spectra_read(both, 0, &s, &e) == SPX_OK && s.nspec == 8);
    CHECK(spx_table_get_i64(s.fibermap, "TARGETID", v, &e) == SPX_OK && v[0] == 100 && v[7] == 107);
    CHECK(spx_table_get_str(s.fibermap, "MISSING_ARMS", 4, flag[0], &e) == SPX_OK && strcmp(flag[2], "r") == 0);
    spx_spectra_free(&s);
    H5Fclose(both);
    close_all(2, two);
    close_all(2, g);
    wide.allow_missing = 0;
    refused(2, gap, wide, SPX_EINPUT, "fibre 2 is in none");
    wide.last = 5;
    refused(2, gap, wide, SPX_EINPUT, "outside --fibers 0:5");
}

static void test_cameras(void)
{
    const recipe r[] = {{"b3", 0, 6, 1, 3600, 7, 1, 1, 4, 100},
                        {"r3", 0, 6, 1, 5760, 7, 1, 1, 4, 100},
                        {"z3", 0, 6, 1, 7520, 7, 1, 1, 4, 100}};
    hid_t file[] = {make(&r[0]), make(&r[1]), make(&r[2])};
    const hid_t order[] = {file[2], file[0], file[1]};
    size_t nmissing;
    hid_t out = merge(3, order, plain, &nmissing);
    spx_spectra s;
    double d[16];
    CHECK(out >= 0 && nmissing == 0 && spx_spectra_read(out, 1, &s, &e) == SPX_OK && s.nspec == 6 && s.narm == 3);
    for (size_t a = 0; a < 3; a++) {
        CHECK(s.arm[a].name[0] == "brz"[a] && s.arm[a].wavelength[0] == r[a].wave0);
        CHECK(strcmp(s.arm[a].unit, "electron/Angstrom") == 0);
        for (int i = 0; i < 6; i++)
            check_row(&s.arm[a], (size_t)i, r[a].camera, i);
    }
    CHECK(spx_table_get_f64(s.scores, "SUM_RAW_COUNT_B", d, &e) == SPX_OK && d[2] == flux_of("b", 2, 0));
    CHECK(spx_table_get_f64(s.scores, "SUM_RAW_COUNT_Z", d, &e) == SPX_OK && d[2] == flux_of("z", 2, 0));
    CHECK(spx_table_ncol(s.scores) == 3);
    /* a fibermap column that differs between cameras is kept of each */
    CHECK(spx_table_find(s.fibermap, "DELTA_B") >= 0 && spx_table_find(s.fibermap, "DELTA_R") >= 0);
    CHECK(spx_table_find(s.fibermap, "FIBER_R") < 0);
    char text[80];
    CHECK(!spx_cards_string(&s.header, "CAMERA", text, sizeof text));
    CHECK(spx_h5_exists(out, "/spectra/b/header") && spx_h5_exists(out, "/spectra/b/chi2pix"));
    spx_spectra_free(&s);
    H5Fclose(out);
    close_all(3, file);

    /* camera r lacks fibres 0 and 1, camera b 6 and 7 */
    const recipe part[] = {{"b3", 0, 6, 1, 3600, 7, 1, 0, 4, 100}, {"r3", 2, 6, 1, 5760, 7, 1, 0, 4, 100}};
    refused(2, part, plain, SPX_EINPUT, "--allow-missing");
    hid_t two[] = {make(&part[0]), make(&part[1])};
    out = merge(2, two, allow, &nmissing);
    CHECK(out >= 0 && nmissing == 4 && spx_spectra_read(out, 1, &s, &e) == SPX_OK && s.nspec == 8);
    char flag[8][4];
    int64_t v[8];
    CHECK(spx_table_get_str(s.fibermap, "MISSING_ARMS", 4, flag[0], &e) == SPX_OK);
    CHECK(spx_table_get_i64(s.fibermap, "TARGETID", v, &e) == SPX_OK);
    for (int i = 0; i < 8; i++) {
        CHECK(strcmp(flag[i], i < 2 ? "r" : i > 5 ? "b" : "") == 0 && v[i] == 100 + i);
        if (i > 5)
            check_missing(&s.arm[0], (size_t)i);
        else
            check_row(&s.arm[0], (size_t)i, "b3", i);
        if (i < 2)
            check_missing(&s.arm[1], (size_t)i);
        else
            check_row(&s.arm[1], (size_t)i, "r3", i);
    }
    spx_spectra_free(&s);
    /* a third camera later, flags kept */
    const recipe z = {"z3", 0, 8, 1, 7520, 7, 1, 0, 4, 100};
    hid_t more[] = {out, make(&z)}, all = merge(2, more, plain, &nmissing);
    CHECK(all >= 0 && nmissing == 4 && spx_spectra_read(all, 0, &s, &e) == SPX_OK && s.nspec == 8 && s.narm == 3);
    CHECK(spx_table_get_str(s.fibermap, "MISSING_ARMS", 4, flag[0], &e) == SPX_OK && strcmp(flag[7], "b") == 0);
    spx_spectra_free(&s);
    close_all(2, more);
    H5Fclose(all);
    close_all(2, two);

    /* no tables: fibre numbers become the fibermap */
    const recipe bare[] = {{"b3", 3, 2, 1, 3600, 0, 0, 0, 4, 0}, {"r3", 3, 2, 1, 5760, 0, 0, 0, 4, 0}};
    hid_t b2[] = {make(&bare[0]), make(&bare[1])};
    out = merge(2, b2, plain, NULL);
    CHECK(out >= 0 && spx_spectra_read(out, 0, &s, &e) == SPX_OK && s.nspec == 2 && s.scores == NULL);
    CHECK(spx_table_get_i64(s.fibermap, "FIBER", v, &e) == SPX_OK && v[0] == 3 && v[1] == 4);
    spx_spectra_free(&s);
    H5Fclose(out);
    close_all(2, b2);
}

static void test_rows(void)
{
    const recipe r[] = {{"r3", 0, 3, 1, 5760, 7, 1, 1, 4, 100}, {"r4", 1, 2, 1, 5760, 8, 1, 1, 4, 900}};
    hid_t file[] = {make(&r[0]), make(&r[1])};
    spx_merge_options rows = {.by = SPX_MERGE_ROWS};
    hid_t out = merge(2, file, rows, NULL);
    spx_frame f;
    int64_t v[8];
    CHECK(out >= 0 && spx_frame_read(out, &f, &e) == SPX_OK && f.nspec == 5 && f.model == NULL);
    CHECK(spx_table_get_i64(f.fibermap, "TARGETID", v, &e) == SPX_OK && v[2] == 102 && v[3] == 901);
    check_row(&f.arm, 2, "r3", 2);
    check_row(&f.arm, 3, "r4", 1);
    CHECK(strcmp(f.camera, "r") == 0);
    spx_frame_free(&f);
    H5Fclose(out);
    close_all(2, file);

    /* spectra of one arm and of two */
    const recipe s2[] = {{"b3", 0, 2, 1, 3600, 7, 1, 0, 4, 100},
                         {"r3", 0, 2, 1, 5760, 7, 1, 0, 4, 100},
                         {"r4", 0, 3, 1, 5760, 8, 1, 0, 4, 500}};
    hid_t a[] = {make(&s2[0]), make(&s2[1])}, c = make(&s2[2]);
    spx_merge_options cameras = {.by = SPX_MERGE_CAMERAS};
    hid_t both = merge(2, a, plain, NULL), one = merge(1, &c, cameras, NULL);
    CHECK(both >= 0 && one >= 0);
    const hid_t parts[] = {both, one};
    CHECK(merge(2, parts, plain, NULL) < 0 && e.code == SPX_EINPUT);
    spx_merge_options rows_allow = {.by = SPX_MERGE_ROWS, .allow_missing = 1, .allow_repeated = 1};
    size_t nmissing;
    out = merge(2, parts, rows_allow, &nmissing);
    spx_spectra s;
    /* the fibermap of the two-armed file has columns that the other lacks */
    CHECK(out < 0 && strstr(spx_err_text(&e), "DELTA_R") != NULL);
    spx_err_clear(&e);
    close_all(2, parts);
    close_all(2, a);
    H5Fclose(c);

    const recipe bare[] = {{"b3", 0, 2, 1, 3600, 0, 0, 0, 4, 0},
                           {"r3", 0, 2, 1, 5760, 0, 0, 0, 4, 0},
                           {"r4", 0, 3, 1, 5760, 0, 0, 0, 4, 0}};
    hid_t p[] = {make(&bare[0]), make(&bare[1])};
    c = make(&bare[2]);
    const hid_t joined[] = {merge(2, p, plain, NULL), merge(1, &c, cameras, NULL)};
    CHECK(joined[0] >= 0 && joined[1] >= 0);
    CHECK(merge(2, joined, plain, NULL) < 0 && strstr(spx_err_text(&e), "/spectra/b: is missing") != NULL);
    out = merge(2, joined, rows_allow, &nmissing);
    CHECK(out >= 0 && nmissing == 3 && spx_spectra_read(out, 1, &s, &e) == SPX_OK && s.nspec == 5);
    check_missing(&s.arm[0], 4);
    check_row(&s.arm[1], 4, "r4", 2);
    spx_spectra_free(&s);
    H5Fclose(out);
    close_all(2, joined);
    close_all(2, p);
    H5Fclose(c);
}

static void test_refusals(void)
{
    const recipe base = {"r1", 0, 4, 1, 5760, 7, 1, 0, 4, 100};
    recipe r[3] = {base, base, base};
    refused(2, r, plain, SPX_EINPUT, "fibre 0 is in A already");
    r[1].first = 4;
    r[1].wave0 = 5761;
    refused(2, r, plain, SPX_EINPUT, "B:/frame/wavelength: differs from A");
    r[1].wave0 = 5760;
    r[1].expid = 8;
    refused(2, r, plain, SPX_EINPUT, "B:/frame/header: is of another exposure");
    r[1] = base;
    r[1].camera = "b1";
    r[2].camera = "r1";
    refused(3, r, plain, SPX_EUSAGE, "--by");
    r[2].camera = "z2";
    refused(3, r, plain, SPX_EINPUT, "another spectrograph");
    r[2].camera = "";
    refused(3, r, (spx_merge_options){.by = SPX_MERGE_CAMERAS}, SPX_EINPUT, "no attribute camera");
    r[1].target = 200;
    refused(2, r, plain, SPX_EINPUT, "different exposures");
    r[1] = base;
    r[1].camera = "b1";
    refused(2, r, (spx_merge_options){.by = SPX_MERGE_FIBERS}, SPX_EINPUT, "camera b1");
    refused(2, r, (spx_merge_options){.by = SPX_MERGE_ROWS}, SPX_EINPUT, "camera b1");
    r[1] = base;
    r[1].first = 4;
    r[1].tables = 0;
    refused(2, r, plain, SPX_EINPUT, "B:/fibermap: is missing");

    /* a schema version that differs, or is newer */
    hid_t file[] = {make(&base), make(&base)};
    CHECK(spx_h5_set_str(file[1], "/frame", "version", "1.7", &e) == SPX_OK);
    CHECK(merge(2, file, plain, NULL) < 0 && strstr(spx_err_text(&e), "schema version 1.7") != NULL &&
          e.code == SPX_EINPUT);
    spx_err_clear(&e);
    CHECK(spx_h5_set_str(file[1], "/frame", "version", "9.0", &e) == SPX_OK);
    CHECK(merge(2, file, plain, NULL) < 0 && strstr(spx_err_text(&e), "newer") != NULL && e.code == SPX_EINPUT);
    spx_err_clear(&e);
    H5Ldelete(file[0], "/frame/ivar", H5P_DEFAULT);
    CHECK(merge(1, file, plain, NULL) < 0 && strstr(spx_err_text(&e), "/frame/ivar: is missing") != NULL);
    close_all(2, file);
    spx_err_clear(&e);
    hid_t empty = in_memory();
    CHECK(merge(1, &empty, plain, NULL) < 0 && e.code == SPX_EINPUT && strstr(spx_err_text(&e), "nothing") != NULL);
    H5Fclose(empty);
    spx_err_clear(&e);
}

int main(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    test_fibers();
    test_cameras();
    test_rows();
    test_refusals();
    return 0;
}
