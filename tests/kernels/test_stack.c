/* Checks shift-and-stack against a plain triple loop over its definition, on the CPU or on the device
 * $SPX_TEST_DEVICE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/stack_options.h"
#include "stack_scene.h"

static spx_backend backend;

/* Does a run equal the plain loop? `tolerance` 0: 9 decimals of float64, 5 of float32. */
static spx_stack compare(const spx_traces *t, const spx_shifts *s, const spx_stack_options *o, double tolerance,
                         const char *what)
{
    spx_err e = {0};
    spx_stack out = {0};
    const double tol = tolerance > 0 ? tolerance : t->precision == 4 ? 5e-6 : 5e-10;
    int64_t t0 = INT64_MAX, end = INT64_MIN;
    for (size_t k = 0; k < s->nshift; k++)
        for (size_t j = 0; j < t->ntrace; j++) {
            int64_t first = (int64_t)t->offset[j] + s->shift[k * t->ntrace + j];
            int64_t after = first + (int64_t)(t->start[j + 1] - t->start[j]);
            t0 = first < t0 ? first : t0;
            end = after > end ? after : end;
        }
    if (o->has_t0)
        t0 = o->t0;
    size_t length = o->has_length ? o->length : (size_t)(end - t0);
    spx_status st = backend.stack(&backend, t, s, o, &out, &e);
    CHECK(st == SPX_OK, "%s: %s", what, spx_err_text(&e));
    if (st != SPX_OK)
        return out;
    CHECK(out.t0 == t0 && out.length == length && out.nshift == s->nshift,
          "%s: window %lld + %zu instead of %lld + %zu", what, (long long)out.t0, out.length, (long long)t0, length);
    double worst = 0;
    int wrong = 0;
    for (size_t k = 0; k < s->nshift && out.method != SPX_STACK_ARGMAX; k++) {
        double most = -INFINITY;
        for (size_t i = 0; i < length; i++) {
            double v = plain(t, s, k, t0 + (int64_t)i);
            if (out.method == SPX_STACK_STACK)
                worst = fmax(worst, fabs(get(t->precision, out.value, k * length + i) - v));
            most = v > most ? v : most;
        }
        if (out.method == SPX_STACK_MAX) {
            worst = fmax(worst, fabs(get(t->precision, out.value, k) - most));
            wrong += out.index[k] < t0 || out.index[k] >= t0 + (int64_t)length ||
                     fabs(plain(t, s, k, out.index[k]) - most) > 2 * tol;
        }
    }
    for (size_t i = 0; i < length && out.method == SPX_STACK_ARGMAX; i++) {
        double most = -INFINITY;
        for (size_t k = 0; k < s->nshift; k++)
            most = fmax(most, plain(t, s, k, t0 + (int64_t)i));
        worst = fmax(worst, fabs(get(t->precision, out.value, i) - most));
        wrong += out.index[i] < 0 || out.index[i] >= (int64_t)s->nshift ||
                 fabs(plain(t, s, (size_t)out.index[i], t0 + (int64_t)i) - most) > 2 * tol;
    }
    CHECK(worst <= tol, "%s: off by %g (seed %u)", what, worst, seed);
    CHECK(wrong == 0, "%s: %d maxima are elsewhere (seed %u)", what, wrong, seed);
    return out;
}

static void random_draws(void)
{
    for (int draw = 0; draw < 300; draw++) {
        int precision = draw % 2 == 0 ? 4 : 8;
        size_t length[5], ntrace = (size_t)within(1, 5), nshift = (size_t)within(1, 10);
        for (size_t j = 0; j < ntrace; j++)
            length[j] = (size_t)within(5, 10);
        spx_traces t = new_traces(precision, ntrace, length);
        spx_shifts s = new_shifts(precision, nshift, ntrace);
        fill(&t, &s, -5, 5);
        spx_stack_options o = {.method = (spx_stack_method)(draw % 3)};
        spx_stack out = compare(&t, &s, &o, 0, "random draw");
        spx_stack_free(&out);
        spx_traces_free(&t);
        spx_shifts_free(&s);
    }
}

/* A window that is given shows a part of the whole, or zeros around it. */
static void windows(int precision)
{
    size_t length[3] = {40, 333, 200};
    spx_traces t = new_traces(precision, 3, length);
    spx_shifts s = new_shifts(precision, 7, 3);
    fill(&t, &s, -50, 50);
    spx_stack_options o = {.nthreads = 2};
    spx_stack whole = compare(&t, &s, &o, 0, "whole window");
    for (int k = -40; k <= 40; k += 8) {
        spx_stack_options part = {.has_t0 = 1, .t0 = whole.t0 + k, .has_length = 1, .length = whole.length - 33};
        spx_stack out = compare(&t, &s, &part, 0, "part of the window");
        for (size_t r = 0; r < 7; r++)
            for (size_t i = 0; i < out.length; i++) {
                int64_t at = (int64_t)i + k;
                double v = at < 0 || at >= (int64_t)whole.length
                               ? 0.0
                               : get(precision, whole.value, r * whole.length + (size_t)at);
                double have = get(precision, out.value, r * out.length + i);
                if (have < v || have > v) {
                    CHECK(0, "window moved by %d: %g instead of %g at %zu", k, have, v, i);
                    break;
                }
            }
        spx_stack_free(&out);
        part.has_t0 = 0;
        out = compare(&t, &s, &part, 0, "length alone");
        spx_stack_free(&out);
        part.has_length = 0;
        part.has_t0 = 1;
        part.method = SPX_STACK_MAX;
        out = compare(&t, &s, &part, 0, "begin alone");
        spx_stack_free(&out);
        part.method = SPX_STACK_ARGMAX;
        out = compare(&t, &s, &part, 0, "begin alone, argmax");
        spx_stack_free(&out);
    }
    spx_stack_free(&whole);
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

static void accumulation(int precision)
{
    size_t length[40];
    for (size_t j = 0; j < 40; j++)
        length[j] = 100 + j;
    spx_traces t = new_traces(precision, 40, length);
    spx_shifts s = new_shifts(precision, 11, 40);
    fill(&t, &s, -20, 20);
    spx_stack_options o = {0};
    spx_stack once = compare(&t, &s, &o, precision == 4 ? 2e-5 : 0, "forty traces"), sum = {0};
    spx_err e = {0};
    spx_status st = backend.stack(&backend, &t, &s, &o, &sum, &e);
    for (int i = 0; i < 5 && st == SPX_OK; i++) {
        spx_stack more = {0};
        o.earlier = sum.value;
        st = backend.stack(&backend, &t, &s, &o, &more, &e);
        spx_stack_free(&sum);
        sum = more;
    }
    CHECK(st == SPX_OK, "accumulation: %s", spx_err_text(&e));
    for (size_t i = 0; i < once.length * 11 && st == SPX_OK; i++)
        if (!(fabs(get(precision, sum.value, i) - 6 * get(precision, once.value, i)) <
              (precision == 4 ? 1e-5 : 1e-12))) {
            CHECK(0, "six times %g is %g", get(precision, once.value, i), get(precision, sum.value, i));
            break;
        }
    spx_stack_free(&once);
    spx_stack_free(&sum);
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

/* Three traces with a pulse each that the first set of shifts brings together. */
static void fixed_case(int precision)
{
    static const int32_t shift[9] = {-8, -7, -6, -7, -6, -5, -6, -5, -4};
    const size_t length[3] = {11, 11, 11};
    spx_traces t = new_traces(precision, 3, length);
    spx_shifts s = new_shifts(precision, 3, 3);
    for (size_t j = 0; j < 3; j++) {
        put(precision, t.data, j * 11 + 7 - j, 1);
        put(precision, t.data, j * 11 + 9 - j, -1);
    }
    memcpy(s.shift, shift, sizeof shift);
    spx_stack_options o = {0};
    spx_stack out = compare(&t, &s, &o, 0, "fixed case");
    CHECK(out.t0 == -8 && out.length == 15, "fixed case: window %lld + %zu", (long long)out.t0, out.length);
    for (size_t k = 0; k < 3 && out.length == 15; k++)
        for (size_t i = 0; i < 15; i++) {
            /* pulses at -1, 0, 1 for k = 0, 1, 2, and two samples later */
            double want = i == 7 + k ? 3 : i == 9 + k ? -3 : 0;
            CHECK(fabs(get(precision, out.value, k * 15 + i) - want) < 1e-12, "fixed case: stack %zu at %zu", k, i);
        }
    spx_stack_free(&out);
    o.method = SPX_STACK_MAX;
    out = compare(&t, &s, &o, 0, "fixed case, max");
    for (size_t k = 0; k < 3 && out.index != NULL; k++)
        CHECK(get(precision, out.value, k) > 2.9 && out.index[k] == (int64_t)k - 1,
              "fixed case: maximum of %zu at %lld", k, (long long)out.index[k]);
    spx_stack_free(&out);
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

/* The maximum of negative values is negative, and of equal values the first is taken. */
static void negative_and_equal(int precision)
{
    const size_t length[2] = {500, 500};
    spx_traces t = new_traces(precision, 2, length);
    spx_shifts s = new_shifts(precision, 70, 2);
    for (size_t i = 0; i < 1000; i++)
        put(precision, t.data, i, i % 500 == 77 || i % 500 == 401 ? -1 : -3);
    for (int m = 1; m <= 2; m++) {
        spx_stack_options o = {.method = (spx_stack_method)m};
        spx_stack out = compare(&t, &s, &o, 0, "negative values");
        size_t n = m == 1 ? 70 : 500;
        for (size_t i = 0; i < n && out.index != NULL; i++) {
            CHECK(get(precision, out.value, i) < 0, "the maximum of negative values is %g",
                  get(precision, out.value, i));
            CHECK(out.index[i] == (m == 1 ? 77 : 0), "of equal maxima number %lld is taken", (long long)out.index[i]);
        }
        spx_stack_free(&out);
    }
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

/* Many traces in float32, and a few long ones: where the traces outnumber a block, and where atomics would miscount. */
static void large(void)
{
    const size_t many = 5000, every = 100;
    size_t *length = need(many, sizeof *length);
    for (size_t j = 0; j < many; j++)
        length[j] = 100;
    spx_traces t = new_traces(4, many, length);
    spx_shifts s = new_shifts(4, many, many);
    spx_stack_options o = {.nthreads = 2};
    spx_stack out = {0};
    spx_err e = {0};
    fill(&t, &s, -50, 50);
    CHECK(backend.stack(&backend, &t, &s, &o, &out, &e) == SPX_OK, "5000 traces, 5000 shifts: %s", spx_err_text(&e));
    double worst = 0;
    for (size_t k = 0; k < many && out.value != NULL; k += every)
        for (size_t i = 0; i < out.length; i++)
            worst = fmax(worst, fabs(get(4, out.value, k * out.length + i) - plain(&t, &s, k, out.t0 + (int64_t)i)));
    CHECK(worst < 5e-5, "5000 traces, 5000 shifts: off by %g", worst);
    spx_stack_free(&out);
    spx_traces_free(&t);
    spx_shifts_free(&s);
    spx_free(length);

    const size_t few[3] = {200, 200, 200};
    for (int precision = 4; precision <= 8; precision += 4) {
        t = new_traces(precision, 3, few);
        s = new_shifts(precision, 5, 3);
        fill(&t, &s, -30, 30);
        for (int m = 0; m < 3; m++) {
            o.method = (spx_stack_method)m;
            out = compare(&t, &s, &o, 0, "long traces");
            spx_stack_free(&out);
        }
        spx_traces_free(&t);
        spx_shifts_free(&s);
    }
}

/* Several chunks of samples and blocks of shifts; gaps between the traces; any number of threads. */
static void threads(int precision)
{
    const size_t length[5] = {9000, 1, 4097, 0, 130};
    spx_traces t = new_traces(precision, 5, length);
    spx_shifts s = new_shifts(precision, 75, 5);
    fill(&t, &s, -300, 300);
    t.offset[4] = 20000;
    for (int m = 0; m < 3; m++) {
        spx_stack_options o = {.method = (spx_stack_method)m, .nthreads = 1};
        spx_stack one = compare(&t, &s, &o, 0, "several chunks"), three = {0};
        spx_err e = {0};
        o.nthreads = 3;
        CHECK(backend.stack(&backend, &t, &s, &o, &three, &e) == SPX_OK, "%s", spx_err_text(&e));
        size_t n = m == 0 ? one.nshift * one.length : m == 1 ? one.nshift : one.length;
        CHECK(memcmp(one.value, three.value, n * (size_t)precision) == 0, "method %d depends on the threads", m);
        CHECK(m == 0 || memcmp(one.index, three.index, n * sizeof *one.index) == 0, "method %d: indices too", m);
        spx_stack_free(&one);
        spx_stack_free(&three);
    }
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

static void refused(const spx_traces *t, const spx_shifts *s, const spx_stack_options *o, spx_status want,
                    const char *message)
{
    spx_err e = {0};
    spx_stack out = {0};
    spx_status st = backend.stack(&backend, t, s, o, &out, &e);
    CHECK(st == want && strstr(spx_err_text(&e), message) != NULL, "'%s' expected: status %d, '%s'", message, st,
          spx_err_text(&e));
    spx_stack_free(&out);
}

static void mistakes(void)
{
    const size_t length[2] = {10, 10};
    spx_traces t = new_traces(4, 2, length), wrong;
    spx_shifts s = new_shifts(4, 2, 2), odd = s;
    spx_stack_options o = {0};
    float earlier[20] = {NAN};
    odd.precision = 8;
    refused(&t, &odd, &o, SPX_EINPUT, "have to be alike");
    odd = s;
    odd.ntrace = 1;
    refused(&t, &odd, &o, SPX_EINPUT, "shifts for 1");
    odd = s;
    odd.nshift = 0;
    refused(&t, &odd, &o, SPX_EINPUT, "no shifts");
    wrong = t;
    wrong.nsample = 19;
    refused(&wrong, &s, &o, SPX_EINPUT, "impossible");
    o.earlier = earlier;
    refused(&t, &s, &o, SPX_EINPUT, "the earlier stacks hold NaN");
    o.method = SPX_STACK_MAX;
    refused(&t, &s, &o, SPX_EINPUT, "only stacks");
    o = (spx_stack_options){.has_t0 = 1, .t0 = 10};
    refused(&t, &s, &o, SPX_EUSAGE, "empty");
    o = (spx_stack_options){.has_length = 1};
    refused(&t, &s, &o, SPX_EUSAGE, "out of range");
    o = (spx_stack_options){.has_t0 = 1, .t0 = INT64_MIN};
    refused(&t, &s, &o, SPX_EUSAGE, "endless");
    o = (spx_stack_options){0};
    put(4, s.weight, 3, INFINITY);
    refused(&t, &s, &o, SPX_EINPUT, "the weights hold NaN");
    put(4, s.weight, 3, 1);
    for (int m = 0; m < 3; m++) {
        o.method = (spx_stack_method)m;
        put(4, t.data, 4, 3e38);
        put(4, t.data, 14, 3e38);
        refused(&t, &s, &o, SPX_EINPUT, "beyond the range of float32");
        put(4, t.data, 14, NAN);
        refused(&t, &s, &o, SPX_EINPUT, "NaN or infinite");
    }
    spx_traces_free(&t);
    spx_shifts_free(&s);
}

/* A plane wave over a small array is found where it comes from. */
static void geometry(void)
{
    const double x[5] = {0, 3, -2, 1, 4}, y[5] = {0, 1, 2, -4, -3}, rate = 50;
    const size_t length[5] = {400, 400, 400, 400, 400};
    spx_traces t = new_traces(8, 5, length);
    spx_err e = {0};
    spx_stack_axis sx, sy;
    double *grid = NULL;
    size_t n = 0;
    t.position = need(10, sizeof *t.position);
    t.sampling_rate = rate;
    for (size_t j = 0; j < 5; j++) {
        t.position[2 * j] = x[j];
        t.position[2 * j + 1] = y[j];
        double arrival = 200 + rate * (0.12 * (x[j] - 1.2) + -0.08 * (y[j] + 0.8));
        for (size_t i = 0; i < 400; i++)
            put(8, t.data, j * 400 + i, exp(-0.5 * pow((double)i - arrival, 2)));
    }
    CHECK(spx_stack_axis_parse("-0.2:0.2:0.02", "--slowness", &sx, &e) == SPX_OK && sx.n == 21, "%s", spx_err_text(&e));
    sy = sx;
    CHECK(spx_stack_slowness_grid(&sx, &sy, &n, &grid, &e) == SPX_OK && n == 441, "%s", spx_err_text(&e));
    spx_shifts s = {0};
    spx_stack out = {0};
    spx_stack_options o = {.method = SPX_STACK_MAX};
    CHECK(spx_stack_geometry(&t, n, grid, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(backend.stack(&backend, &t, &s, &o, &out, &e) == SPX_OK, "%s", spx_err_text(&e));
    size_t best = 0;
    for (size_t k = 0; k < n; k++)
        best = get(8, out.value, k) > get(8, out.value, best) ? k : best;
    CHECK(fabs(s.grid[2 * best] - 0.12) < 1e-9 && fabs(s.grid[2 * best + 1] + 0.08) < 1e-9, "wave from %g, %g",
          s.grid[2 * best], s.grid[2 * best + 1]);
    CHECK(get(8, out.value, best) > 0.9 && llabs(out.index[best] - 200) <= 1, "beam %g at %lld",
          get(8, out.value, best), (long long)out.index[best]);
    spx_stack_free(&out);
    spx_shifts_free(&s);
    spx_free(grid);
    /* the same direction as velocity and azimuth */
    spx_stack_axis velocity = {5, 0, 1}, azimuth = {0, 90, 4};
    CHECK(spx_stack_velocity_grid(&velocity, &azimuth, &n, &grid, &e) == SPX_OK && n == 4, "%s", spx_err_text(&e));
    CHECK(fabs(grid[1] - 0.2) < 1e-12 && fabs(grid[0]) < 1e-12 && fabs(grid[2] - 0.2) < 1e-12, "north, then east");
    spx_free(grid);
    double far[2] = {1e12, 0};
    CHECK(spx_stack_geometry(&t, 1, far, &s, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "shift of") != NULL, "%s",
          spx_err_text(&e));
    spx_shifts_free(&s);
    static const char *const bad[] = {"", "1:2", "2:1:1", "1:2:0", "1:2:-1", "0:1:1e-9", "a", "1:2:3:4", "nan"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        spx_err none = {0};
        CHECK(spx_stack_axis_parse(bad[i], "--slowness", &sx, &none) == SPX_EUSAGE, "'%s' is taken", bad[i]);
    }
    spx_traces_free(&t);
}

int main(void)
{
    open_device(&backend, SPX_OP_STACK);
    random_draws();
    for (int precision = 4; precision <= 8; precision += 4) {
        windows(precision);
        accumulation(precision);
        fixed_case(precision);
        negative_and_equal(precision);
        threads(precision);
    }
    large();
    mistakes();
    geometry();
    spx_backend_close(&backend);
    return failures != 0;
}
