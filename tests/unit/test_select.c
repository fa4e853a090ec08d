/* Checks the selection of spectra and their grouping into stars: fibermaps, scores, pixels, redshift files, lists of
 * targets; rows of several files; cuts of arms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check.h"
#include "h5/file.h"
#include "h5/table.h"
#include "products/spectra_h5.h"
#include "run/select.h"

enum { N = 6, NWAVE = 20 };

static const int64_t targets[N] = {40, 10, 40, 30, 10, 50};
static char folder[] = "/tmp/spx-select-XXXXXX", name[8][64];

/* Spectra of one or two arms; flux is row + 10 * tag, ivar 1, so that it is the signal-to-noise ratio, too. */
static void write_spectra(const char *file, const char *arms, double wave0, int tag, spx_table *fibermap,
                          spx_table *scores)
{
    spx_output *out;
    spx_spectra s = {.nspec = N, .narm = strlen(arms), .fibermap = fibermap, .scores = scores};
    for (size_t a = 0; a < s.narm; a++) {
        spx_arm *m = &s.arm[a];
        m->name[0] = arms[a];
        m->nwave = NWAVE;
        m->wavelength = spx_alloc(NWAVE, sizeof *m->wavelength, &e);
        m->flux = spx_alloc2(N, NWAVE, sizeof *m->flux, &e);
        m->ivar = spx_alloc2(N, NWAVE, sizeof *m->ivar, &e);
        m->mask = spx_alloc2(N, NWAVE, sizeof *m->mask, &e);
        CHECK(m->wavelength && m->flux && m->ivar && m->mask);
        for (size_t i = 0; i < NWAVE; i++)
            m->wavelength[i] = wave0 + 100 * (double)a + (double)i;
        for (size_t i = 0; i < N * NWAVE; i++) {
            m->flux[i] = (double)(i / NWAVE) + 10 * tag;
            m->ivar[i] = 1;
        }
        /* pixels that do not count */
        m->flux[2 * NWAVE] = m->flux[2 * NWAVE + 1] = 1e6;
        m->mask[2 * NWAVE] = 1;
        m->ivar[2 * NWAVE + 1] = 0;
    }
    CHECK(spx_output_open(&out, file, 1, &e) == SPX_OK);
    CHECK(spx_spectra_write(spx_output_file(out), &s, 8, &e) == SPX_OK);
    CHECK(spx_output_commit(out, &e) == SPX_OK);
    spx_spectra_free(&s);
}

static spx_table *fibermap(int64_t expid)
{
    static const char type[N][4] = {"TGT", "TGT", "SKY", "TGT", "BAD", "TGT"};
    static const int32_t status[N] = {0, 1 << 3, 0, 1 << 20, 0, 1 << 2};
    static const int64_t desi[N] = {1ll << 61, 1, 1ll << 33, 1ll << 34, 0, 1ll << 60};
    int64_t exposure[N];
    for (int i = 0; i < N; i++)
        exposure[i] = expid + i;
    spx_table *t = spx_table_new(N, &e);
    CHECK(t != NULL && spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, targets, &e) == SPX_OK);
    CHECK(spx_table_add(t, "EXPID", H5T_NATIVE_INT64, NULL, exposure, &e) == SPX_OK);
    CHECK(spx_table_add_strings(t, "OBJTYPE", 4, type[0], &e) == SPX_OK);
    CHECK(spx_table_add(t, "FIBERSTATUS", H5T_NATIVE_INT32, NULL, status, &e) == SPX_OK);
    CHECK(spx_table_add(t, "DESI_TARGET", H5T_NATIVE_INT64, NULL, desi, &e) == SPX_OK);
    return t;
}

static spx_table *scores(void)
{
    static const float b[N] = {1, 9, 1, 1, 1, 1}, r[N] = {1, 1, 1, 8, NAN, 1};
    spx_table *t = spx_table_new(N, &e);
    CHECK(t != NULL && spx_table_add(t, "MEDIAN_COADD_SNR_B", H5T_NATIVE_FLOAT, NULL, b, &e) == SPX_OK);
    CHECK(spx_table_add(t, "MEDIAN_COADD_SNR_R", H5T_NATIVE_FLOAT, NULL, r, &e) == SPX_OK);
    return t;
}

/* The rows that a selection gives, as digits. */
static void check_rows(const spx_spectra_parts *p, const spx_selection *s, const char *want, int line)
{
    size_t *row = NULL, n = 0;
    char got[64] = "";
    if (spx_spectra_select(p, s, &row, &n, &e) != SPX_OK) {
        printf("line %d: %s\n", line, spx_err_text(&e));
        exit(1);
    }
    for (size_t i = 0; i < n && i < 60; i++)
        got[i] = (char)('0' + row[i]);
    if (strcmp(got, want) != 0) {
        printf("line %d: rows %s instead of %s\n", line, got, want);
        exit(1);
    }
    spx_free(row);
}
#define ROWS(want, ...) check_rows(&p, &(spx_selection){__VA_ARGS__}, want, __LINE__)

static void refused(const spx_spectra_parts *p, const spx_selection *s, spx_status want, const char *text)
{
    size_t *row = NULL, n;
    CHECK(spx_spectra_select(p, s, &row, &n, &e) == want && strstr(spx_err_text(&e), text) != NULL);
    spx_err_clear(&e);
    spx_free(row);
}

static void open_parts(spx_spectra_parts *p, spx_input *in, size_t n, const int *which, int exposures)
{
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        CHECK(spx_input_open(&in[i], name[which[i]], &e) == SPX_OK);
        CHECK(spx_spectra_parts_add(p, in[i].file, exposures, &e) == SPX_OK);
    }
}

static void close_parts(spx_spectra_parts *p, spx_input *in, size_t n)
{
    spx_spectra_parts_free(p);
    for (size_t i = 0; i < n; i++)
        spx_input_close(&in[i]);
}

static void selections(void)
{
    spx_spectra_parts p;
    spx_input in[1];
    static const uint8_t both[SPX_MAX_ARM] = {1, 1}, blue[SPX_MAX_ARM] = {1, 0};
    static const int64_t some[] = {50, 40, 7};
    int64_t id[] = {30, 40, 50};
    double z[] = {0.1, 2, -0.004};
    char type[3][16] = {"STAR", "QSO", "GALAXY"}, sub[3][32] = {"F", "", ""};
    const spx_redshifts stars = {.n = 3, .target = id, .z = z, .spectype = type, .subtype = sub};
    open_parts(&p, in, 1, (const int[]){0}, 0);
    ROWS("013", .rows = NULL);
    ROWS("012345", .all_fibers = 1);
    ROWS("2345", .all_fibers = 1, .rows = "2:");
    ROWS("025", .all_fibers = 1, .ntarget = 3, .target = some);
    ROWS("123", .all_fibers = 1, .has_expid = 1, .expid_min = 101, .expid_max = 103);
    ROWS("03", .objtypes = "MWS_ANY,STD_");
    ROWS("3", .objtypes = "STD_WD$");
    ROWS("1", .objtypes = "LRG");
    ROWS("5", .all_fibers = 1, .objtypes = "BGS");
    ROWS("35", .all_fibers = 1, .stars = &stars);
    ROWS("0235", .all_fibers = 1, .stars = &stars, .objtypes = "MWS,STD");
    /* signal-to-noise ratio from scores; of one arm; NaN is none */
    ROWS("13", .all_fibers = 1, .has_minsn = 1, .minsn = 5, .sn_arm = both);
    ROWS("1", .all_fibers = 1, .has_minsn = 1, .minsn = 5, .sn_arm = blue);
    refused(&p, &(spx_selection){.objtypes = "STD_,,"}, SPX_EUSAGE, "--objtypes");
    refused(&p, &(spx_selection){.objtypes = "STD_("}, SPX_EUSAGE, "regular expression");
    refused(&p, &(spx_selection){.objtypes = "STARS"}, SPX_EUSAGE, "no bit");
    refused(&p, &(spx_selection){.rows = "2:9"}, SPX_EUSAGE, "--rows");
    close_parts(&p, in, 1);
    /* from the pixels, without a fibermap */
    open_parts(&p, in, 1, (const int[]){1}, 0);
    ROWS("345", .has_minsn = 1, .minsn = 2.5, .sn_arm = both);
    refused(&p, &(spx_selection){.ntarget = 1, .target = some}, SPX_EINPUT, "TARGETID");
    refused(&p, &(spx_selection){.has_expid = 1}, SPX_EINPUT, "EXPID");
    refused(&p, &(spx_selection){.objtypes = "STD_"}, SPX_EINPUT, "DESI_TARGET");
    close_parts(&p, in, 1);
}

/* Exposures of stars as "rows/rows/..." */
static void check_groups(const spx_spectra_parts *p, int all, const char *rows, const char *want)
{
    size_t n = strlen(rows), row[32], nstar, *first = NULL;
    char got[64] = "", *at = got;
    for (size_t i = 0; i < n; i++)
        row[i] = (size_t)(rows[i] - 'a');
    CHECK(spx_spectra_group(p, all, n, row, &nstar, &first, &e) == SPX_OK && first[0] == 0 && first[nstar] == n);
    for (size_t k = 0; k < nstar; k++) {
        for (size_t i = first[k]; i < first[k + 1]; i++)
            *at++ = (char)('a' + row[i]);
        *at++ = '/';
    }
    *at = '\0';
    if (strcmp(got, want) != 0) {
        printf("%s: grouped as %s instead of %s\n", rows, got, want);
        exit(1);
    }
    spx_free(first);
}

/* Value of the first pixel of a row; arms: 0 where the row has none. */
static double value(const spx_spectra *s, size_t arm, size_t row)
{
    return s->arm[arm].ivar[row * NWAVE + NWAVE - 1] > 0 ? s->arm[arm].flux[row * NWAVE + NWAVE - 1] : 0;
}

static void parts(void)
{
    spx_spectra_parts p;
    spx_spectra s;
    spx_input in[4];
    /* b+r, then another exposure whose arms come in two files, b on other wavelengths */
    open_parts(&p, in, 3, (const int[]){0, 2, 3}, 1);
    CHECK(p.all.nspec == 2 * N && p.npart == 3 && p.part[2].first == N && p.all.fibermap->nrow == 2 * N);
    CHECK(p.all.narm == 3 && strcmp(p.all.arm[2].name, "b2") == 0 && strcmp(p.base[2], "b") == 0);
    CHECK(p.all.scores == NULL); /* not all have them */
    const size_t row[7] = {7, 1, 0, 8, 9, 1, 11};
    CHECK(spx_spectra_parts_read(&p, 7, row, &s, &e) == SPX_OK && s.nspec == 7 && s.narm == 3);
    for (size_t k = 0; k < 7; k++) {
        double old = row[k] < N ? (double)row[k] + 10 : 0, b2 = row[k] < N ? 0 : (double)(row[k] - N) + 20;
        double r = row[k] < N ? (double)row[k] + 10 : (double)(row[k] - N) + 30;
        CHECK(value(&s, 0, k) == old && value(&s, 1, k) == r && value(&s, 2, k) == b2);
    }
    CHECK(s.arm[1].mask[3 * NWAVE] == 1 && s.arm[1].mask[0] == 0);
    spx_spectra_free(&s);
    /* stars in order of their first spectrum, exposures in theirs */
    check_groups(&p, 0, "abcdefghijkl", "acgi/behk/dj/fl/");
    check_groups(&p, 0, "lkfa", "lf/k/a/");
    check_groups(&p, 1, "cab", "cab/");
    close_parts(&p, in, 3);
    /* without a fibermap: by place */
    open_parts(&p, in, 2, (const int[]){1, 1}, 1);
    CHECK(p.all.nspec == 2 * N && p.all.narm == 2);
    check_groups(&p, 0, "abhg", "ag/bh/");
    close_parts(&p, in, 2);
    /* one of their arms again: further rows, no exposures */
    open_parts(&p, in, 2, (const int[]){1, 1}, 0);
    CHECK(p.all.nspec == 2 * N && p.all.narm == 2);
    close_parts(&p, in, 2);
    /* many rows that are read in blocks, forwards and backwards */
    open_parts(&p, in, 1, (const int[]){0}, 0);
    size_t *many = spx_alloc(5000, sizeof *many, &e);
    CHECK(many != NULL);
    for (size_t i = 0; i < 5000; i++)
        many[i] = i % 7 == 3 ? 5 - i % N : i % N;
    CHECK(spx_spectra_parts_read(&p, 5000, many, &s, &e) == SPX_OK);
    for (size_t i = 0; i < 5000; i++)
        CHECK(value(&s, 0, i) == (double)many[i] + 10);
    spx_spectra_free(&s);
    spx_free(many);
    /* what does not fit */
    CHECK(spx_input_open(&in[1], name[1], &e) == SPX_OK);
    CHECK(spx_spectra_parts_add(&p, in[1].file, 0, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "fibermap") != NULL);
    spx_err_clear(&e);
    CHECK(spx_spectra_parts_add(&p, in[1].file, 1, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "fibermap") != NULL);
    spx_err_clear(&e);
    close_parts(&p, in, 2);
}

static void texts(void)
{
    static const char *const given[] = {"5"}, *const bad[] = {"x"};
    static const char *const wrong[] = {"12x\n", "# none\n"}, *const message[] = {"12x", "holds no TARGETID"};
    size_t n;
    int64_t *id;
    FILE *f = fopen(name[4], "w");
    CHECK(f != NULL);
    fputs("# targets\n 39627000001000 \n\n-7\r\n", f);
    for (int i = 0; i < 300; i++)
        fprintf(f, "%d\n", i);
    fclose(f);
    CHECK(spx_targets_collect(1, given, name[4], &n, &id, &e) == SPX_OK && n == 303 && id[0] == 5 &&
          id[1] == 39627000001000 && id[2] == -7 && id[302] == 299);
    spx_free(id);
    CHECK(spx_targets_collect(1, given, NULL, &n, &id, &e) == SPX_OK && n == 1 && id[0] == 5);
    spx_free(id);
    for (int k = 0; k < 2; k++) {
        CHECK((f = fopen(name[4], "w")) != NULL);
        fputs(wrong[k], f);
        fclose(f);
        CHECK(spx_targets_collect(0, NULL, name[4], &n, &id, &e) == SPX_EINPUT &&
              strstr(spx_err_text(&e), message[k]) != NULL);
        spx_err_clear(&e);
        spx_free(id);
    }
    CHECK(spx_targets_collect(0, NULL, "/nowhere/at/all", &n, &id, &e) == SPX_EINPUT);
    spx_err_clear(&e);
    CHECK(spx_targets_collect(1, bad, NULL, &n, &id, &e) == SPX_EUSAGE);
    spx_err_clear(&e);
    spx_free(id);
}

/* A target that the redshift file lacks, and one whose redshift is not finite, have none. */
static void redshifts(void)
{
    int64_t target[] = {10, 30, 40};
    double z[] = {1e-4, HUGE_VAL, -2e-4}, got[N];
    char type[3][16] = {"STAR", "QSO", "STAR"}, sub[3][32] = {"G", "", "K"};
    const spx_redshifts r = {3, target, z, type, sub};
    const spx_spectra s = {.nspec = N, .fibermap = fibermap(100)};
    const size_t row[] = {0, 1, 3, 5};
    spx_table *t = NULL;
    CHECK(spx_redshifts_columns(&r, &s, 4, row, &t, &e) == SPX_OK);
    CHECK(spx_table_get_f64(t, "RR_Z", got, &e) == SPX_OK);
    CHECK(got[0] == -2e-4 && got[1] == 1e-4 && isnan(got[2]) && isnan(got[3]));
    spx_table_free(t);
    spx_table_free(s.fibermap);
}

/* Pixels FIRST ... FIRST+LEFT-1 of an arm alone: every value is that of the file, rows in any order and twice, a row
 * that the file lacks without information. */
static void cut(void)
{
    enum { FIRST = 3, LEFT = 9, NDIAG = 3 };
    spx_output *out;
    spx_spectra all = {.nspec = N, .narm = 1}, s;
    spx_spectra_parts p;
    spx_input in[2];
    const size_t row[] = {4, 1, 2, 3, 1, 9};
    spx_arm *m = &all.arm[0];
    m->name[0] = 'b';
    m->nwave = NWAVE;
    m->ndiag = NDIAG;
    m->wavelength = spx_alloc(NWAVE, sizeof *m->wavelength, &e);
    m->flux = spx_alloc2(N, NWAVE, sizeof *m->flux, &e);
    m->ivar = spx_alloc2(N, NWAVE, sizeof *m->ivar, &e);
    m->mask = spx_alloc2(N, NWAVE, sizeof *m->mask, &e);
    m->resolution = spx_alloc2(N, NDIAG * NWAVE, sizeof *m->resolution, &e);
    CHECK(m->wavelength && m->flux && m->ivar && m->mask && m->resolution);
    for (size_t i = 0; i < NWAVE; i++)
        m->wavelength[i] = 4000 + (double)i;
    for (size_t i = 0; i < N * NWAVE; i++) {
        m->flux[i] = (double)i;
        m->ivar[i] = 1000 + (double)i;
        m->mask[i] = 2000 + (uint32_t)i;
    }
    for (size_t i = 0; i < N * NDIAG * NWAVE; i++)
        m->resolution[i] = 3000 + (double)i;
    CHECK(spx_output_open(&out, name[6], 1, &e) == SPX_OK);
    CHECK(spx_spectra_write(spx_output_file(out), &all, 8, &e) == SPX_OK && spx_output_commit(out, &e) == SPX_OK);
    write_spectra(name[7], "r", 4100, 3, NULL, NULL);

    open_parts(&p, in, 2, (const int[]){6, 7}, 1);
    p.all.nspec = 2 * N; /* as if the second file's rows were further ones */
    p.part[1].first = N;
    p.with_resolution = 1;
    const size_t bytes = spx_spectra_parts_row_bytes(&p);
    CHECK(spx_spectra_parts_cut(&p, 0, 4100, 4200) == 0 && p.all.arm[0].nwave == NWAVE);
    CHECK(spx_spectra_parts_cut(&p, 0, 4000 + FIRST - 0.5, 4000 + FIRST + LEFT - 1) == LEFT);
    CHECK(spx_spectra_parts_row_bytes(&p) < bytes);
    CHECK(spx_spectra_parts_read(&p, 6, row, &s, &e) == SPX_OK);
    m = &s.arm[0];
    CHECK(m->nwave == LEFT && m->wavelength[0] == 4000 + FIRST && m->wavelength[LEFT - 1] == 4000 + FIRST + LEFT - 1);
    for (size_t k = 0; k < 6; k++)
        for (size_t i = 0; i < LEFT; i++) {
            const size_t at = row[k] * NWAVE + FIRST + i;
            CHECK(m->flux[k * LEFT + i] == (k < 5 ? (double)at : 0));
            CHECK(m->ivar[k * LEFT + i] == (k < 5 ? 1000 + (double)at : 0));
            CHECK(m->mask[k * LEFT + i] == (k < 5 ? 2000 + at : 0));
            for (size_t d = 0; d < NDIAG && k < 5; d++)
                CHECK(m->resolution[(k * NDIAG + d) * LEFT + i] ==
                      3000 + (double)((row[k] * NDIAG + d) * NWAVE + FIRST + i));
        }
    CHECK(s.arm[1].nwave == NWAVE && s.arm[1].flux[5 * NWAVE] == 33);
    spx_spectra_free(&s);
    spx_spectra_free(&all);
    close_parts(&p, in, 2);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    for (int i = 0; i < 8; i++)
        snprintf(name[i], sizeof name[i], "%s/%d", folder, i);
    write_spectra(name[0], "br", 4000, 1, fibermap(100), scores());
    write_spectra(name[1], "br", 4000, 0, NULL, NULL);
    write_spectra(name[2], "b", 4000.5, 2, fibermap(200), NULL);
    write_spectra(name[3], "r", 4100, 3, fibermap(200), NULL);
    selections();
    parts();
    cut();
    texts();
    redshifts();
    for (int i = 0; i < 8; i++)
        unlink(name[i]);
    rmdir(folder);
    return 0;
}
