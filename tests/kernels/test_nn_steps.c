/* Checks the training steps of a network, on the CPU or the device $SPX_TEST_DEVICE, against plain loops in double
 * precision, which are checked by differences. Then a training of some thousand steps, whose result differs between
 * backends, but is equally good. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "nn_scene.h"

static const uint64_t seed = 20261121;

/* The gradient is that of the loss. */
static void differences(void)
{
    static const size_t size[] = {3, 6, 5, 4};
    scene s;
    make_scene(&s, 9, 3, size, 9, 9);
    double *w = need(s.total, sizeof *w), *grad = need(s.total, sizeof *grad), total = 0;
    for (size_t i = 0; i < s.total; i++)
        w[i] = (double)s.weight[i];
    for (size_t k = 0; k < 4; k++)
        total += s.sigma[k] * s.sigma[k];
    (void)plain_loss(&s, w, 9, s.row, grad);
    for (size_t i = 0; i < s.total; i++) {
        const double h = 1e-5, keep = w[i];
        w[i] = keep + h;
        const double up = plain_loss(&s, w, 9, s.row, NULL);
        w[i] = keep - h;
        const double down = plain_loss(&s, w, 9, s.row, NULL), want = (up - down) / (4 * h * 9 * total);
        w[i] = keep;
        CHECK(fabs(grad[i] - want) < 1e-9, "derivative by weight %zu is %g, want %g", i, grad[i], want);
    }
    spx_free(w);
    spx_free(grad);
    free_scene(&s);
}

/* ---- a backend ---- */

static void must(spx_status st, const spx_err *e)
{
    if (st != SPX_OK) {
        puts(spx_err_text(e));
        exit(1);
    }
}

/* The first steps, one epoch after another, beside the plain ones. Where a gradient is nothing but rounding, Adam makes
 * a step of any sign of it: weights are compared where it is more. */
static void first_steps(spx_backend *b, size_t nlayer, const size_t *size, size_t nrow, size_t epoch, size_t batch)
{
    enum { EPOCHS = 5 };
    static const size_t at_once[] = {1, 3, 1};
    scene s;
    spx_nn_trainer l = {0};
    spx_err e = {0};
    make_scene(&s, nrow, nlayer, size, epoch, batch);
    const size_t nstep = spx_nn_steps(&s.problem);
    plain p = {need(s.total, 8), need(s.total, 8), need(s.total, 8), need(s.total, 8)};
    float *w = need(s.total, sizeof *w);
    char *clear = need(s.total, 1); /* the gradient was more than rounding in all steps */
    memset(clear, 1, s.total);
    int32_t *row = need(EPOCHS * epoch, sizeof *row);
    spx_nn_rate *rate = need(EPOCHS * nstep, sizeof *rate);
    double sum, most = 0, worst = 0;
    for (size_t i = 0; i < s.total; i++)
        p.w[i] = (double)s.weight[i];
    for (size_t i = 0; i < EPOCHS * epoch; i++)
        row[i] = (int32_t)(uniform() * (double)nrow);
    for (size_t i = 0; i < EPOCHS * nstep; i++)
        rate[i] = rate_at(i + 1);
    must(b->nn_open(b, &s.problem, &l, &e), &e);
    must(l.loss(&l, nrow, s.row, &sum, &e), &e);
    double want = plain_loss(&s, p.w, nrow, s.row, NULL);
    CHECK(fabs(sum / want - 1) < 2e-6, "%zu layers: loss %.9g, want %.9g", nlayer, sum, want);
    for (size_t turn = 0, k = 0; turn < sizeof at_once / sizeof *at_once; turn++) {
        must(l.descend(&l, at_once[turn], row + k * epoch, rate + k * nstep, &e), &e);
        for (size_t end = k + at_once[turn]; k < end; k++)
            for (size_t step = 0; step < nstep; step++) {
                const size_t n = epoch - step * batch < batch ? epoch - step * batch : batch;
                plain_step(&s, &p, n, row + k * epoch + step * batch, rate + k * nstep + step);
                for (size_t i = 0; i < s.total; i++)
                    most = fmax(most, fabs(p.grad[i]));
                for (size_t i = 0; i < s.total; i++)
                    clear[i] = clear[i] && fabs(p.grad[i]) > 1e-3 * most;
            }
        must(l.weights(&l, w, &e), &e);
        must(l.loss(&l, nrow, s.row, &sum, &e), &e);
        want = plain_loss(&s, p.w, nrow, s.row, NULL);
        CHECK(fabs(sum / want - 1) < 2e-5, "%zu layers, %zu epochs: loss %.9g, want %.9g", nlayer, k, sum, want);
        size_t compared = 0;
        for (size_t i = 0; i < s.total; i++)
            if (clear[i] && ++compared)
                worst = fmax(worst, fabs((double)w[i] - p.w[i]));
        CHECK(compared > s.total / 100 && worst < 2e-6, "%zu layers, %zu epochs: one of %zu weights is off by %g",
              nlayer, k, compared, worst);
    }
    spx_nn_trainer same = {0};
    float *again = need(s.total, sizeof *again);
    must(b->nn_open(b, &s.problem, &same, &e), &e);
    must(same.descend(&same, EPOCHS, row, rate, &e), &e);
    must(same.weights(&same, again, &e), &e);
    CHECK(memcmp(w, again, s.total * sizeof *w) == 0, "%zu layers: other weights when repeated", nlayer);
    l.close(&l);
    same.close(&same);
    spx_free(again);
    spx_free(clear);
    spx_free(p.w);
    spx_free(p.m);
    spx_free(p.v);
    spx_free(p.grad);
    spx_free(w);
    spx_free(row);
    spx_free(rate);
    free_scene(&s);
}

/* Some thousand steps: as near to the outputs wanted as the CPU comes. */
static void long_training(spx_backend *b)
{
    enum { EPOCHS = 400, AT_ONCE = 40 };
    static const size_t size[] = {2, 24, 24, 12};
    spx_err e = {0};
    scene s;
    make_scene(&s, 300, 3, size, 240, 20);
    const size_t nstep = spx_nn_steps(&s.problem);
    int32_t *row = need(AT_ONCE * 240, sizeof *row);
    spx_nn_rate *rate = need(AT_ONCE * nstep, sizeof *rate);
    double rms[2], total = 0;
    for (size_t k = 0; k < 12; k++)
        total += s.sigma[k] * s.sigma[k];
    for (int which = 0; which < 2; which++) { /* the CPU, the backend */
        spx_nn_trainer l = {0};
        must((which ? b->nn_open : spx_nn_open_cpu)(b, &s.problem, &l, &e), &e);
        random_start(seed);
        for (size_t k = 0; k < EPOCHS; k += AT_ONCE) {
            for (size_t i = 0; i < AT_ONCE * 240; i++)
                row[i] = (int32_t)(uniform() * 240);
            for (size_t i = 0; i < AT_ONCE * nstep; i++) {
                rate[i] = rate_at(k * nstep + i + 1);
                rate[i].size *= (float)(1 - (double)(k * nstep + i) / (double)(EPOCHS * nstep));
            }
            must(l.descend(&l, AT_ONCE, row, rate, &e), &e);
        }
        must(l.loss(&l, 300, s.row, &rms[which], &e), &e);
        rms[which] = sqrt(rms[which] / 300 / total);
        l.close(&l);
    }
    CHECK(rms[0] < 0.1 && rms[1] < 0.1 && rms[1] < 1.5 * rms[0] && rms[0] < 1.5 * rms[1],
          "after %d steps the CPU is off by %g rms, the backend by %g", (int)(EPOCHS * nstep), rms[0], rms[1]);
    spx_free(row);
    spx_free(rate);
    free_scene(&s);
}

int main(void)
{
    static const size_t usual[] = {4, 128, 128, 128, 173}, odd[] = {3, 17, 300, 5, 33}, flat[] = {1, 2},
                        wide[] = {2, 600, 24, 3}, deep[] = {5, 9, 8, 7, 6, 5, 4, 3, 2};
    spx_backend b;
    open_device(&b, SPX_OP_TEMPLATE);
    random_start(seed);
    differences();
    first_steps(&b, 4, usual, 60, 50, 16);
    first_steps(&b, 4, odd, 600, 37, 37);
    first_steps(&b, 1, flat, 20, 20, 64);
    first_steps(&b, 3, wide, 40, 30, 23);
    first_steps(&b, 8, deep, 40, 31, 8);
    long_training(&b);
    spx_backend_close(&b);
    if (failures)
        printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}
