/* Coefficients of templates on components, and what is left of them: included once for each precision (pca.c), which
 * defines REAL, GEMM and NAME(). */

/* ln flux minus mean of n templates from row0 on, every `step`-th, into x[n][nwave]. */
static void NAME(centred)(const spx_setup *s, size_t row0, size_t n, size_t step, REAL *x)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s->nwave; k++)
            x[i * s->nwave + k] = (REAL)((double)s->lnflux[(row0 + i * step) * s->nwave + k] - s->pca.mean[k]);
}

/* Largest absolute value, and the sum of squares. */
static double NAME(largest)(size_t n, const REAL *x, double *sum)
{
    REAL most[LARGEST_LANES] = {0}, all = 0;
    for (size_t i = 0; i < n; i += ROW) {
        size_t m = n - i < ROW ? n - i : ROW;
        double part[LARGEST_LANES] = {0};
        for (size_t k = 0; k < m; k++) {
            REAL a = x[i + k] < 0 ? -x[i + k] : x[i + k];
            most[k % LARGEST_LANES] = a > most[k % LARGEST_LANES] ? a : most[k % LARGEST_LANES];
            part[k % LARGEST_LANES] += (double)x[i + k] * (double)x[i + k];
        }
        for (size_t k = 0; k < LARGEST_LANES; k++)
            *sum += part[k];
    }
    for (size_t k = 0; k < LARGEST_LANES; k++)
        all = most[k] > all ? most[k] : all;
    return (double)all;
}

/* What K components leave of all templates: *sum of squares and the largest; while the largest of some template is
 * above `most`, *K grows by STEP, up to c->n. */
static spx_status NAME(residual)(const spx_setup *s, const candidates *c, double most, size_t *K, double *sum,
                                 double *largest, spx_err *e)
{
    size_t nw = s->nwave, nc = c->n;
    spx_status st = SPX_EIO;
    REAL *x = spx_alloc2(BLOCK, nw, sizeof *x, e), *comp = spx_alloc2(nc, nw, sizeof *comp, e);
    REAL *coef = spx_alloc2(BLOCK, nc, sizeof *coef, e);
    if (!x || !comp || !coef)
        goto end;
    for (size_t k = 0; k < nc * nw; k++)
        comp[k] = (REAL)c->comp[k];
    *sum = *largest = 0;
    for (size_t row = 0; row < s->ntemp; row += BLOCK) {
        size_t n = s->ntemp - row < BLOCK ? s->ntemp - row : BLOCK, used = 0;
        NAME(centred)(s, row, n, 1, x);
        if (nc > 0)
            GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)nc, (int)nw, 1, x, (int)nw, comp, (int)nw, 0,
                 coef, (int)nc);
        for (;;) {
            double here = 0;
            if (*K > used)
                GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nw, (int)(*K - used), -1, coef + used,
                     (int)nc, comp + used * nw, (int)nw, 1, x, (int)nw);
            used = *K;
            double worst = NAME(largest)(n * nw, x, &here);
            if ((most > 0 && worst > most) && *K < nc) {
                *K = *K + STEP < nc ? *K + STEP : nc;
                continue;
            }
            *sum += here;
            *largest = fmax(*largest, worst);
            break;
        }
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < nc; k++)
                c->coef[(row + i) * nc + k] = (double)coef[i * nc + k];
    }
    st = SPX_OK;
end:
    spx_free(x);
    spx_free(comp);
    spx_free(coef);
    return st;
}
