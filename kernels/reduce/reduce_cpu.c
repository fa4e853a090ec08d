/* Provides reductions along an axis on the CPU (reduce/reduce.h). */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "ordered_key.h"
#include "reduce/reduce.h"
#include "reduce/reduce_math.h"

/* TOGETHER: results of a thread at a time, whose state fits the first-level cache. */
enum { TOGETHER = 256, DIGIT = 16 };

spx_status spx_reduce_new(spx_reduce_op op, int skip, size_t most, spx_reduce *r, spx_err *e)
{
    memset(r, 0, sizeof *r);
    r->op = op;
    r->skip = skip;
    if ((r->value = spx_alloc(most, sizeof *r->value, e)) == NULL ||
        (r->rest = spx_alloc(most, sizeof *r->rest, e)) == NULL ||
        (r->index = spx_alloc(most, sizeof *r->index, e)) == NULL ||
        (r->count = spx_alloc(most, sizeof *r->count, e)) == NULL)
        return SPX_EIO;
    return SPX_OK;
}

void spx_reduce_free(spx_reduce *r)
{
    spx_free(r->value);
    spx_free(r->rest);
    spx_free(r->index);
    spx_free(r->count);
    memset(r, 0, sizeof *r);
}

void spx_reduce_begin(spx_reduce *r, size_t nout)
{
    r->nout = nout;
    memset(r->value, 0, nout * sizeof *r->value);
    memset(r->rest, 0, nout * sizeof *r->rest);
    memset(r->index, 0, nout * sizeof *r->index);
    memset(r->count, 0, nout * sizeof *r->count);
}

spx_status spx_reduce_refuse(const double *data, size_t bad, spx_err *e)
{
    return spx_fail_remedy(e, SPX_EINPUT, "leave such values out with {skip_nan}", "a value is %s",
                           isnan(data[bad]) ? "NaN" : "infinite");
}

/* Reduces results [i0, i1) of one outer index. Returns the index of the first value that is not finite, or SIZE_MAX. */
static size_t fold(const double *data, size_t at, size_t n, size_t inner, size_t i0, size_t i1, size_t first,
                   const spx_reduce *r, size_t out)
{
    size_t bad = SIZE_MAX;
    for (size_t a = 0; a < n; a++)
        for (size_t i = i0; i < i1; i++) {
            const size_t from = at + a * inner + i, to = out + i;
            if (isfinite(data[from]))
                spx_reduce_one(r->op, data[from], (int64_t)(first + a), &r->value[to], &r->rest[to], &r->index[to],
                               &r->count[to]);
            else if (!r->skip && from < bad)
                bad = from;
        }
    return bad;
}

/* As fold(), for one result, which stays in registers. */
static size_t fold_one(const double *data, size_t at, size_t n, size_t inner, size_t first, const spx_reduce *r,
                       size_t out)
{
    double value = r->value[out], rest = r->rest[out];
    int64_t index = r->index[out];
    uint64_t count = r->count[out];
    size_t bad = SIZE_MAX;
    for (size_t a = 0; a < n; a++) {
        const size_t from = at + a * inner;
        if (isfinite(data[from]))
            spx_reduce_one(r->op, data[from], (int64_t)(first + a), &value, &rest, &index, &count);
        else if (!r->skip && from < bad)
            bad = from;
    }
    r->value[out] = value;
    r->rest[out] = rest;
    r->index[out] = index;
    r->count[out] = count;
    return bad;
}

/* Median of one result; line[n] is workspace. */
static size_t median(const double *data, size_t at, size_t n, size_t inner, double *line, const spx_reduce *r,
                     size_t out)
{
    size_t count = 0, bad = SIZE_MAX;
    for (size_t a = 0; a < n; a++) {
        const size_t from = at + a * inner;
        if (isfinite(data[from]))
            line[count++] = data[from];
        else if (!r->skip && bad == SIZE_MAX)
            bad = from;
    }
    r->value[out] = spx_median(line, count);
    r->count[out] = count;
    return bad;
}

spx_status spx_reduce_cpu(const double *data, size_t outer, size_t n, size_t inner, size_t first, int nthreads,
                          spx_reduce *r, size_t *bad, spx_err *e)
{
    /* workspaces of a median take no more memory than the data */
    const int most = outer * inner < 1024 ? (int)(outer * inner) : 1024, wanted = nthreads > 0 ? nthreads : 1;
    const int threads = wanted < most ? wanted : most;
    const size_t together = r->op == SPX_REDUCE_MEDIAN ? 1 : TOGETHER, pieces = (inner + together - 1) / together;
    double *line = NULL;
    size_t worst = SIZE_MAX;
    if (r->op == SPX_REDUCE_MEDIAN && (line = spx_alloc2((size_t)threads, n, sizeof *line, e)) == NULL)
        return SPX_EIO;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : worst)
    for (size_t p = 0; p < outer * pieces; p++) {
        const size_t o = p / pieces, i0 = p % pieces * together;
        const size_t i1 = inner - i0 < together ? inner : i0 + together;
        size_t found;
        if (line != NULL)
            found =
                median(data, o * n * inner + i0, n, inner, line + (size_t)omp_get_thread_num() * n, r, o * inner + i0);
        else if (i1 - i0 == 1)
            found = fold_one(data, o * n * inner + i0, n, inner, first, r, o * inner + i0);
        else
            found = fold(data, o * n * inner, n, inner, i0, i1, first, r, o * inner);
        worst = found < worst ? found : worst;
    }
    spx_free(line);
    *bad = worst;
    return worst != SIZE_MAX ? spx_reduce_refuse(data, worst, e) : SPX_OK;
}

spx_status spx_reduce_end(spx_reduce *r, spx_err *e)
{
    for (size_t i = 0; i < r->nout; i++) {
        if (r->count[i] == 0) {
            r->value[i] = 0;
            r->index[i] = 0;
        } else if (r->op == SPX_REDUCE_MEAN) {
            r->value[i] /= (double)r->count[i];
        }
        if (!isfinite(r->value[i]))
            return spx_fail(e, SPX_EINPUT, "a sum is beyond the range of float64");
    }
    return SPX_OK;
}

/* ---- median of a line longer than memory ---- */

spx_status spx_reduce_select_new(spx_reduce_select *s, spx_err *e)
{
    memset(s, 0, sizeof *s);
    s->histogram = spx_alloc((size_t)1 << DIGIT, sizeof *s->histogram, e);
    return s->histogram != NULL ? SPX_OK : SPX_EIO;
}

void spx_reduce_select_begin(spx_reduce_select *s)
{
    uint64_t *histogram = s->histogram;
    memset(histogram, 0, sizeof *histogram << DIGIT);
    *s = (spx_reduce_select){.next = UINT64_MAX, .histogram = histogram};
}

void spx_reduce_select_free(spx_reduce_select *s)
{
    spx_free(s->histogram);
    s->histogram = NULL;
}

spx_status spx_reduce_select_add(spx_reduce_select *s, const double *data, size_t n, int skip, size_t *bad, spx_err *e)
{
    const int last = s->pass == SPX_SELECT_PASSES - 1, shift = last ? 0 : 64 - DIGIT * (s->pass + 1);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(data[i])) {
            if (skip)
                continue;
            *bad = i;
            return spx_reduce_refuse(data, i, e);
        }
        uint64_t bits;
        /* 0 and -0 are equal */
        const double value = data[i] + 0.0;
        memcpy(&bits, &value, sizeof bits);
        const uint64_t key = spx_key_of_bits(bits);
        s->count += s->pass == 0;
        if (last) {
            s->upto += key <= s->prefix;
            s->next = key > s->prefix && key < s->next ? key : s->next;
        } else if (s->pass == 0 || key >> (shift + DIGIT) == s->prefix) {
            s->histogram[key >> shift & ((1u << DIGIT) - 1)]++;
        }
    }
    return SPX_OK;
}

static double value_of(uint64_t key)
{
    const uint64_t bits = spx_bits_of_key(key);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void spx_reduce_select_next(spx_reduce_select *s, spx_reduce *r)
{
    if (s->pass == 0)
        s->rank = s->count > 0 ? (s->count - 1) / 2 : 0;
    if (s->pass < SPX_SELECT_PASSES - 1) {
        size_t digit = 0;
        while (digit + 1 < (size_t)1 << DIGIT && s->rank >= s->histogram[digit])
            s->rank -= s->histogram[digit++];
        s->prefix = s->prefix << DIGIT | digit;
        memset(s->histogram, 0, sizeof *s->histogram << DIGIT);
    } else if (s->count > 0) {
        const double low = value_of(s->prefix);
        /* the upper middle value of an even number equals the lower one, or is the next larger */
        const double high = s->count % 2 == 0 && s->upto <= s->count / 2 ? value_of(s->next) : low;
        r->value[0] = low + (high - low) / 2.0;
        r->count[0] = s->count;
    }
    s->pass++;
}
