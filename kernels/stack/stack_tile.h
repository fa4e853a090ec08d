/* The loops of shift-and-stack that take the time. A tile is TILE samples of one stack; its sums stay in registers
 * while the traces are added, and the traces of a tile stay in the first cache while they are added up for one set of
 * shifts after another. stack_cpu.c includes this file once for each type and instruction set, with
 *     T, I        type of the traces; integer of the same size
 *     NAME(x)     name of a function of this variant
 *     TARGET      attribute that selects the instruction set
 * Vectors have 64 bytes; the compiler splits them where registers are shorter. The order of the additions is the same
 * everywhere. */

typedef T NAME(vec) __attribute__((vector_size(64)));
typedef T NAME(vec_any) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
typedef I NAME(mask) __attribute__((vector_size(64)));
typedef I NAME(mask_any) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));

enum { NAME(LANES) = 64 / sizeof(T), NAME(TILE) = 8 * NAME(LANES) };

/* Sum over n traces of one block at samples t ... t + TILE - 1. */
TARGET static void NAME(part)(const trace *tr, size_t n, const int32_t *shift, const T *weight, int64_t t,
                              T *restrict out)
{
    NAME(vec) a0 = {0}, a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    for (size_t m = 0; m < n; m++) {
        const int64_t i = t - tr[m].first - shift[tr[m].j];
        const T w = weight[tr[m].j];
        if (i <= -(int64_t)NAME(TILE) || i >= tr[m].length || !(w < 0 || w > 0))
            continue;
        /* every trace lies between zeros, so no lane has to be left out */
        const NAME(vec_any) *p = (const void *)((const T *)tr[m].data + i);
        a0 += w * p[0];
        a1 += w * p[1];
        a2 += w * p[2];
        a3 += w * p[3];
        a4 += w * p[4];
        a5 += w * p[5];
        a6 += w * p[6];
        a7 += w * p[7];
    }
    NAME(vec_any) *to = (void *)out;
    to[0] = a0;
    to[1] = a1;
    to[2] = a2;
    to[3] = a3;
    to[4] = a4;
    to[5] = a5;
    to[6] = a6;
    to[7] = a7;
}

/* Stacks of nk <= ROWS sets of shifts, from set k on, at samples t ... t + TILE - 1: row[nk][TILE]. `n` of the traces
 * reach them. sum[ROWS][TILE] is scratch; where `earlier` is given it holds what is added to. */
TARGET static void NAME(rows)(const job *w, const trace *tr, size_t n, size_t k, size_t nk, int64_t t, int earlier,
                              double *restrict sum, T *restrict row)
{
    const int32_t *shift = w->sh->shift + k * w->tr->ntrace;
    const T *weight = (const T *)w->sh->weight + k * w->tr->ntrace;
    int summed = earlier;
    size_t m = 0;
    do {
        size_t end = m;
        while (end < n && tr[end].j / SPX_STACK_BLOCK == tr[m].j / SPX_STACK_BLOCK)
            end++;
        for (size_t r = 0; r < nk; r++) {
            T *now = row + r * NAME(TILE);
            NAME(part)(tr + m, end - m, shift + r * w->tr->ntrace, weight + r * w->tr->ntrace, t, now);
            if (end == n && !summed)
                continue; /* one block: its sum is the sum */
            for (size_t l = 0; l < NAME(TILE); l++)
                sum[r * NAME(TILE) + l] = (summed ? sum[r * NAME(TILE) + l] : 0.0) + (double)now[l];
        }
        if (end == n && !summed)
            return;
        summed = 1;
        m = end;
    } while (m < n);
    for (size_t l = 0; l < nk * NAME(TILE); l++)
        row[l] = (T)sum[l];
}

/* The largest so far in each lane, and the vector it is in: best[LANES], which[LANES]; the first where several are
 * equal. Tile t = 0 begins; lanes that a short window does not reach repeat its first value. */
TARGET static void NAME(max)(const T *row, size_t count, int32_t t, T *best, I *which)
{
    for (size_t l = 0; t == 0 && l < NAME(LANES); l++) {
        best[l] = row[l < count ? l : 0];
        which[l] = 0;
    }
    NAME(vec) most = *(const NAME(vec_any) *)(const void *)best;
    NAME(mask) when = *(const NAME(mask_any) *)(const void *)which;
    size_t i = 0;
    for (; i + NAME(LANES) <= count; i += NAME(LANES)) {
        const NAME(vec) v = *(const NAME(vec_any) *)(const void *)(row + i);
        const NAME(mask) more = v > most;
        most = (NAME(vec))((more & (NAME(mask))v) | (~more & (NAME(mask))most));
        when = (more & (I)(t + (int32_t)i)) | (~more & when);
    }
    *(NAME(vec_any) *)(void *)best = most;
    *(NAME(mask_any) *)(void *)which = when;
    for (size_t l = 0; i + l < count; l++)
        if (row[i + l] > best[l]) {
            best[l] = row[i + l];
            which[l] = (I)(t + (int32_t)i);
        }
}

/* One stack against the largest so far: best[count], which[count]. */
TARGET static void NAME(argmax)(const T *row, size_t count, int first, I k, T *best, I *which)
{
    size_t i = 0;
    for (; !first && i + NAME(LANES) <= count; i += NAME(LANES)) {
        NAME(vec_any) *most = (void *)(best + i);
        NAME(mask_any) *who = (void *)(which + i);
        const NAME(vec) v = *(const NAME(vec_any) *)(const void *)(row + i);
        const NAME(mask) more = v > *most;
        *most = (NAME(vec))((more & (NAME(mask))v) | (~more & (NAME(mask)) * most));
        *who = (more & k) | (~more & *who);
    }
    for (; i < count; i++)
        if (first || row[i] > best[i]) {
            best[i] = row[i];
            which[i] = k;
        }
}

/* Sets of shifts [k0, k1) at samples [t0, t0 + n) of the window, n <= CHUNK; b, c: numbers of this block of shifts and
 * chunk of samples. 0: a value is not finite. */
TARGET static int NAME(item)(const job *w, const trace *tr, size_t ntrace, size_t b, size_t c, double *sum,
                             void *scratch)
{
    const size_t length = w->out->length, nshift = w->sh->nshift, start = c * CHUNK;
    const size_t k0 = b * w->shifts_at_once, n = length - start < CHUNK ? length - start : CHUNK;
    const size_t k1 = nshift - k0 < w->shifts_at_once ? nshift : k0 + w->shifts_at_once;
    T *row = scratch, *value = w->out->value, *best = (T *)(void *)w->best;
    I *which = (I *)(void *)w->which;
    NAME(mask) finite = ~(NAME(mask)){0};
    for (size_t k = k0; k < k1; k += ROWS) {
        const size_t nk = k1 - k < ROWS ? k1 - k : ROWS;
        for (size_t i = 0; i < n; i += NAME(TILE)) {
            const size_t at = start + i, count = n - i < NAME(TILE) ? n - i : NAME(TILE);
            for (size_t r = 0; w->o->earlier != NULL && r < nk; r++)
                for (size_t l = 0; l < NAME(TILE); l++)
                    sum[r * NAME(TILE) + l] =
                        l < count ? (double)((const T *)w->o->earlier)[(k + r) * length + at + l] : 0.0;
            NAME(rows)(w, tr, ntrace, k, nk, (int64_t)at, w->o->earlier != NULL, sum, row);
            const NAME(vec_any) *v = (const void *)row;
            for (size_t l = 0; l < 8 * nk; l++)
                finite &= (NAME(mask))(v[l] - v[l] == 0);
            for (size_t r = 0; r < nk; r++) {
                const T *now = row + r * NAME(TILE);
                const size_t lanes = (c * nshift + k + r) * NAME(LANES);
                if (w->out->method == SPX_STACK_STACK)
                    memcpy(value + (k + r) * length + at, now, count * sizeof(T));
                else if (w->out->method == SPX_STACK_ARGMAX)
                    NAME(argmax)(now, count, k + r == k0, (I)(k + r), best + b * length + at, which + b * length + at);
                else
                    NAME(max)(now, count, (int32_t)i, best + lanes, which + lanes);
            }
        }
    }
    int all = 1;
    for (size_t l = 0; l < NAME(LANES); l++)
        all &= finite[l] != 0;
    return all;
}
