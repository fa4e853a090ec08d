/* Provides coefficients of templates on components, and residuals: included once for each precision (pca.c), which
 * defines REAL, GEMM and NAME(). */

/* Workspace of NAME(measure): a block of templates, the worst of them, all candidates; coefficients. */
typedef struct {
    REAL *x, *worst, *comp; /* [BLOCK][nw], [BLOCK][nw], [nc][nw] */
    REAL *coef;             /* [BLOCK][nc] */
} NAME(workspace);

/* Coefficients of x[n][nw] on candidates from ... to-1, into coef[n][nc]. */
static void NAME(project)(const NAME(workspace) * r, size_t nw, size_t nc, size_t n, const REAL *x, size_t from,
                          size_t to)
{
    if (to > from)
        GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)(to - from), (int)nw, 1, x, (int)nw,
             r->comp + from * nw, (int)nw, 0, r->coef + from, (int)nc);
}

static void NAME(take_out)(const NAME(workspace) * r, size_t nw, size_t nc, size_t n, REAL *x, size_t from, size_t to)
{
    if (to > from)
        GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nw, (int)(to - from), -1, r->coef + from, (int)nc,
             r->comp + from * nw, (int)nw, 1, x, (int)nw);
}

/* Measures templates row0 ... row0+n-1 with *K components. While that leaves more than `most` in one of them, *K grows
 * by STEP, up to c->n; only templates above the limit are measured meanwhile. */
static void NAME(measure_block)(const spx_setup *s, const candidates *c, double most, size_t row0, size_t n, size_t *K,
                                const NAME(workspace) * r, left_out *out)
{
    size_t nw = s->nwave, nc = c->n, used = *K, ncomputed = out->ncomputed < *K ? out->ncomputed : *K;
    NAME(centred)(s, row0, n, 1, r->x);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ncomputed; k++)
            r->coef[i * nc + k] = (REAL)c->coef[(row0 + i) * nc + k];
    NAME(project)(r, nw, nc, n, r->x, ncomputed, used);
    NAME(take_out)(r, nw, nc, n, r->x, 0, used);
    for (size_t i = 0; i < n; i++)
        for (size_t k = ncomputed; k < used; k++)
            c->coef[(row0 + i) * nc + k] = (double)r->coef[i * nc + k];
    for (;;) {
        size_t bad = 0;
        double sum;
        out->sum = out->largest = 0;
        for (size_t i = 0; i < n; i++) {
            double here = NAME(largest)(nw, r->x + i * nw, &sum);
            out->sum += sum;
            out->largest = fmax(out->largest, here);
            if (most > 0 && here > most && used < nc)
                memcpy(r->worst + bad++ * nw, r->x + i * nw, nw * sizeof *r->x);
        }
        if (bad == 0)
            break;
        for (size_t ahead = used; bad > 0 && *K < nc;) {
            if (ahead == *K) { /* coefficients of several further components at once */
                ahead = *K + AHEAD < nc ? *K + AHEAD : nc;
                NAME(project)(r, nw, nc, bad, r->worst, *K, ahead);
            }
            size_t from = *K, still = 0;
            *K = *K + STEP < ahead ? *K + STEP : ahead;
            NAME(take_out)(r, nw, nc, bad, r->worst, from, *K);
            for (size_t i = 0; i < bad; i++)
                still += NAME(largest)(nw, r->worst + i * nw, &sum) > most;
            bad = still > 0 ? bad : 0;
        }
        NAME(project)(r, nw, nc, n, r->x, used, *K);
        NAME(take_out)(r, nw, nc, n, r->x, used, *K);
        for (size_t i = 0; i < n; i++)
            for (size_t k = used; k < *K; k++)
                c->coef[(row0 + i) * nc + k] = (double)r->coef[i * nc + k];
        used = *K;
    }
    out->K = used;
    out->ncomputed = used > out->ncomputed ? used : out->ncomputed;
}

/* Measures the residuals of *K components in each block of templates, out[blocks], where not done already; *K may grow
 * on the way. */
static spx_status NAME(measure)(const spx_setup *s, const candidates *c, double most, size_t *K, left_out *out,
                                spx_err *e)
{
    size_t nw = s->nwave, nc = c->n;
    NAME(workspace)
    r = {spx_alloc2(BLOCK, nw, sizeof *r.x, e), spx_alloc2(most > 0 ? BLOCK : 1, nw, sizeof *r.worst, e),
         spx_alloc2(nc, nw, sizeof *r.comp, e), spx_alloc2(BLOCK, nc, sizeof *r.coef, e)};
    spx_status st = r.x && r.worst && r.comp && r.coef ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < nc * nw && st == SPX_OK; k++)
        r.comp[k] = (REAL)c->comp[k];
    for (size_t row = 0, b = 0; row < s->ntemp && st == SPX_OK; row += BLOCK, b++)
        if (out[b].K < *K || out[b].ncomputed == 0)
            NAME(measure_block)(s, c, most, row, s->ntemp - row < BLOCK ? s->ntemp - row : BLOCK, K, &r, &out[b]);
    spx_free(r.x);
    spx_free(r.worst);
    spx_free(r.comp);
    spx_free(r.coef);
    return st;
}
