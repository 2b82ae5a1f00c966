// Runs the sources of kernels on the host: blocks one after the other, the threads of a block as
// fibers that take turns where they wait for each other. What is done by instructions of the GPU
// alone is done here by the definitions of the PTX ISA, fragments of mma and ldmatrix included.
// To be included by one file, which then includes .cuh files in a namespace of its own.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "arete/core/half.h"

// longjmp() to the stack of another thread would end the program, when a test runs.
#if defined(__USE_FORTIFY_LEVEL) && __USE_FORTIFY_LEVEL > 0
#error "emulated kernels must be compiled with -U_FORTIFY_SOURCE"
#endif

namespace arete::emulation {

struct Dim {
  unsigned x = 0, y = 0, z = 0;
};
inline Dim thread_index, block_index;

/// The threads of one block. run() returns when all have ended.
class Block {
 public:
  explicit Block(int threads) : fibers_(size_t(threads)), warps_(size_t(threads) / 32) {
    for (Fiber& f : fibers_) f.stack.resize(kStackBytes);
  }
  void run(const std::function<void()>& thread) {
    current_block = this;
    body_ = &thread;
    barrier_ = {};
    for (Meeting& w : warps_) w = {};
    for (Fiber& f : fibers_) {
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      f.begun = f.ended = false;
      makecontext(&f.context, &Block::enter, 0);
    }
    for (size_t left = fibers_.size(); left > 0;)
      for (size_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i].ended) continue;
        now_ = i;
        thread_index.x = unsigned(i);
        resume(fibers_[i]);
        left -= fibers_[i].ended;
      }
  }

  /// All lanes of the calling warp bring their arguments; `act` is done once with all of them.
  template <class Args>
  static void together(Args& args, void (*act)(Args* const (&lanes)[32])) {
    Block& b = *current_block;
    Meeting& m = b.warps_[b.now_ / 32];
    m.arguments[b.now_ % 32] = &args;
    b.meet(m, 32, [&] {
      Args* lanes[32];
      for (int i = 0; i < 32; ++i) lanes[i] = static_cast<Args*>(m.arguments[i]);
      act(lanes);
    });
  }
  static void barrier() {
    Block& b = *current_block;
    b.meet(b.barrier_, b.fibers_.size(), [] {});
  }
  /// The others' turn, where the calling thread waits for what they write.
  static void pause() {
    Block& b = *current_block;
    b.yield(b.fibers_[b.now_]);
  }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  struct Fiber {
    ucontext_t context;  // in which it begins
    jmp_buf place;       // where it goes on
    std::vector<char> stack;
    bool begun = false, ended = false;
  };
  struct Meeting {
    size_t arrived = 0;
    uint64_t number = 0;
    void* arguments[32] = {};
  };

  static void enter() {
    Block& b = *current_block;
    (*b.body_)();
    b.fibers_[b.now_].ended = true;
    _longjmp(b.scheduler_, 1);
  }
  // swapcontext() would ask the kernel for the mask of signals each time, which takes longer than
  // what most turns do.
  void resume(Fiber& f) {
    if (_setjmp(scheduler_) != 0) return;
    if (f.begun) _longjmp(f.place, 1);
    f.begun = true;
    setcontext(&f.context);
  }
  void yield(Fiber& f) {
    if (_setjmp(f.place) == 0) _longjmp(scheduler_, 1);
  }
  template <class F>
  void meet(Meeting& m, size_t all, F&& act) {
    if (++m.arrived == all) {
      act();
      m.arrived = 0;
      ++m.number;
      return;
    }
    const size_t self = now_;
    for (const uint64_t number = m.number; m.number == number;) yield(fibers_[self]);
  }

  static inline Block* current_block = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<Meeting> warps_;
  Meeting barrier_;
  jmp_buf scheduler_;
  const std::function<void()>* body_ = nullptr;
  size_t now_ = 0;
};

/// cp.async, done at once.
template <int kBytes>
void copy_async(void* to, const void* from, int bytes = kBytes) {
  if (reinterpret_cast<uintptr_t>(to) % kBytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % kBytes != 0)
    throw std::logic_error("cp.async: alignment");
  if (bytes < 0 || bytes > kBytes) throw std::logic_error("cp.async: bytes");
  std::memcpy(to, from, size_t(bytes));
  std::memset(static_cast<char*>(to) + bytes, 0, size_t(kBytes - bytes));
}

inline float as_float(uint32_t v) { return __builtin_bit_cast(float, v); }
inline uint32_t as_word(float v) { return __builtin_bit_cast(uint32_t, v); }

/// mma.sync.m16n8k8 (tf32) and m16n8k16 (half types): `kElements` of k in a word. Sums are rounded
/// towards zero, as tensor cores do.
template <int kElements, float (*value)(uint32_t word, int element)>
void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Args {
    float* c;
    const uint32_t *a, *b;
  } args{c, a, b};
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    constexpr int kDepth = 8 * kElements;
    float left[16][kDepth], right[kDepth][8];
    for (int t = 0; t < 32; ++t)
      for (int e = 0; e < kElements; ++e) {
        const int group = t / 4, in_group = t % 4;
        for (int i = 0; i < 4; ++i)
          left[group + i % 2 * 8][in_group * kElements + e + i / 2 * 4 * kElements] =
              value(lanes[t]->a[i], e);
        for (int i = 0; i < 2; ++i)
          right[in_group * kElements + e + i * 4 * kElements][group] = value(lanes[t]->b[i], e);
      }
    for (int t = 0; t < 32; ++t)
      for (int i = 0; i < 4; ++i) {
        const int row = t / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
        double sum = lanes[t]->c[i];
        for (int k = 0; k < kDepth; ++k) sum += double(left[row][k]) * right[k][column];
        const float rounded = float(sum);
        lanes[t]->c[i] =
            std::abs(double(rounded)) > std::abs(sum) ? std::nextafter(rounded, 0.0f) : rounded;
      }
  });
}
inline float tf32_value(uint32_t word, int) { return as_float(word & 0xffffe000u); }
inline float f16_value(uint32_t word, int e) {
  Half h;
  h.bits = uint16_t(word >> 16 * e);
  return h;
}
inline float bf16_value(uint32_t word, int e) { return as_float((word >> 16 * e) << 16); }

/// ldmatrix.x4 of lines in memory; `transposed` with .trans.
inline void load_matrices(uint32_t (&r)[4], const char* line, bool transposed) {
  struct Args {
    uint32_t* r;
    const char* line;
    bool transposed;
  } args{r, line, transposed};
  if (reinterpret_cast<uintptr_t>(line) % 16 != 0) throw std::logic_error("ldmatrix: alignment");
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    for (int m = 0; m < 4; ++m)
      for (int t = 0; t < 32; ++t) {
        uint16_t pair[2];
        for (int e = 0; e < 2; ++e) {
          const int row = lanes[t]->transposed ? t % 4 * 2 + e : t / 4,
                    column = lanes[t]->transposed ? t / 4 : t % 4 * 2 + e;
          std::memcpy(&pair[e], lanes[8 * m + row]->line + 2 * column, 2);
        }
        std::memcpy(&lanes[t]->r[m], pair, 4);
      }
  });
}

template <class T>
T exchange(T v, int mask) {
  struct Args {
    T in, out;
    int mask;
  } args{v, v, mask};
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    for (int t = 0; t < 32; ++t) lanes[t]->out = lanes[t ^ lanes[t]->mask]->in;
  });
  return args.out;
}

/// __shfl_up_sync.
template <class T>
T shuffle_up(T v, int by) {
  struct Args {
    T in, out;
    int by;
  } args{v, v, by};
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    for (int t = lanes[0]->by; t < 32; ++t) lanes[t]->out = lanes[t - lanes[t]->by]->in;
  });
  return args.out;
}

/// __shfl_sync.
template <class T>
T broadcast(T v, int from) {
  struct Args {
    T in, out;
    int from;
  } args{v, v, from};
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    for (int t = 0; t < 32; ++t) lanes[t]->out = lanes[lanes[t]->from]->in;
  });
  return args.out;
}

/// __ballot_sync.
inline uint32_t ballot(bool v) {
  struct Args {
    bool in;
    uint32_t out;
  } args{v, 0};
  Block::together<Args>(args, [](Args* const(&lanes)[32]) {
    uint32_t all = 0;
    for (int t = 0; t < 32; ++t) all |= uint32_t(lanes[t]->in) << t;
    for (int t = 0; t < 32; ++t) lanes[t]->out = all;
  });
  return args.out;
}

}  // namespace arete::emulation
