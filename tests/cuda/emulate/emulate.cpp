/* Threads of the emulated device: see cuda_runtime.h. */
#include "cuda_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

namespace spx_emulated
{

thread_local place here;

namespace
{

enum { STACK = 256 << 10, MOST_THREADS = 1024 };
enum state { READY, AT_BARRIER, DONE };

struct warp {
    unsigned there; /* lanes that have not ended */
    unsigned arrived[2],
        all[2]; /* lanes that have come to an exchange, by its parity, and those that did when it ended */
    uint64_t value[2][WARP];
    unsigned long ended; /* exchanges that all have come to */
};

struct fiber {
    void *stack, *sp;
    state is;
    unsigned long exchanges;
    place at;
};

/* Of a thread of the host. */
struct machine {
    fiber fibers[MOST_THREADS] = {};
    warp warps[MOST_THREADS / WARP];
    void *scheduler = nullptr; /* its stack pointer */
    int current = 0, counted[2] = {0, 0};
    unsigned long barriers = 0;
    const std::function<void()> *kernel = nullptr;
    std::vector<double2> dynamic;

    ~machine()
    {
        for (fiber &f : fibers)
            if (f.stack)
                munmap(f.stack, STACK);
    }
};
thread_local machine m;

extern "C" void spx_emulated_switch(void **from, void *to);
asm(R"(
.text
.globl spx_emulated_switch
.type spx_emulated_switch,@function
spx_emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size spx_emulated_switch,.-spx_emulated_switch
)");

void yield()
{
    fiber &f = m.fibers[m.current];
    spx_emulated_switch(&f.sp, m.scheduler);
}

void body()
{
    (*m.kernel)();
    fiber &f = m.fibers[m.current];
    f.is = DONE;
    m.warps[m.current / WARP].there &= ~(1u << m.current % WARP);
    yield();
    abort();
}

void prepare(fiber &f)
{
    if (!f.stack) {
        f.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f.stack == MAP_FAILED) {
            fputs("emulated device: no memory for stacks\n", stderr);
            abort();
        }
    }
    void **top = (void **)((char *)f.stack + STACK) - 3;
    *--top = (void *)body; /* the stack is as after a call when it begins */
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f.sp = top;
    f.is = READY;
    f.exchanges = 0;
}

/* Runs the threads of a warp as far as they come; false: none has moved, and some are neither done nor at the barrier.
 */
bool run_warp(int first, int last)
{
    warp &w = m.warps[first / WARP];
    for (;;) {
        bool waits = false, moved = false;
        for (int t = first; t < last; t++) {
            fiber &f = m.fibers[t];
            if (f.is != READY)
                continue;
            const unsigned long before = f.exchanges, ended = w.ended;
            m.current = t;
            here = f.at;
            spx_emulated_switch(&m.scheduler, f.sp);
            waits |= f.is == READY;
            moved |= f.is != READY || f.exchanges != before || w.ended != ended;
        }
        if (!waits)
            return true;
        if (!moved)
            return false;
    }
}

} // namespace

void wait_block()
{
    m.fibers[m.current].is = AT_BARRIER;
    yield();
}

unsigned exchange(uint64_t mine, const uint64_t **all)
{
    fiber &f = m.fibers[m.current];
    warp &w = m.warps[m.current / WARP];
    const unsigned long number = f.exchanges++;
    const int parity = (int)(number & 1), lane = m.current % WARP;
    w.value[parity][lane] = mine;
    w.arrived[parity] |= 1u << lane;
    while (w.ended <= number) {
        if ((w.arrived[parity] & w.there) == w.there) {
            w.ended = number + 1;
            w.all[parity] = w.there;
            w.arrived[parity] = 0;
            break;
        }
        yield();
    }
    *all = w.value[parity];
    return w.all[parity];
}

void launch(const char *name, dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel)
{
    const int n = (int)(block.x * block.y * block.z);
    if (n < 1 || n > MOST_THREADS || grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535 ||
        shared > 227 << 10) {
        fprintf(stderr, "emulated device: %d threads, grid %u x %u x %u, %zu bytes of shared memory: %s\n", n, grid.x,
                grid.y, grid.z, shared, name);
        abort();
    }
    m.kernel = &kernel;
    m.dynamic.resize(shared / sizeof(double2) + 1);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                memset((void *)m.dynamic.data(), 0xff, m.dynamic.size() * sizeof(double2));
                for (int t = 0; t < n; t++) {
                    const unsigned i = (unsigned)t;
                    prepare(m.fibers[t]);
                    m.fibers[t].at = {dim3(i % block.x, i / block.x % block.y, i / (block.x * block.y)),
                                      dim3(x, y, z),
                                      block,
                                      grid,
                                      t % WARP,
                                      (char *)m.dynamic.data()};
                }
                for (int t = 0; t < n; t += WARP) {
                    warp &w = m.warps[t / WARP];
                    w.there = n - t < WARP ? (1u << (n - t)) - 1 : 0xffffffffu;
                    w.arrived[0] = w.arrived[1] = 0;
                    w.ended = 0;
                }
                m.barriers = 0;
                m.counted[0] = m.counted[1] = 0;
                for (bool any = true; any;) {
                    for (int t = 0; t < n; t += WARP)
                        if (!run_warp(t, n - t < WARP ? n : t + WARP)) {
                            fprintf(stderr, "emulated device: threads wait for what others do not do: %s\n", name);
                            abort();
                        }
                    any = false;
                    for (int t = 0; t < n; t++)
                        if (m.fibers[t].is == AT_BARRIER) {
                            m.fibers[t].is = READY;
                            any = true;
                        }
                    m.barriers++;
                }
            }
}

} // namespace spx_emulated

int __syncthreads_count(int v)
{
    using namespace spx_emulated;
    const int which = (int)(m.barriers & 1);
    m.counted[which] += v != 0;
    wait_block();
    const int count = m.counted[which];
    wait_block();
    m.counted[which] = 0;
    return count;
}

/* Memory of a device has anything in it: NaN. */
extern "C" cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!*p)
        return cudaErrorMemoryAllocation;
    memset(*p, 0xff, bytes);
    return cudaSuccess;
}

extern "C" cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)4 << 30;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
