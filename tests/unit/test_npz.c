/* Checks NumPy archives: types, orders, shapes; members that are no numeric arrays; damage of every kind; invalid
 * networks. */
#include "../helpers/mock_npz.h"

#include <math.h>

#include "../kernels/check.h"
#include "base/mem.h"
#include "convert/payne.h"

static spx_status parse(mock_npz *m, spx_npz *z, spx_err *e)
{
    *e = (spx_err){0};
    return spx_npz_parse("a.npz", m->data, mock_npz_finish(m), z, e);
}

static void values(int packed)
{
    static mock_npz m;
    static const double f8[6] = {1, 2, 3, 4, 5, 6e300};
    static const float f4[6] = {1, 2, 3, 4, 5, -6};
    static const int8_t i1[3] = {-1, 2, 127};
    static const uint16_t u2[2] = {65535, 1};
    static const int64_t i8[2] = {-5, 1ll << 40};
    spx_npz z;
    spx_err e;
    size_t any[3] = {0}, two[2] = {2, 0}, wrong[2] = {3, 0};
    m = (mock_npz){.packed = packed};
    mock_npz_array(&m, "c", "<f8", 0, "(2, 3)", f8, sizeof f8);
    mock_npz_array(&m, "f", "<f4", 1, "(2, 3)", f4, sizeof f4);
    mock_npz_array(&m, "i1", "|i1", 0, "(3,)", i1, sizeof i1);
    mock_npz_array(&m, "u2", "<u2", 0, "(2,)", u2, sizeof u2);
    mock_npz_array(&m, "i8", "<i8", 0, "(2,)", i8, sizeof i8);
    mock_npz_array(&m, "one", "<f8", 0, "()", f8, 8);
    mock_npz_array(&m, "none", "<f8", 0, "(0, 7)", f8, 0);
    mock_npz_array(&m, "object", "|O", 0, "(2,)", f8, 16);
    mock_npz_array(&m, "text", "<U3", 0, "(1,)", f8, 12);
    mock_npz_array(&m, "big", ">f8", 0, "(1,)", f8, 8);
    mock_npz_array(&m, "deep", "<f8", 0, "(1, 1, 1, 1, 1)", f8, 8);
    CHECK(parse(&m, &z, &e) == SPX_OK && z.n == 11, "%s", spx_err_text(&e));
    const spx_npz_array *a = spx_npz_find(&z, "a.npz", "c", 2, two, &e);
    CHECK(a && two[1] == 3 && a->value[4] == 5 && a->value[5] == 6e300, "c");
    a = spx_npz_find(&z, "a.npz", "f", 2, any, &e);
    CHECK(a && any[0] == 2 && a->value[0] == 1 && a->value[1] == 3 && a->value[2] == 5 && a->value[3] == 2 &&
              a->value[5] == -6,
          "order of f");
    any[0] = 0;
    a = spx_npz_find(&z, "a.npz", "i1", 1, any, &e);
    CHECK(a && a->value[0] == -1 && a->value[2] == 127, "i1");
    any[0] = 0;
    a = spx_npz_find(&z, "a.npz", "u2", 1, any, &e);
    CHECK(a && a->value[0] == 65535, "u2");
    any[0] = 0;
    a = spx_npz_find(&z, "a.npz", "i8", 1, any, &e);
    CHECK(a && a->value[0] == -5 && a->value[1] == 0x1p40, "i8");
    a = spx_npz_find(&z, "a.npz", "one", 0, any, &e);
    CHECK(a && a->n == 1 && a->value[0] == 1, "one");
    static const char *const no[] = {"none", "object", "text", "big", "deep", "absent"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        any[0] = any[1] = 0;
        e = (spx_err){0};
        CHECK(!spx_npz_find(&z, "a.npz", no[i], i == 0 ? 2 : 1, any, &e) && e.code == SPX_EINPUT, "%s", no[i]);
    }
    e = (spx_err){0};
    CHECK(!spx_npz_find(&z, "a.npz", "c", 2, wrong, &e) && strstr(spx_err_text(&e), "shape"), "wrong shape: %s",
          spx_err_text(&e));
    static const struct {
        const char *name, *why;
    } odd[] = {{"object", "a.npz: object is of type |O, wanted are numbers of the shape (n,)"},
               {"big", "a.npz: big is of type >f8, wanted are numbers"},
               {"deep", "a.npz: deep is of more than 4 dimensions, wanted"},
               {"absent",
                "a.npz: there is no array absent: the archive has c (2, 3), f (2, 3), i1 (3,), u2 (2,), i8 (2,), "
                "one (), none (n, 7), object of type |O and 3 more"}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        any[0] = 0;
        e = (spx_err){0};
        CHECK(!spx_npz_find(&z, "a.npz", odd[i].name, 1, any, &e) &&
                  strncmp(spx_err_text(&e), odd[i].why, strlen(odd[i].why)) == 0,
              "%s", spx_err_text(&e));
    }
    spx_npz_free(&z);
}

static void refused(const char *what, const char *why, mock_npz *m)
{
    spx_npz z;
    spx_err e;
    CHECK(parse(m, &z, &e) == SPX_EINPUT && strstr(spx_err_text(&e), why), "%s: %s", what, spx_err_text(&e));
    spx_npz_free(&z);
}

static void damage(void)
{
    static mock_npz m;
    static const double x[4] = {1, 2, 3, (double)NAN};
    spx_npz z;
    spx_err e = {0};
    size_t any[1] = {0};
    for (int packed = 0; packed < 2; packed++) {
        m = (mock_npz){.packed = packed};
        mock_npz_array(&m, "x", "<f8", 0, "(4,)", x, sizeof x);
        CHECK(parse(&m, &z, &e) == SPX_OK, "%s", spx_err_text(&e));
        CHECK(!spx_npz_find(&z, "a.npz", "x", 1, any, &e) && strstr(spx_err_text(&e), "not finite"), "NaN: %s",
              spx_err_text(&e));
        spx_npz_free(&z);
        for (size_t cut = 0; cut < m.size; cut++) { /* an end that is missing is always seen */
            e = (spx_err){0};
            CHECK(spx_npz_parse("a.npz", m.data, cut, &z, &e) == SPX_EINPUT, "%zu bytes of %zu", cut, m.size);
            spx_npz_free(&z);
        }
        m.data[60] ^= 1; /* in the header of the array, or what it was packed to */
        e = (spx_err){0};
        CHECK(spx_npz_parse("a.npz", m.data, m.size, &z, &e) == SPX_EINPUT, "a bit that has changed");
        spx_npz_free(&z);
    }
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(5,)", x, sizeof x);
    refused("too short", "cut off", &m);
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(99999999999, 99999999999)", x, sizeof x);
    refused("overflow", "shape", &m);
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(-1,)", x, sizeof x);
    refused("negative", "shape", &m);
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(1", x, sizeof x);
    refused("no bracket", "shape", &m);
    m = (mock_npz){0};
    mock_npz_member(&m, "x.npy", (const uint8_t *)"no array at all", 15);
    refused("no array", "no array of NumPy", &m);
    /* a header that ends within the type, as long as one may be */
    static uint8_t npy[10 + 1023];
    memset(npy, ' ', sizeof npy);
    memcpy(npy, "\x93NUMPY\1\0", 8);
    mock_npz_put(npy + 8, 2, sizeof npy - 10);
    memcpy(npy + sizeof npy - 9, "'descr':'", 9);
    m = (mock_npz){0};
    mock_npz_member(&m, "x.npy", npy, sizeof npy);
    CHECK(parse(&m, &z, &e) == SPX_OK && z.n == 1 && z.array[0].value == NULL, "end within the type: %s",
          spx_err_text(&e));
    spx_npz_free(&z);
    /* arrays that fit one by one, but not together: a byte becomes eight */
    static const uint8_t many[100000];
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "|u1", 0, "(100000,)", many, sizeof many);
    mock_npz_array(&m, "y", "|u1", 0, "(100000,)", many, sizeof many);
    spx_mem_limit((size_t)1 << 20);
    CHECK(parse(&m, &z, &e) == SPX_EIO && strstr(spx_err_text(&e), "a.npz: needs more than 1 MiB"), "two arrays: %s",
          spx_err_text(&e));
    spx_npz_free(&z);
    spx_mem_limit(0);
    /* a bomb: it says that it inflates to 4 GB */
    m = (mock_npz){.packed = 1};
    mock_npz_array(&m, "x", "<f8", 0, "(4,)", x, sizeof x);
    mock_npz_put(m.list + 24, 4, 0xfffffff0u);
    refused("bomb", "larger than it can be", &m);
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(4,)", x, sizeof x);
    mock_npz_put(m.list + 10, 2, 12);
    refused("method", "method 12", &m);
    m = (mock_npz){0};
    mock_npz_array(&m, "x", "<f8", 0, "(4,)", x, sizeof x);
    mock_npz_put(m.list + 42, 4, 0x7fffffff);
    refused("offset", "not where it should be", &m);
}

/* A network of two inputs, two neurons and three pixels, in which one number is wrong. */
static void networks(void)
{
    static const struct {
        const char *array;
        size_t element;
        double value;
        const char *why;
    } wrong[] = {{"w_array_0", 3, 1e300, "a.npz: element 3 of w_array_0, 1e+300, is beyond"},
                 {"w_array_1", 5, (double)NAN, "a.npz: element 5 of w_array_1 is not finite"},
                 {"b_array_1", 2, -1e300, "a.npz: element 2 of b_array_1, -1e+300 with"},
                 {"x_min", 1, (double)NAN, "a.npz: element 1 of x_min is not finite"},
                 {"x_max", 0, -2, "a.npz: x_min and x_max of input 0 (a)"},
                 {"", 0, 0, ""}};
    const spx_payne_label label[2] = {{"a", 1, (double)NAN}, {"b", 1, (double)NAN}};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        double w0[4] = {1, 2, 3, 4}, b0[2] = {1, 2}, w1[6] = {1, 2, 3, 4, 5, 6}, b1[3] = {1, 2, 3}, lo[2] = {0},
               hi[2] = {1, 1};
        spx_npz_array a[] = {{"w_array_0", "<f8", 2, {2, 2}, 4, w0}, {"b_array_0", "<f8", 1, {2}, 2, b0},
                             {"w_array_1", "<f8", 2, {3, 2}, 6, w1}, {"b_array_1", "<f8", 1, {3}, 3, b1},
                             {"x_min", "<f8", 1, {2}, 2, lo},        {"x_max", "<f8", 1, {2}, 2, hi}};
        const spx_npz z = {sizeof a / sizeof *a, a};
        spx_network net = {0};
        spx_err e = {0};
        for (size_t i = 0; i < z.n; i++)
            if (strcmp(a[i].name, wrong[k].array) == 0)
                a[i].value[wrong[k].element] = wrong[k].value;
        spx_status st = spx_payne_network(&z, "a.npz", 2, label, &net, &e);
        CHECK(st == (wrong[k].why[0] ? SPX_EINPUT : SPX_OK) &&
                  strncmp(spx_err_text(&e), wrong[k].why, strlen(wrong[k].why)) == 0,
              "%s: %s", wrong[k].array, spx_err_text(&e));
        spx_nn_free(&net.nn);
    }
}

/* Archives that are no network: which arrays there are, in which shapes, and which are wanted. */
static void odd_networks(void)
{
    static double v[30] = {1};
    const spx_payne_label label[2] = {{"a", 1, (double)NAN}, {"b", 1, (double)NAN}};
    static const struct {
        spx_npz_array a[4];
        const char *why;
    } odd[] = {
        {{{"W1", "<f8", 2, {5, 2}, 10, v}, {"B1", "<f8", 1, {5}, 5, v}},
         "a.npz: there is no array w_array_0, the weights of a layer, neurons times inputs, or pixels times these: the "
         "archive has W1 (5, 2), B1 (5,)"},
        {{{"w_array_0", "<f8", 2, {5, 2}, 10, v}, {"b_array_0", "<f8", 1, {5}, 5, v}},
         "a.npz: there is no array w_array_1"},
        {{{"w_array_0", "<f8", 2, {2, 5}, 10, v}, {"b_array_0", "<f8", 1, {5}, 5, v}},
         "a.npz: w_array_0 is for 5 inputs, but there are 2: its shape, neurons times inputs, is (2, 5): if these are "
         "inputs times neurons, transpose it"},
        {{{"w_array_0", "<f8", 1, {10}, 10, v}}, "a.npz: w_array_0 has the shape (10,), wanted is (n, n)"},
        {{{"w_array_0", "<f2", 0, {0}, 0, NULL}},
         "a.npz: w_array_0 is of type <f2, wanted are numbers of the shape (n, n)"},
        {{{"w_array_0", "<f8", 3, {5, 3, 2}, 30, v}, {"b_array_0", "<f8", 2, {3, 5}, 15, v}},
         "a.npz: w_array_0 is (5, 3, 2) and b_array_0 (3, 5): networks of 5 pixels with 2 inputs want the shapes (5, "
         "neurons, 2) and (5, neurons)"},
        {{{"w_array_0", "<f8", 3, {5, 3, 2}, 30, v}}, "a.npz: w_array_0 is (5, 3, 2) and b_array_0 absent"},
        {{{"", "", 0, {0}, 0, NULL}},
         "a.npz: there is no array w_array_0, the weights of a layer, neurons times inputs, "
         "or pixels times these: the archive has no arrays"}};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        spx_npz_array a[4];
        spx_npz z = {0, a};
        memcpy(a, odd[k].a, sizeof a);
        while (z.n < 4 && a[z.n].name[0] != '\0')
            z.n++;
        spx_network net = {0};
        spx_payne_pixels pixels;
        spx_err e = {0};
        spx_status st = spx_payne_is_of_pixels(&z) ? spx_payne_find_pixels(&z, "a.npz", 2, label, &pixels, &e)
                                                   : spx_payne_network(&z, "a.npz", 2, label, &net, &e);
        CHECK(st == SPX_EINPUT && strncmp(spx_err_text(&e), odd[k].why, strlen(odd[k].why)) == 0, "%s",
              spx_err_text(&e));
    }
}

int main(void)
{
    values(0);
    values(1);
    damage();
    networks();
    odd_networks();
    return failures != 0;
}
