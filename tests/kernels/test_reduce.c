/* Checks reductions against a plain evaluation of their definitions, on the CPU or on the device $SPX_TEST_DEVICE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"
#include "reduce_plain.h"

static spx_backend backend;
static unsigned seed = 7;

static unsigned next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Every operation over [outer, n, inner], in `pieces` along the axis (the median in one). */
static void shape(size_t outer, size_t n, size_t inner, size_t pieces)
{
    double *data = need(outer * n * inner, sizeof *data), *piece = need(outer * n * inner, sizeof *piece);
    double *line = need(n, sizeof *line);
    for (size_t i = 0; i < outer * n * inner; i++) {
        /* many equal values, some huge ones that a plain sum loses, some that do not count */
        const unsigned kind = next() % 64;
        data[i] = kind == 0   ? NAN
                  : kind == 1 ? -INFINITY
                  : kind < 8  ? (double)(next() % 5)
                  : kind < 12 ? (next() % 2 ? 1e14 : -1e14)
                              : (double)next() * 0x1p-23 - 1;
        if (outer > 2 && i / (n * inner) == 1)
            data[i] = NAN; /* nothing counts */
    }
    for (int op = SPX_REDUCE_MINIMUM; op <= SPX_REDUCE_MEDIAN; op++) {
        spx_err e = {0};
        spx_reduce r;
        const size_t cut = op == SPX_REDUCE_MEDIAN ? 1 : pieces;
        spx_status st = spx_reduce_new((spx_reduce_op)op, 1, outer * inner, &r, &e);
        if (st == SPX_OK)
            spx_reduce_begin(&r, outer * inner);
        for (size_t p = 0; p < cut && st == SPX_OK; p++) {
            const size_t a0 = p * n / cut, a1 = (p + 1) * n / cut;
            size_t bad = SIZE_MAX;
            for (size_t o = 0; o < outer; o++)
                memcpy(piece + o * (a1 - a0) * inner, data + (o * n + a0) * inner, (a1 - a0) * inner * sizeof *data);
            st = backend.reduce(&backend, piece, outer, a1 - a0, inner, a0, 2, &r, &bad, &e);
        }
        if (st == SPX_OK)
            st = spx_reduce_end(&r, &e);
        CHECK(st == SPX_OK, "operation %d of %zu x %zu x %zu: %s", op, outer, n, inner, spx_err_text(&e));
        for (size_t i = 0; i < outer * inner && st == SPX_OK; i++) {
            double value;
            int64_t index;
            uint64_t count;
            expect(data + i / inner * n * inner + i % inner, n, inner, (spx_reduce_op)op, line, &value, &index, &count);
            const double tol = op == SPX_REDUCE_SUM || op == SPX_REDUCE_MEAN ? 4e-16 * fabs(value) + 1e-9 : 0;
            if (!(fabs(r.value[i] - value) <= tol) || r.index[i] != index || r.count[i] != count) {
                CHECK(0,
                      "operation %d of %zu x %zu x %zu, result %zu: %.17g [%lld] of %llu, should be %.17g [%lld] of "
                      "%llu (seed %u)",
                      op, outer, n, inner, i, r.value[i], (long long)r.index[i], (unsigned long long)r.count[i], value,
                      (long long)index, (unsigned long long)count, seed);
                break;
            }
        }
        spx_reduce_free(&r);
    }
    spx_free(data);
    spx_free(piece);
    spx_free(line);
}

/* What a plain sum loses, and what does not count. */
static void sums(void)
{
    const double lost[5] = {1, 1e100, 1, -1e100, 1e-30}, huge[3] = {1e308, 1e308, 1};
    spx_err e = {0};
    spx_reduce r;
    size_t bad = SIZE_MAX;
    CHECK(spx_reduce_new(SPX_REDUCE_SUM, 0, 1, &r, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_reduce_begin(&r, 1);
    CHECK(backend.reduce(&backend, lost, 1, 5, 1, 0, 1, &r, &bad, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_reduce_end(&r, &e) == SPX_OK && fabs(r.value[0] - 2) < 1e-12, "1 + 1e100 + 1 - 1e100 is %g", r.value[0]);
    spx_reduce_begin(&r, 1);
    CHECK(backend.reduce(&backend, huge, 1, 3, 1, 0, 1, &r, &bad, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_reduce_end(&r, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "float64") != NULL, "'%s'",
          spx_err_text(&e));
    spx_reduce_free(&r);
}

static void refusals(void)
{
    double data[60];
    for (int op = SPX_REDUCE_MINIMUM; op <= SPX_REDUCE_MEDIAN; op++)
        for (size_t inner = 1; inner <= 5; inner += 4) {
            spx_err e = {0};
            spx_reduce r;
            size_t bad = SIZE_MAX;
            for (size_t i = 0; i < 60; i++)
                data[i] = (double)i;
            data[41] = NAN;
            data[53] = INFINITY;
            CHECK(spx_reduce_new((spx_reduce_op)op, 0, 15, &r, &e) == SPX_OK, "%s", spx_err_text(&e));
            spx_reduce_begin(&r, 60 / 4 / inner * inner);
            spx_status st = backend.reduce(&backend, data, 60 / 4 / inner, 4, inner, 0, 2, &r, &bad, &e);
            CHECK(st == SPX_EINPUT && bad == 41 && strstr(spx_err_text(&e), "NaN") != NULL,
                  "operation %d: status %d at %zu: '%s'", op, st, bad, spx_err_text(&e));
            spx_reduce_free(&r);
        }
}

/* The median in several passes equals that of the sorted line. */
static void selection(void)
{
    enum { MOST = 3001 };
    static double data[MOST], line[MOST];
    spx_err e = {0};
    spx_reduce r;
    spx_reduce_select s;
    CHECK(spx_reduce_new(SPX_REDUCE_MEDIAN, 1, 1, &r, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_reduce_select_new(&s, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t n = 0; n <= MOST; n += n < 12 ? 1 : 427) {
        for (size_t i = 0; i < n; i++)
            data[i] = next() % 9 == 0   ? NAN
                      : next() % 3 == 0 ? (next() % 2 ? 0.0 : -0.0)
                                        : ldexp((double)next() * 0x1p-23 - 1, (int)(next() % 40) - 20);
        spx_reduce_begin(&r, 1);
        spx_reduce_select_begin(&s);
        for (int pass = 0; pass < SPX_SELECT_PASSES; pass++) {
            size_t bad;
            for (size_t i = 0; i < n; i += 100)
                CHECK(spx_reduce_select_add(&s, data + i, n - i < 100 ? n - i : 100, 1, &bad, &e) == SPX_OK, "%s",
                      spx_err_text(&e));
            spx_reduce_select_next(&s, &r);
        }
        double value;
        int64_t index;
        uint64_t count;
        expect(data, n, 1, SPX_REDUCE_MEDIAN, line, &value, &index, &count);
        CHECK(r.count[0] == count && fabs(r.value[0] - value) <= 0, "median of %zu values is %.17g of %llu, not %.17g",
              n, r.value[0], (unsigned long long)r.count[0], value);
    }
    size_t bad = 0;
    data[17] = INFINITY;
    spx_reduce_select_begin(&s);
    CHECK(spx_reduce_select_add(&s, data + 17, 1, 0, &bad, &e) == SPX_EINPUT, "infinity is taken");
    spx_reduce_select_free(&s);
    spx_reduce_free(&r);
}

int main(void)
{
    open_device(&backend, SPX_OP_REDUCE);
    static const size_t shapes[][4] = {{1, 1, 1, 1},    {1, 1000, 1, 7}, {3, 64, 1, 3},    {4, 17, 300, 2},
                                       {1, 50, 700, 5}, {70, 33, 2, 4},  {1, 70001, 1, 3}, {5, 1, 9, 1},
                                       {2, 300, 40, 3}, {900, 9, 1, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        shape(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
    sums();
    refusals();
    selection();
    spx_backend_close(&backend);
    return failures != 0;
}
