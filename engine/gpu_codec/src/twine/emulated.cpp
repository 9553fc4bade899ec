// The kernels on the processor, for a test: every lane is a fiber of its own, and lanes change
// places where those of a warp or a block meet. A kernel's text follows this one, and behind it
// what runs its blocks. Several threads of the system run blocks at once, as a device does.

#include <sched.h>
#include <setjmp.h>
#include <ucontext.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define THREADS (32 * WARPS)

struct Index {
    unsigned x;
};
static thread_local Index threadIdx, blockIdx, gridDim;

struct Fiber {
    ucontext_t start;
    jmp_buf place;
    bool begun, ended;
    char *stack;
};

// A meeting of so many lanes; it may be held again at once.
struct Meeting {
    unsigned here, number;
};

static thread_local Fiber fibers[THREADS];
static thread_local jmp_buf scheduler;
static thread_local ucontext_t first;
static thread_local Meeting warps[WARPS], block;
static thread_local unsigned long long said[2][THREADS];
static thread_local void (*body)();

static void change() {
    Fiber &own = fibers[threadIdx.x];
    if (!_setjmp(own.place)) _longjmp(scheduler, 1);
}

static void meet(Meeting &meeting, unsigned all) {
    unsigned number = meeting.number;
    if (++meeting.here == all) {
        meeting.here = 0;
        meeting.number++;
        return;
    }
    while (meeting.number == number) change();
}

static inline unsigned own_warp() { return threadIdx.x / 32; }
static inline unsigned own_lane() { return threadIdx.x % 32; }
static inline void __syncwarp() { meet(warps[own_warp()], 32); }
static inline void __syncthreads() { meet(block, THREADS); }

// What the lanes of the warp say, once all have said it.
static unsigned long long *exchange(unsigned long long value) {
    unsigned long long *place = said[warps[own_warp()].number & 1] + 32 * own_warp();
    place[own_lane()] = value;
    __syncwarp();
    return place;
}

template <typename T>
static T said_by(T value, unsigned lane) {
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(bits)[lane];
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
static T __shfl_up_sync(unsigned, T value, unsigned d) {
    return said_by(value, own_lane() >= d ? own_lane() - d : own_lane());
}
template <typename T>
static T __shfl_xor_sync(unsigned, T value, unsigned d) {
    return said_by(value, own_lane() ^ d);
}
template <typename T>
static T __shfl_sync(unsigned, T value, unsigned lane) {
    return said_by(value, lane);
}
static unsigned __ballot_sync(unsigned, bool is) {
    unsigned long long *all = exchange(is);
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i++) sum |= (unsigned)all[i] << i;
    return sum;
}
static bool __any_sync(unsigned, bool is) { return __ballot_sync(0, is) != 0; }
static bool __all_sync(unsigned, bool is) { return __ballot_sync(0, is) == ~0u; }
static unsigned __reduce_add_sync(unsigned, unsigned value) {
    unsigned long long *all = exchange(value);
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i++) sum += (unsigned)all[i];
    return sum;
}
static unsigned __reduce_or_sync(unsigned, unsigned value) {
    unsigned long long *all = exchange(value);
    unsigned sum = 0;
    for (unsigned i = 0; i < 32; i++) sum |= (unsigned)all[i];
    return sum;
}
static unsigned __reduce_max_sync(unsigned, unsigned value) {
    unsigned long long *all = exchange(value);
    unsigned most = 0;
    for (unsigned i = 0; i < 32; i++) most = all[i] > most ? (unsigned)all[i] : most;
    return most;
}
static unsigned __reduce_min_sync(unsigned, unsigned value) {
    unsigned long long *all = exchange(value);
    unsigned least = ~0u;
    for (unsigned i = 0; i < 32; i++) least = all[i] < least ? (unsigned)all[i] : least;
    return least;
}
static bool __syncthreads_and(bool is) {
    static thread_local unsigned no[2];
    unsigned turn = block.number & 1;
    if (!is) no[turn]++;
    __syncthreads();
    bool all = no[turn] == 0;
    __syncthreads();
    no[turn] = 0;
    __syncthreads();
    return all;
}

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }
static inline unsigned atomicAdd(unsigned *to, unsigned x) {
    return __atomic_fetch_add(to, x, __ATOMIC_SEQ_CST);
}
static inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long x) {
    return __atomic_fetch_add(to, x, __ATOMIC_SEQ_CST);
}
static void atomicAdd(double *to, double x) {
    double now, next;
    __atomic_load(to, &now, __ATOMIC_SEQ_CST);
    do next = now + x;
    while (!__atomic_compare_exchange(to, &now, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}
static void atomicMax(unsigned long long *to, unsigned long long x) {
    unsigned long long now = __atomic_load_n(to, __ATOMIC_SEQ_CST);
    while (now < x && !__atomic_compare_exchange_n(to, &now, x, false, __ATOMIC_SEQ_CST,
                                                   __ATOMIC_SEQ_CST)) {
    }
}

// How often others get their turn before the sum of all tiles up to one is told.
#ifndef SLOW_SUMS
#define SLOW_SUMS 0
#endif

static inline void publish(unsigned long long *to, unsigned long long value) {
    for (int i = 0; (value >> 35 & 2) && i < SLOW_SUMS; i++) sched_yield();
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
static inline unsigned long long look_at(const unsigned long long *from) {
    change();
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}
static inline unsigned load_acquire(const unsigned *from) {
    change();
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
static inline void store_for_host(unsigned long long *to, unsigned long long value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
static inline float without_subnormal(float x) { return fabsf(x) < 0x1p-126f ? 0.0f : x; }
static inline void pause() { sched_yield(); }
static inline void pause_long() { sched_yield(); }

// A device stops at other addresses, a processor does not.
static void require_multiple(const void *address, size_t unit) {
    if ((size_t)address % unit) {
        fprintf(stderr, "%p is not a multiple of %zu\n", address, unit);
        abort();
    }
}

// What a lane fetches is there when it waits for it, and not before.
struct Fetch {
    unsigned *to;
    const unsigned *from;
    unsigned words;
};
static thread_local std::vector<Fetch> fetches[THREADS];
typedef unsigned *Place;

static Place place_in_shared(unsigned *to) { return to; }
static void fetch16(Place to, unsigned words, const unsigned *from) {
    require_multiple(to + words, 16);
    require_multiple(from, 16);
    fetches[threadIdx.x].push_back({to + words, from, 4});
}
static void fetch4(Place to, unsigned words, const unsigned *from) {
    fetches[threadIdx.x].push_back({to + words, from, 1});
}
static void wait_for_fetched() {
    for (Fetch &fetch : fetches[threadIdx.x]) memcpy(fetch.to, fetch.from, 4 * fetch.words);
    fetches[threadIdx.x].clear();
}

static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned sum = 0;
    for (int i = 0; i < 4; i++) {
        sum |= (unsigned)(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    }
    return sum;
}
static unsigned permuted(unsigned x, unsigned selector) {
    unsigned sum = 0;
    for (int i = 0; i < 4; i++) {
        unsigned one = selector >> (4 * i), byte = x >> (8 * (one & 3)) & 0xff;
        sum |= (one & 8 ? byte >> 7 ? 0xffu : 0u : byte) << (8 * i);
    }
    return sum;
}
template <typename To, typename From>
static To same_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned b) { return same_bits<float>(b); }
static float __int_as_float(int b) { return same_bits<float>(b); }
static unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static double __longlong_as_double(long long b) { return same_bits<double>(b); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static double __dmul_rn(double a, double b) { return a * b; }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static double __ull2double_rn(unsigned long long a) { return (double)a; }
static double __dsqrt_rn(double a) { return sqrt(a); }
static int __float2int_rn(float a) {
    if (!(fabsf(a) < 2147483648.0f)) return a > 0 ? 2147483647 : a < 0 ? -2147483647 - 1 : 0;
    return (int)nearbyintf(a);
}
static float __int2float_rn(int a) { return (float)a; }
static long long __double2ll_rn(double a) { return (long long)nearbyint(a); }
static double __ll2double_rn(long long a) { return (double)a; }
static float __double2float_rd(double a) {
    float x = (float)a;
    return (double)x > a ? nextafterf(x, -INFINITY) : x;
}

struct uint4 {
    unsigned x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
template <typename T>
static T __ldcs(const T *from) {
    require_multiple(from, sizeof(T));
    return *from;
}
template <typename T>
static void __stcs(T *to, T value) {
    require_multiple(to, sizeof(T));
    *to = value;
}
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline unsigned long long min(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}
static inline unsigned long long max(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
}

static void enter() {
    body();
    fibers[threadIdx.x].ended = true;
    _longjmp(scheduler, 1);
}

static void run_block() {
    for (Fiber &fiber : fibers) fiber.begun = fiber.ended = false;
    block.here = 0;
    for (Meeting &meeting : warps) meeting.here = 0;
    // Not in order: lanes run ahead of each other, and later ones of earlier ones.
    static thread_local unsigned turn, left, number;
    left = THREADS;
    turn = number = blockIdx.x * 7;
    while (left) {
        // An odd stride, another one for each round.
        turn = (turn + 1 + (number++ / THREADS * 2654435761u >> 20) * 2) % THREADS;
        Fiber &fiber = fibers[turn];
        if (fiber.ended) continue;
        threadIdx.x = turn;
        if (!_setjmp(scheduler)) {
            if (fiber.begun) _longjmp(fiber.place, 1);
            fiber.begun = true;
            getcontext(&fiber.start);
            fiber.start.uc_stack.ss_sp = fiber.stack;
            fiber.start.uc_stack.ss_size = 128 << 10;
            fiber.start.uc_link = nullptr;
            makecontext(&fiber.start, enter, 0);
            setcontext(&fiber.start);
        }
        if (fiber.ended) left--;
    }
}

template <typename Launch>
static void run_blocks(void (*kernel)(Launch), const Launch &launch, unsigned blocks,
                       unsigned workers) {
    static thread_local const Launch *own;
    static thread_local void (*call)(Launch);
    std::atomic<unsigned> next{0};
    auto work = [&] {
        own = &launch;
        call = kernel;
        gridDim.x = blocks;
        body = [] { call(*own); };
        for (Fiber &fiber : fibers) fiber.stack = (char *)malloc(128 << 10);
        while ((blockIdx.x = next++) < blocks) run_block();
        for (Fiber &fiber : fibers) free(fiber.stack);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < workers; i++) threads.emplace_back(work);
    for (std::thread &thread : threads) thread.join();
}
