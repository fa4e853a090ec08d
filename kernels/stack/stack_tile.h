/* Provides the inner loops of shift-and-stack. A tile is TILE samples of one stack; its sums stay in registers while
 * traces are added, and the traces of a tile stay in the first-level cache from one set of shifts to the next. For
 * traces shorter than a tile most of these would be additions of zeros: they are added one after another to the rows of
 * a few sets of shifts, over a span of samples that stays in the first-level cache. The order of the additions to a
 * sample is the same. stack_cpu.c includes this file once for each type and instruction set, with T, I type of the
 * traces; integer of the same size NAME(x)     name of a function of this variant
 *     TARGET      attribute that selects the instruction set
 * Vectors have VECTOR bytes; the compiler splits them where registers are shorter. */

typedef SPX_VECTOR(T, VECTOR) NAME(vec);
typedef SPX_VECTOR_ANY(T, VECTOR) NAME(vec_any);
typedef SPX_VECTOR(I, VECTOR) NAME(mask);
typedef SPX_VECTOR_ANY(I, VECTOR) NAME(mask_any);

enum { NAME(LANES) = VECTOR / sizeof(T), NAME(TILE) = 8 * NAME(LANES) };

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
        /* traces are padded with zeros: no lane needs a mask */
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

/* As above for nk sets of shifts at samples t ... t + count - 1, of short traces: into rows of count + LANES samples,
 * `ld` apart; up to LANES samples before a row are written, too. */
TARGET static void NAME(part_short)(const trace *tr, size_t n, size_t nk, size_t ntrace, const int32_t *shift,
                                    const T *weight, int64_t t, int64_t count, T *restrict out, size_t ld)
{
    for (size_t r = 0; r < nk; r++)
        for (int64_t l = -(int64_t)NAME(LANES); l < count + (int64_t)NAME(LANES); l += (int64_t)NAME(LANES))
            *(NAME(vec_any) *)(void *)(out + (int64_t)(r * ld) + l) = (NAME(vec)){0};
    for (size_t m = 0; m < n; m++) {
        const int64_t first = tr[m].first - t, length = tr[m].length;
        const T *a = tr[m].data;
        for (size_t r = 0; r < nk; r++) {
            const int64_t begin = first + shift[r * ntrace + tr[m].j];
            const T x = weight[r * ntrace + tr[m].j];
            if (begin >= count || begin + length <= 0 || !(x < 0 || x > 0))
                continue;
            /* vectors that overlap the span, up to LANES beyond it on both sides; zeros follow the trace */
            int64_t i = begin < 0 ? -begin / (int64_t)NAME(LANES) * (int64_t)NAME(LANES) : 0;
            const int64_t end = length < count - begin ? length : count - begin;
            for (; i < end; i += (int64_t)NAME(LANES)) {
                const NAME(vec_any) *p = (const void *)(a + i);
                NAME(vec_any) *to = (void *)(out + (int64_t)(r * ld) + begin + i);
                *to += x * *p;
            }
        }
    }
}

/* Stacks nk <= ROWS sets of shifts, from set k on, at samples t ... t + count - 1: row[nk], ld apart; n: number of
 * traces that overlap them. sum[ROWS][SPAN] is workspace. With `earlier`, row holds the start values. */
TARGET static void NAME(rows)(const job *w, const trace *tr, size_t n, size_t k, size_t nk, int64_t t, size_t count,
                              int earlier, double *restrict sum, T *restrict row, size_t ld)
{
    const int32_t *shift = w->sh->shift + k * w->tr->ntrace;
    const T *weight = (const T *)w->sh->weight + k * w->tr->ntrace;
    int summed = earlier;
    size_t m = 0;
    do {
        size_t end = m;
        while (end < n && tr[end].j / SPX_STACK_BLOCK == tr[m].j / SPX_STACK_BLOCK)
            end++;
        if (w->is_short)
            NAME(part_short)(tr + m, end - m, nk, w->tr->ntrace, shift, weight, t, (int64_t)count, row, ld);
        for (size_t r = 0; r < nk; r++) {
            T *now = row + r * ld;
            if (!w->is_short)
                NAME(part)(tr + m, end - m, shift + r * w->tr->ntrace, weight + r * w->tr->ntrace, t, now);
            if (end == n && !summed)
                continue; /* one block of traces: no sum in double needed */
            for (size_t l = 0; l < count; l++)
                sum[r * SPAN + l] = (summed ? sum[r * SPAN + l] : 0.0) + (double)now[l];
        }
        if (end == n && !summed)
            return;
        summed = 1;
        m = end;
    } while (m < n);
    for (size_t r = 0; r < nk; r++)
        for (size_t l = 0; l < count; l++)
            row[r * ld + l] = (T)sum[r * SPAN + l];
}

/* Updates the maximum in each lane, and the vector that has it: best[LANES], which[LANES]; the first of equal values.
 * Tile t = 0 initialises; lanes beyond a short window repeat its first value. */
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
        most = SPX_CHOOSE(more, v, most);
        when = SPX_CHOOSE(more, (NAME(mask)){0} + (I)(t + (int32_t)i), when);
    }
    *(NAME(vec_any) *)(void *)best = most;
    *(NAME(mask_any) *)(void *)which = when;
    for (size_t l = 0; i + l < count; l++)
        if (row[i + l] > best[l]) {
            best[l] = row[i + l];
            which[l] = (I)(t + (int32_t)i);
        }
}

/* Updates the maxima over stacks with one stack: best[count], which[count]. */
TARGET static void NAME(argmax)(const T *row, size_t count, int first, I k, T *best, I *which)
{
    size_t i = 0;
    for (; !first && i + NAME(LANES) <= count; i += NAME(LANES)) {
        NAME(vec_any) *most = (void *)(best + i);
        NAME(mask_any) *who = (void *)(which + i);
        const NAME(vec) v = *(const NAME(vec_any) *)(const void *)(row + i);
        const NAME(mask) more = v > *most;
        *most = SPX_CHOOSE(more, v, *most);
        *who = SPX_CHOOSE(more, (NAME(mask)){0} + k, *who);
    }
    for (; i < count; i++)
        if (first || row[i] > best[i]) {
            best[i] = row[i];
            which[i] = k;
        }
}

/* Copies the row of a stack into the result. */
TARGET static void NAME(store)(const T *row, size_t count, T *to)
{
    size_t i = 0;
    for (; i + NAME(LANES) <= count; i += NAME(LANES))
        *(NAME(vec_any) *)(void *)(to + i) = *(const NAME(vec_any) *)(const void *)(row + i);
    for (; i < count; i++)
        to[i] = row[i];
}

/* Stacks sets of shifts [k0, k1) at samples [t0, t0 + n) of the window, n <= CHUNK; b, c: indices of the block of
 * shifts and the chunk of samples. 0: a value is not finite. */
TARGET static int NAME(item)(const job *w, const trace *tr, size_t ntrace, size_t b, size_t c, double *sum,
                             void *scratch)
{
    const size_t length = w->out->length, nshift = w->sh->nshift, start = c * CHUNK;
    const size_t k0 = b * w->shifts_at_once, n = length - start < CHUNK ? length - start : CHUNK;
    const size_t k1 = nshift - k0 < w->shifts_at_once ? nshift : k0 + w->shifts_at_once;
    /* rows of spans have an unused vector at each end */
    const size_t tile = w->is_short ? w->span : (size_t)NAME(TILE), ld = tile + 2 * NAME(LANES);
    T *row = (T *)scratch + NAME(LANES), *value = w->out->value, *best = (T *)(void *)w->best;
    I *which = (I *)(void *)w->which;
    NAME(mask) finite = ~(NAME(mask)){0};
    int all = 1;
    for (size_t k = k0; k < k1; k += ROWS) {
        const size_t nk = k1 - k < ROWS ? k1 - k : ROWS;
        for (size_t i = 0; i < n; i += tile) {
            const size_t at = start + i, count = n - i < tile ? n - i : tile;
            for (size_t r = 0; w->o->earlier != NULL && r < nk; r++)
                for (size_t l = 0; l < count; l++)
                    sum[r * SPAN + l] = (double)((const T *)w->o->earlier)[(k + r) * length + at + l];
            NAME(rows)(w, tr, ntrace, k, nk, (int64_t)at, count, w->o->earlier != NULL, sum, row, ld);
            for (size_t r = 0; r < nk; r++) {
                const T *now = row + r * ld;
                size_t l = 0;
                for (; l + NAME(LANES) <= count; l += NAME(LANES)) {
                    const NAME(vec) v = *(const NAME(vec_any) *)(const void *)(now + l);
                    finite &= (NAME(mask))(v - v == 0);
                }
                for (; l < count; l++)
                    all &= now[l] - now[l] == 0;
            }
            for (size_t r = 0; r < nk; r++) {
                const T *now = row + r * ld;
                const size_t lanes = (c * nshift + k + r) * NAME(LANES);
                if (w->out->method == SPX_STACK_STACK)
                    NAME(store)(now, count, value + (k + r) * length + at);
                else if (w->out->method == SPX_STACK_ARGMAX)
                    NAME(argmax)(now, count, k + r == k0, (I)(k + r), best + b * length + at, which + b * length + at);
                else
                    NAME(max)(now, count, (int32_t)i, best + lanes, which + lanes);
            }
        }
    }
    for (size_t l = 0; l < NAME(LANES); l++)
        all &= finite[l] != 0;
    return all;
}

/* Reduces the partial maxima; of equal ones the smallest index. */
TARGET static void NAME(merge)(const job *w)
{
    const spx_stack *out = w->out;
    const int over_time = out->method == SPX_STACK_MAX;
    const size_t n = over_time ? out->nshift : out->length;
    const T *best = (const T *)(const void *)w->best;
    const I *which = (const I *)(const void *)w->which;
    for (size_t i = 0; i < n; i++) {
        T most = best[i * w->nlane];
        int64_t where = INT64_MAX;
        for (size_t p = 0; p < w->npart; p++)
            for (size_t l = 0; l < w->nlane; l++) {
                const size_t at = (p * n + i) * w->nlane + l;
                const int64_t index = which[at] + (over_time ? out->t0 + (int64_t)(p * CHUNK + l) : 0);
                const int first = spx_stack_before((double)best[at], index, (double)most, where);
                most = first ? best[at] : most;
                where = first ? index : where;
            }
        ((T *)out->value)[i] = most;
        out->index[i] = where;
    }
}
