/* Checks /psf in a file: version 2.0 comes back as it was written, a PSF without anything new is of version 1.0, and
 * what cannot be right is refused with its name. */
#include "products/psf_h5.h"

#include <math.h>
#include <string.h>

#include "../kernels/small_psf.h"
#include "check.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/write.h"

static hid_t file_in_memory(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(H5Pset_fapl_core(fapl, (size_t)1 << 16, 0) >= 0);
    const hid_t f = H5Fcreate("memory", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    CHECK(f >= 0 && H5Pclose(fapl) >= 0);
    return f;
}

static spx_psf *sample(void)
{
    const small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL);
    return p;
}

/* Version and kind of spot that a file says. */
static void check_version(hid_t f, const char *version, int has_type)
{
    char text[16];
    CHECK(spx_h5_attr_str(f, "/psf", "version", text, sizeof text, &e) == SPX_OK && strcmp(text, version) == 0);
    CHECK(spx_h5_has_attr(f, "/psf", "psftype") == has_type);
}

static void check_old(void)
{
    spx_psf *p = sample(), q;
    const hid_t f = file_in_memory();
    CHECK(spx_psf_write(f, p, &e) == SPX_OK);
    check_version(f, "1.0", 0);
    CHECK(spx_psf_read(f, &q, &e) == SPX_OK);
    CHECK(q.type == SPX_PSF_GAUSS_HERMITE && q.wave_range == NULL && q.valid_range == NULL && q.status == NULL &&
          q.bundle == NULL && q.fibre == NULL && q.order == NULL && q.x.range == NULL);
    CHECK(q.nspec == p->nspec && q.x.wmin == p->x.wmin && q.x.wmax == p->x.wmax && q.wmin == p->wmin);
    spx_psf_free(&q);
    spx_psf_free(p);
    spx_free(p);
    H5Fclose(f);
}

/* One value more than the one before: what every trace has. */
static spx_psf *new_sample(void)
{
    spx_psf *p = sample();
    const size_t n = p->nspec;
    double *range = spx_alloc2(n, 2, sizeof *range, NULL);
    p->valid_range = spx_alloc2(n, 2, sizeof *p->valid_range, NULL);
    p->status = spx_alloc(n, sizeof *p->status, NULL);
    p->bundle = spx_alloc(n, sizeof *p->bundle, NULL);
    p->fibre = spx_alloc(n, sizeof *p->fibre, NULL);
    p->order = spx_alloc(n, sizeof *p->order, NULL);
    CHECK(range && p->valid_range && p->status && p->bundle && p->fibre && p->order);
    for (size_t k = 0; k < n; k++) {
        range[2 * k] = 5000 + 100 * (double)k;
        range[2 * k + 1] = 5200 + 110 * (double)k;
        p->valid_range[2 * k] = 5010 + 100 * (double)k;
        p->valid_range[2 * k + 1] = k == 2 ? 0 : 5190 + 110 * (double)k;
        p->status[k] = (uint16_t)(1u << k);
        p->bundle[k] = (int32_t)(k / 3) - 1;
        p->fibre[k] = 4000000000u + (uint32_t)k;
        p->order[k] = -(int32_t)k;
    }
    spx_psf_set_wave_range(p, range);
    return p;
}

static int same(const spx_psf *p, const spx_psf *q)
{
    const size_t n = p->nspec;
    return q->nspec == n && memcmp(p->wave_range, q->wave_range, 2 * n * sizeof(double)) == 0 &&
           memcmp(p->valid_range, q->valid_range, 2 * n * sizeof(double)) == 0 &&
           memcmp(p->status, q->status, n * sizeof *p->status) == 0 &&
           memcmp(p->bundle, q->bundle, n * sizeof *p->bundle) == 0 &&
           memcmp(p->fibre, q->fibre, n * sizeof *p->fibre) == 0 &&
           memcmp(p->order, q->order, n * sizeof *p->order) == 0 && q->x.range == q->wave_range &&
           q->y.range == q->wave_range && q->x.wmin == 5000 && q->y.wmax == 5200 + 110 * (double)(n - 1) &&
           q->wmin == 5000 && q->wmax == q->y.wmax;
}

static void check_new(void)
{
    spx_psf *p = new_sample(), q, copy;
    const hid_t f = file_in_memory();
    CHECK(spx_psf_write(f, p, &e) == SPX_OK);
    check_version(f, "2.0", 1);
    CHECK(spx_psf_read(f, &q, &e) == SPX_OK);
    CHECK(same(p, &q));
    CHECK(spx_psf_copy(&q, &copy, &e) == SPX_OK);
    CHECK(same(p, &copy) && copy.wave_range != q.wave_range && copy.status != q.status);
    CHECK(spx_psf_require(&copy, SPX_PSF_RANGES, "the test", NULL, &e) == SPX_OK);
    CHECK(spx_psf_require(&copy, 0, "the test", "do so", &e) == SPX_EINPUT && strstr(spx_err_text(&e), "wave_range") &&
          strstr(spx_err_text(&e), "the test cannot take") && strstr(spx_err_text(&e), "do so"));
    spx_err_clear(&e);
    spx_psf_free(&copy);
    spx_psf_free(&q);
    spx_psf_free(p);
    spx_free(p);
    H5Fclose(f);
}

/* Only one of the new datasets: version 2.0, and the others stay absent. */
static void check_single(void)
{
    spx_psf *p = sample(), q;
    const hid_t f = file_in_memory();
    CHECK((p->status = spx_alloc(p->nspec, sizeof *p->status, NULL)) != NULL);
    p->status[1] = SPX_PSF_DEAD;
    CHECK(spx_psf_write(f, p, &e) == SPX_OK);
    check_version(f, "2.0", 1);
    CHECK(spx_psf_read(f, &q, &e) == SPX_OK);
    CHECK(q.status != NULL && q.status[0] == 0 && q.status[1] == SPX_PSF_DEAD && q.bundle == NULL &&
          q.wave_range == NULL);
    CHECK(spx_psf_require(&q, 0, "the test", NULL, &e) == SPX_OK);
    spx_psf_free(&q);
    spx_psf_free(p);
    spx_free(p);
    H5Fclose(f);
}

/* Files that cannot be right: `place` is replaced by these values. */
static void check_refused(const char *place, hid_t type, int ndim, const size_t *dims, const void *values,
                          const char *text)
{
    spx_psf *p = new_sample(), q;
    const hid_t f = file_in_memory();
    CHECK(spx_psf_write(f, p, &e) == SPX_OK);
    CHECK(H5Ldelete(f, place, H5P_DEFAULT) >= 0 && spx_h5_write(f, place, type, ndim, dims, values, &e) == SPX_OK);
    CHECK(spx_psf_read(f, &q, &e) == SPX_EINPUT);
    CHECK(strstr(spx_err_text(&e), place) != NULL && strstr(spx_err_text(&e), text) != NULL);
    spx_err_clear(&e);
    spx_psf_free(&q);
    spx_psf_free(p);
    spx_free(p);
    H5Fclose(f);
}

static void check_refusals(void)
{
    double range[14];
    int32_t bundle[7] = {0, 0, 1, 1, 0, 2, 2};
    const size_t two[2] = {7, 2}, wide[2] = {7, 3}, seven = 7, six = 6;
    double more[21] = {0};
    for (int k = 0; k < 14; k++)
        range[k] = 5000 + 10 * k;
    range[7] = range[6];
    check_refused("/psf/wave_range", H5T_NATIVE_DOUBLE, 2, two, range, "trace 3");
    range[7] = HUGE_VAL;
    check_refused("/psf/wave_range", H5T_NATIVE_DOUBLE, 2, two, range, "trace 3");
    check_refused("/psf/valid_range", H5T_NATIVE_DOUBLE, 2, two, range, "trace 3");
    check_refused("/psf/wave_range", H5T_NATIVE_DOUBLE, 2, wide, more, "");
    check_refused("/psf/bundle", H5T_NATIVE_INT32, 1, &seven, bundle, "never fall");
    check_refused("/psf/bundle", H5T_NATIVE_INT32, 1, &six, bundle, "");
    check_refused("/psf/order", H5T_NATIVE_INT32, 1, &six, bundle, "");

    spx_psf *p = new_sample(), q;
    const hid_t f = file_in_memory();
    CHECK(spx_psf_write(f, p, &e) == SPX_OK && spx_h5_set_str(f, "/psf", "psftype", "moffat", &e) == SPX_OK);
    CHECK(spx_psf_read(f, &q, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "'moffat'") != NULL);
    spx_err_clear(&e);
    spx_psf_free(&q);
    CHECK(spx_h5_set_str(f, "/psf", "psftype", "gauss-hermite", &e) == SPX_OK &&
          spx_h5_set_str(f, "/psf", "version", "3.0", &e) == SPX_OK);
    CHECK(spx_psf_read(f, &q, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "use a newer specpipe") != NULL);
    spx_err_clear(&e);
    spx_psf_free(&q);
    spx_psf_free(p);
    spx_free(p);
    H5Fclose(f);
}

int main(void)
{
    check_old();
    check_new();
    check_single();
    check_refusals();
    return 0;
}
