/* Coefficients of templates on components, and what is left of them: included once for each precision (pca.c), which
 * defines REAL, GEMM and NAME(). */

/* Coefficients on all candidates, if they are not known (*known), and what K components leave of all templates: *sum of
 * squares and the largest; while the largest of some template is above `most`, *K grows by STEP, up to c->n. */
static spx_status NAME(residual)(const spx_setup *s, const candidates *c, double most, size_t *K, int *known,
                                 double *sum, double *largest, spx_err *e)
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
        if (!*known && nc > 0)
            GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)nc, (int)nw, 1, x, (int)nw, comp, (int)nw, 0,
                 coef, (int)nc);
        for (size_t k = 0; k < n * nc; k++)
            if (*known)
                coef[k] = (REAL)c->coef[row * nc + k];
            else
                c->coef[row * nc + k] = (double)coef[k];
        for (;;) {
            double here = 0;
            if (*K > used)
                GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nw, (int)(*K - used), -1, coef + used,
                     (int)nc, comp + used * nw, (int)nw, 1, x, (int)nw);
            used = *K;
            double worst = 0;
            for (size_t i = 0; i < n; i++)
                worst = fmax(worst, NAME(largest)(nw, x + i * nw, &here));
            if ((most > 0 && worst > most) && *K < nc) {
                *K = *K + STEP < nc ? *K + STEP : nc;
                continue;
            }
            *sum += here;
            *largest = fmax(*largest, worst);
            break;
        }
    }
    *known = 1;
    st = SPX_OK;
end:
    spx_free(x);
    spx_free(comp);
    spx_free(coef);
    return st;
}
