/* Provides the lists of items of the square root, bounds of the eigenvalues of A_s, and the poles of its root. */
#ifndef SPX_EXTRACT_CUDA_SQRT_POLES_CUH
#define SPX_EXTRACT_CUDA_SQRT_POLES_CUH

#include <algorithm>

#include "calib/poles.cuh"
#include "extract/cuda/band.cuh"
#include "extract/cuda/band_block.cuh"

namespace
{

/* ---- items: segments of the lanes ---- */

/* A band that is wider than there are loops for is worked on by a whole warp, one lane a diagonal, or by a block where
 * it is wider than a warp. Masks make bands wide, but only near by: so it is segments that are wide, not traces. */
inline bool is_wide(int mm)
{
    return mm > 9;
}

/* Whether there are loops of constant length for a lane that works on a bandwidth alone. */
inline bool has_lanes(int mm)
{
    return has_loop(mm) || mm == WIDER;
}

/* Poles that a warp of the root has, and warps for a trace that has more: those beyond come after. What a row of a
 * factor has beside it there, and bins that are worked on at a time; items of bounds that are few. */
enum { POLES = WARP / ENDS, MOST_WARPS = 2, FACTOR_MORE = 2, STRIDE = 4, FEW = 1024 };

/* First of the mm bins in the middle of first .. last - 1, where those meet who come from both ends. */
__device__ __host__ inline int middle_of(int first, int last, int mm)
{
    return last - first > mm ? first + (last - first - mm) / 2 : first;
}

/* Bins that the recurrences of an item take from each of its ends up to the middle, on the longer side; last: end of
 * what is written. Of the item alone, so that what it gives does not depend on those that it is worked on with. */
__device__ __host__ inline int rows_to_middle(const item &v, int last)
{
    const int middle = middle_of(v.first, last, v.mm), up = middle - v.begin, down = v.end - middle - v.mm;
    return round_to(up > down ? up : down, STRIDE);
}

/* Items of a kind: one half-bandwidth, or all that a warp each works on. */
struct kind {
    bool wide;
    int lanes, mm, first, count, rows, span, npole; /* as in a batch; first: of the list */
};

enum { MOST_KINDS = 2 * (SPX_TRACE_MOST_BAND + 2) };

/* Items of t.items by kinds, in the order of their launches. */
struct list {
    int nitem, nkinds;
    kind kinds[MOST_KINDS];
};

/* Groups of a launch at most: what the second dimension of a grid has. */
enum { MOST_GROUPS = 65535 };

/* What goes into a list: all segments; those that do not fit their neighbours, begun earlier; their whole traces. */
enum { USUAL, LONGER, WHOLE };

/* The list, in t.items. With npole, of the root: lanes without poles are left out. Neighbouring lanes stay together:
 * what they read lies side by side. */
void list_items(const params &k, tables &t, const int *npole, int how, list &l)
{
    enum { KINDS = SPX_TRACE_MOST_BAND + 2, PARTS = 2 };
    int place[KINDS * PARTS + 1] = {0}, n = 0;
    const auto key = [&](const item &v) {
        return is_wide(v.mm) && (v.mm != WIDER || !npole) ? (v.mm > WIDEST ? 0 : 1)
                                                          : (v.mm + 1) * PARTS + (npole && npole[v.column] <= POLES);
    };
    const int least = k.m > k.h ? k.m : k.h, narrowest = k.loop[least];
    const auto band = [&](int column, int from, int to) {
        const int need = needed(t.need, k, column, from, to);
        return k.loop[need > least ? need : least];
    };
    const auto add = [&](int column, int mm, int first, int last, int halo) {
        const int begin = first > halo ? first - halo : 0, end = halo < k.n - last ? last + halo : k.n;
        if ((mm > 9 || how != USUAL) && mm <= WIDER && WIDER <= k.band)
            mm = WIDER;
        t.draft[n] = {column, mm, first, last, begin, end};
        place[key(t.draft[n++]) + 1]++;
    };
    for (int column = 0; column < k.lanes; column++) {
        const bool there = t.wanted[column] >= 0 && (!npole || npole[column] > 0);
        t.most[column] = there ? band(column, 0, k.n) : -1;
        bool redo = how == USUAL && there && !has_loop(t.most[column]) && !is_wide(t.most[column]);
        for (int seg = 0; seg < k.nseg && how == WHOLE; seg++)
            redo |= there && t.redo[(size_t)seg * k.lanes + column] != 0;
        if (redo) {
            add(column, t.most[column], 0, k.n, 0);
            t.most[column] = -1;
        }
    }
    for (int seg = 0; seg < k.nseg && how != WHOLE; seg++)
        for (int column = 0; column < k.lanes; column++) {
            if (t.most[column] < 0 || (how == LONGER && t.redo[(size_t)seg * k.lanes + column] == 0))
                continue;
            const int first = seg * k.seg, last = first + k.seg < k.n ? first + k.seg : k.n;
            const int early = npole ? HALO : BOUNDS_HALO;
            int halo = how == LONGER ? 4 * WIDE_HALO : early * 9;
            /* most traces are as narrow everywhere, and the device waits for this list */
            int mm = t.most[column] == narrowest ? narrowest : band(column, first - halo, last + halo);
            if (how == USUAL && is_wide(mm)) {
                halo = npole ? WIDE_HALO : WIDE_BOUNDS_HALO;
                mm = band(column, first - halo, last + halo);
            } else if (how == USUAL) {
                halo = early * mm;
            }
            add(column, mm, first, last, halo);
        }
    l.nitem = n;
    l.nkinds = 0;
    for (int i = 0; i < KINDS * PARTS; i++) {
        const bool wide = i < PARTS, many = npole && i % PARTS == 0 && has_lanes(i / PARTS - 1);
        /* what few items of bounds read does not lie side by side: the fewer a warp, the sooner it is there */
        const int few = place[i + 1] < FEW ? 8 : 1, lanes = many ? MOST_WARPS * WARP : wide || npole ? WARP : few;
        if (place[i + 1] > 0)
            l.kinds[l.nkinds++] = {wide, lanes, 0, place[i], place[i + 1], 0, 0, 0};
        place[i + 1] += place[i];
    }
    for (int i = 0; i < n; i++)
        t.items[place[key(t.draft[i])]++] = t.draft[i];
    for (int i = 0; i < l.nkinds; i++) {
        kind &v = l.kinds[i];
        for (int j = v.first; j < v.first + v.count; j++) {
            const item &o = t.items[j];
            const int last = o.last + EXTRA < k.n ? o.last + EXTRA : k.n, written = last - o.first,
                      rows = npole && has_lanes(o.mm) ? rows_to_middle(o, last) : o.end - o.begin,
                      tasks = npole && v.wide ? npole[o.column] : 1;
            v.mm = o.mm > v.mm ? o.mm : v.mm;
            v.rows = rows > v.rows ? rows : v.rows;
            v.span = written > v.span ? written : v.span;
            v.npole = tasks > v.npole ? tasks : v.npole;
        }
    }
    /* The longest chains come first, those of warps and of wide bands: behind the many of the usual bands they would
     * wait for room on the device. */
    int nwide = 0;
    while (nwide < l.nkinds && l.kinds[nwide].wide)
        nwide++;
    std::reverse(l.kinds + nwide, l.kinds + l.nkinds);
}

/* Arrays of a batch of `groups` groups; nrhs right-hand sides, `width` doubles a bin of its share. Poles side by side
 * have right-hand sides beside the factors, bins in the middle, and no share. */
void take_batch(arena &m, const kind &v, size_t groups, size_t nrhs, size_t width, batch &b)
{
    const bool together = !v.wide && v.lanes >= WARP;
    const size_t each = groups * v.npole * (v.wide ? 1 : together ? v.lanes : WARP), line = (size_t)v.mm + 1;
    b.lower =
        m.take<double>(together ? each * (v.rows + v.mm) * round_to((int)line + FACTOR_MORE, 2) : each * v.rows * line);
    b.rhs = m.take<double>(together ? 0 : each * v.rows * nrhs);
    b.share = m.take<double>(together ? 0 : each * v.span * width);
    b.window = m.take<double>(v.wide            ? (window_is_shared(v.mm) ? 0 : each * band_window(v.mm))
                              : has_lanes(v.mm) ? 0
                                                : each * line * line);
}

/* Works on a list, as many items at a time as there is room for, kinds side by side: launch(kind, batch, groups,
 * stream), and after(kind, batch, groups, stream) when all that find room are on their way. */
template <class LAUNCH, class AFTER>
void in_batches(arena m, const list &l, tables &t, size_t nrhs, size_t width, slot *s, LAUNCH launch, AFTER after)
{
    struct {
        kind of;
        batch b;
        int groups;
        cudaStream_t stream;
    } under_way[MOST_KINDS];
    int count = 0;
    item *items = m.take<item>((size_t)l.nitem);
    put(s, items, (const item *)t.items, (size_t)l.nitem);
    arena rest = m;
    const auto finish = [&]() {
        for (int i = 0; i < count; i++)
            after(under_way[i].of, under_way[i].b, under_way[i].groups, under_way[i].stream);
        join(s, count);
        spx::check(cudaGetLastError(), "launch");
        count = 0;
        rest = m;
    };
    for (int i = 0; i < l.nkinds; i++)
        for (int first = 0, pole = 0; first < l.kinds[i].count;) {
            kind v = l.kinds[i];
            const int members = v.lanes < WARP ? WARP / v.lanes : 1, left = (v.count - first + members - 1) / members;
            int groups = pole > 0 ? 1 : left < MOST_GROUPS ? left : (int)MOST_GROUPS;
            v.npole -= pole;
            batch b = {};
            const auto fits = [&]() {
                arena counted = {NULL, rest.used, rest.size};
                take_batch(counted, v, (size_t)groups, nrhs, width, b);
                return counted.used <= counted.size;
            };
            while (groups > 1 && !fits())
                groups -= (groups + 7) / 8;
            if (count > 0 && (groups < left || !fits())) { /* with all of the room */
                finish();
                continue;
            }
            while (v.npole > 1 && !fits())
                v.npole /= 2;
            if (!fits())
                spx::fail("too little memory on the device for one group of traces: give more "
                          "({max_device_mem}), or use {device} cpu");
            take_batch(rest, v, (size_t)groups, nrhs, width, b);
            b.at = items + v.first + first;
            b.count = groups * members < v.count - first ? groups * members : v.count - first;
            b.mm = v.mm;
            b.lanes = v.lanes;
            b.rows = v.rows;
            b.span = v.span;
            b.pole0 = pole;
            b.npole = v.npole;
            under_way[count] = {v, b, groups, NULL};
            fork(s, count, &under_way[count].stream);
            launch(v, b, groups, under_way[count++].stream);
            pole += v.npole;
            if (pole < l.kinds[i].npole) { /* its sums are added to */
                finish();
            } else {
                first += b.count;
                pole = 0;
            }
        }
    finish();
}

/* Doubles that the square root of a piece takes at least, and those with which nothing waits for memory. */
void root_size(const params &k, size_t *least, size_t *best)
{
    params w = k;
    cut(w, LONG, 0);
    const auto size = [&](bool wide, int mm, int rows, int span) {
        arena m = {NULL, 0, 0};
        const kind v = {wide, wide || !has_lanes(mm) ? WARP : MOST_WARPS * WARP, mm, 0, 0, round_to(rows, STRIDE), span,
                        1};
        batch b;
        take_batch(m, v, 1, 2, (size_t)k.h + 3, b);
        return m.used / sizeof(double);
    };
    const size_t line = size(true, k.band, k.n, k.n);
    const size_t group = size(false, 9, w.seg / 2 + EXTRA + HALO * 9, 0);
    const size_t items = (size_t)k.lanes * (w.nseg + k.n / BOUNDS + 2);
    const size_t list_size = items * sizeof(item) / sizeof(double) + 512;
    *least = group > line ? group : line;
    if (k.band >= 6) { /* traces whose segments do not fit together */
        const size_t whole = size(false, k.band < WIDER ? k.band : (int)WIDER, k.n / 2 + 1, 0);
        *least = whole > *least ? whole : *least;
    }
    if (k.band < 6) { /* traces in one piece */
        const size_t piece = size(false, k.band, k.n, 0);
        *least = piece > *least ? piece : *least;
    }
    *least += list_size;
    *best = group * ((size_t)k.lanes * w.nseg + 16) + 64 * line + list_size;
    *best = *best > *least ? *best : *least;
}

/* ---- bounds ---- */

/* The largest eigenvalue is at most the largest sum of magnitudes of a row of A_s (Gershgorin): block (lanes, bins), a
 * thread MAGNITUDES bins. */
enum { MAGNITUDES = 8 };

__global__ void magnitudes_kernel(params k)
{
    const int column = blockIdx.x * WARP + threadIdx.x, first = (blockIdx.y * blockDim.y + threadIdx.y) * MAGNITUDES;
    if (column >= k.lanes || first >= k.n || k.wanted[column] < 0)
        return;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const double *a = k.a + column;
    const int last = min(first + MAGNITUDES, k.n),
              most = max(k.m, needed(k.need, k, column, first - k.band, last + k.band));
    double largest = 0.0;
    for (int j = first; j < last; j++) {
        double sum = fabs(a[j * arow]);
        for (int d = 1; d <= most; d++) {
            sum += fabs(a[j * arow + d * lanes]);
            if (j >= d)
                sum += fabs(a[(j - d) * arow + d * lanes]);
        }
        largest = fmax(largest, sum);
    }
    raise_to(&k.bound[lanes + column], largest);
}

/* Solutions that the norm of the inverse is estimated from, as in smallest() of the CPU: for the signs 1, -1, ..., for
 * the signs of that, and two of inverse iteration or more, as long as what they say grows. Where traces cross, the
 * largest eigenvalue of the inverse may be that of a few bins, of which the signs have little: after four solutions the
 * estimate stood at 0.3 of it, and began to grow after six. */
enum { BOUND_STEPS = 4, COUPLED_BOUND_STEPS = 8, BOUND_MOST_STEPS = 20 };
__device__ constexpr double BOUND_GROWS = 1.1, COUPLED_BOUND_GROWS = 1.02;

/* Of these: what the last one has, and the one before, of all bins worked on; the largest of the item's own. */
struct inverse_norm {
    const int least;
    const double grows;
    double last = 1.0, before = 0.0, most = 0.0;

    __device__ explicit inverse_norm(const params &k)
        : least(k.coupled ? COUPLED_BOUND_STEPS : BOUND_STEPS), grows(k.coupled ? COUPLED_BOUND_GROWS : BOUND_GROWS)
    {
    }
    /* After solution number `step` with the largest elements `size` of all bins and `own` of the item's: whether it
     * was the last. */
    __device__ bool ends(int step, double size, double own)
    {
        const double grown = step < 2 ? size : size / last;
        const bool settled = step + 1 >= least && grown <= grows * before;
        most = fmax(most, step < 2 ? own : grown);
        before = grown;
        last = size;
        return settled || step + 1 == BOUND_MOST_STEPS;
    }
};

/* Bounds of the eigenvalues (see smallest() and root_of() of the CPU): a thread an item, WARP / o.lanes of them a
 * block. M = 0: any bandwidth o.mm. The first signs are solved for while factors are made. */
template <int M> __global__ void bounds_kernel(params k, batch o)
{
    extern __shared__ double shared[];
    const int in = threadIdx.x, items = WARP / o.lanes, i = blockIdx.x * items + in, mm = o.mm;
    if (in >= items || i >= o.count)
        return;
    const item v = o.at[i];
    const int n = v.end - v.begin;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes, lrow = (size_t)(mm + 1) * WARP;
    const double *a = k.a + v.begin * arow + v.column;
    double *l = o.lower + blockIdx.x * o.rows * lrow + in, *z = o.rhs + (size_t)blockIdx.x * o.rows * WARP + in;
    inverse_norm norm(k);
    bool good;
    const auto sign = [&](int j) { return (v.begin + j) % 2 == 0 ? 1.0 : -1.0; };
    if constexpr (M > 0) {
        forth_window<M> window;
        good = factor<M>(
            n, a, arow, lanes, 0.0, [&](int j) { return l + j * lrow; }, WARP, shared + in,
            [&](int j, const double(&column)[M + 1]) { z[(size_t)j * WARP] = window.next(sign(j), column); });
        __threadfence_block();
    } else {
        int j = 0;
        double sum = sign(0);
        good = factor_any(n, mm, a, arow, lanes, 0.0, l, lrow, WARP, o.window + blockIdx.x * (mm + 1) * lrow + in, WARP,
                          [&](int t, double lt) {
                              if (t > 0) {
                                  sum = fma(-lt, z[(size_t)(j - t) * WARP], sum);
                                  return;
                              }
                              z[(size_t)j++ * WARP] = sum;
                              sum = sign(j);
                          });
    }
    for (int step = 0;; step++) {
        if (step > 0)
            solve_forth<M>(n, mm, l, lrow, WARP, z, WARP, z, WARP, shared + in,
                           [&](int, double b) { return step == 1 ? copysign(1.0, b) : b; });
        double size = 0.0, own = 0.0;
        solve_back<M>(n, 0, mm, l, lrow, WARP, z, WARP, shared + in, [&](int j, double b, double) {
            z[(size_t)j * WARP] = b;
            size = fmax(size, fabs(b));
            if (step < 2 && v.begin + j >= v.first && v.begin + j < v.last)
                own = fmax(own, fabs(b));
        });
        if (norm.ends(step, size, own))
            break;
        __threadfence_block();
    }
    if (!good)
        atomicOr(&k.bad[v.column / k.nl], BAD_ROOT);
    raise_to(&k.bound[v.column], norm.most);
}

/* Poles of each fibre: the fewest that are exact enough. Block (lane). */
__global__ void __launch_bounds__(POLE_THREADS *TRIES) poles_kernel(params k)
{
    __shared__ pole_tries tries;
    const int column = blockIdx.x, me = threadIdx.x;
    if (k.wanted[column] < 0)
        return;
    /* other blocks may be about to say so: all threads go by what one has seen */
    if (__syncthreads_or(me == 0 && threadIdx.y == 0 && (k.bad[column / k.nl] & BAD_ROOT)))
        return;
    const double b = k.bound[k.lanes + column], least = 0.5 / k.bound[column], a = least < b ? least : b;
    if (!(least > 0.0 && b < INFINITY)) {
        if (me == 0 && threadIdx.y == 0)
            atomicOr(&k.bad[column / k.nl], BAD_ROOT);
        return;
    }
    const pole_choice p = choose_poles(tries, a, b, k.root_error);
    if (p.n == 0)
        return;
    for (int j = me; j < p.n; j += POLE_THREADS) {
        k.shift[(size_t)j * k.lanes + column] = p.shift[j];
        k.pole_weight[(size_t)j * k.lanes + column] = p.weight[j];
    }
    if (me == 0) {
        double total = 0.0;
        for (int j = 0; j < p.n; j++)
            total += p.weight[j];
        k.npole[column] = p.n;
        k.total[column] = total;
    }
}

} // namespace

#endif
