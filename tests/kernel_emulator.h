// CUDA kernels on the CPU: each thread of a block is a fibre (see kernel_emulator.py).

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>
using std::exp; using std::log; using std::sqrt; using std::tanh; using std::erf; using std::sin; using std::cos;
using std::tan; using std::asin; using std::acos; using std::atan; using std::sinh; using std::cosh; using std::asinh;
using std::acosh; using std::atanh; using std::expm1; using std::log1p; using std::floor; using std::ceil;
using std::rint; using std::pow;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
typedef long long i64; typedef unsigned long long u64; typedef unsigned int u32;
struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };
static inline float infinity() { return INFINITY; }
static inline float not_a_number() { return NAN; }
static inline float half_to_float(half_t x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static inline half_t float_to_half(float x) { _Float16 h = (_Float16)x; half_t y; memcpy(&y, &h, 2); return y; }
static inline half_t double_to_half(double x) { _Float16 h = (_Float16)x; half_t y; memcpy(&y, &h, 2); return y; }
static inline u32 float_bits(float x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline float bits_float(u32 x) { float y; memcpy(&y, &x, 4); return y; }
static inline double exact_product(double a, double b) { return a * b; }
static inline double exact_sum(double a, double b) { return a + b; }
struct Place { int x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

enum State { READY, BLOCK, WARP, DONE };
struct Fibre { ucontext_t context; jmp_buf at; bool started; State state; Place place; std::vector<char> stack; int word; };
static std::vector<Fibre> fibres;
// Contexts start fibres; jumps, which make no system calls, switch between them.
static jmp_buf scheduler;
static int current, live;
static void (*entry)(void**);
static void** arguments;
static u32 seed = 1;

static u32 draw() { seed ^= seed << 13; seed ^= seed >> 17; seed ^= seed << 5; return seed; }
static void wait(State state) {
  Fibre& f = fibres[current];
  f.state = state;
  if (!_setjmp(f.at)) _longjmp(scheduler, 1);
}
static void resume(Fibre& f) {
  if (_setjmp(scheduler)) return;
  if (f.started) _longjmp(f.at, 1);
  f.started = true;
  setcontext(&f.context);
}
static void __syncthreads() { wait(BLOCK); }
static void __syncwarp(u32 = 0) { wait(WARP); }
static void __threadfence() {}
static int warp_start() { return current / 32 * 32; }
static int exchange(int word, int lane) {
  fibres[current].word = word;
  wait(WARP);
  const int from = lane < 32 ? warp_start() + lane : current;
  if (from >= (int)fibres.size() || from >= live || fibres[from].state == DONE) { fprintf(stderr, "shuffle from an absent lane\n"); abort(); }
  const int result = fibres[from].word;
  wait(WARP);
  return result;
}
static int __shfl_down_sync(u32, int word, int lanes) { return exchange(word, current % 32 + lanes); }
static int __shfl_up_sync(u32, int word, int lanes) { return exchange(word, current % 32 < lanes ? 32 : current % 32 - lanes); }
static int __shfl_sync(u32, int word, int lane) { return exchange(word, lane); }
static u32 __ballot_sync(u32, int test) {
  fibres[current].word = test != 0;
  wait(WARP);
  u32 bits = 0;
  for (int lane = 0; lane < 32 && warp_start() + lane < live; ++lane) bits |= (u32)fibres[warp_start() + lane].word << lane;
  wait(WARP);
  return bits;
}
static int __popc(u32 x) { return __builtin_popcount(x); }
template <class T> static T __ldcg(const T* p) { return *p; }
template <class T> static T atomicAdd(T* p, T x) { T before = *p; *p += x; return before; }
template <class T> static T atomicCAS(T* p, T expected, T x) { T before = *p; if (before == expected) *p = x; return before; }

static void start() {
  entry(arguments);
  fibres[current].state = DONE;
  _longjmp(scheduler, 1);
}
static void release(int from, int to, State state) {
  bool any = false;
  for (int i = from; i < to; ++i) {
    if (fibres[i].state == READY) return;
    if (fibres[i].state != DONE && fibres[i].state != state) return;
    any = any || fibres[i].state == state;
  }
  for (int i = from; any && i < to; ++i)
    if (fibres[i].state == state) fibres[i].state = READY;
}
static void run_block() {
  live = blockDim.x * blockDim.y * blockDim.z;
  if ((int)fibres.size() < live) fibres.resize(live);
  for (int i = 0; i < live; ++i) {
    Fibre& f = fibres[i];
    if (f.stack.empty()) f.stack.resize(1 << 16);
    f.state = READY;
    f.started = false;
    f.place = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    makecontext(&f.context, start, 0);
  }
  for (;;) {
    const int first = draw() % live, step = draw() % 2 ? 1 : live - 1;
    bool ran = false, all = true;
    for (int n = 0, i = first; n < live; ++n, i = (i + step) % live) {
      all = all && fibres[i].state == DONE;
      if (fibres[i].state != READY) continue;
      ran = true;
      current = i;
      threadIdx = fibres[i].place;
      resume(fibres[i]);
    }
    if (all) return;
    for (int w = 0; w < live; w += 32) release(w, w + 32 < live ? w + 32 : live, WARP);
    release(0, live, BLOCK);
    if (!ran) {
      bool ready = false;
      for (int i = 0; i < live; ++i) ready = ready || fibres[i].state == READY;
      if (!ready) { fprintf(stderr, "deadlock: threads wait at different barriers\n"); abort(); }
    }
  }
}
static void run_grid(void (*function)(void**), const int* grid, const int* block, void** args, u32 order) {
  entry = function; arguments = args; seed = order * 2654435761u + 1;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  const bool backwards = order % 2;
  const i64 blocks = (i64)grid[0] * grid[1] * grid[2];
  for (i64 n = 0; n < blocks; ++n) {
    const i64 b = backwards ? blocks - 1 - n : n;
    blockIdx = {(int)(b % grid[0]), (int)(b / grid[0] % grid[1]), (int)(b / grid[0] / grid[1])};
    run_block();
  }
}
