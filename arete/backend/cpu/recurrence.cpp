// Recurrences: a thread takes some rows through all their steps, the states of which are a block of
// the interpreter (or blocks, if one row has more).
#include <algorithm>
#include <array>
#include <cstring>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/interpreter.h"
#include "arete/backend/cpu/tiling.h"
#include "arete/base/thread_pool.h"
#include "arete/prim/checks.h"
#include "arete/prim/recurrence.h"
#include "arete/prim/slots.h"

namespace arete::cpu {
namespace {

using prim::RecurrenceArgs;
using prim::View;

class RowWalker {
 public:
  /// Rows [first, first + rows).
  RowWalker(const RecurrenceArgs& args, const expr::Program& program, int64_t first, int64_t rows)
      : args_(args),
        program_(program),
        first_(first),
        rows_(rows),
        numel_(rows * args.states),
        state_size_(int64_t(size_of(args.program->inputs()[0]))),
        out_size_(int64_t(size_of(args.out.dtype))),
        emits_(args.program->outputs().size() == 2),
        every_(args.out.sizes[0] == args.steps),
        out_strides_(prim::strides_of(args, args.out)) {}

  void run() {
    buffers_[0] = arena_.take(size_t(numel_ * state_size_));
    buffers_[1] = arena_.take(size_t(numel_ * state_size_));
    const bool dense = is_dense(out_strides_, out_size_);
    if (emits_ && !dense) emitted_ = arena_.take(size_t(numel_ * out_size_));
    start();
    plan_inputs();
    const Code& code = code_for(program_, key_);
    Frame frame(code, args_.params,
                code.register_bytes ? arena_.take(code.register_bytes) : nullptr);
    std::byte* now = buffers_[0];
    for (int64_t k = 0; k < args_.steps; ++k) {
      const int64_t t = args_.reverse ? args_.steps - 1 - k : k;
      std::byte* const out = args_.out.data + first_ * out_strides_[1] + t * out_strides_[0];
      // Where states are written as they are, the next step reads them there.
      std::byte* next = every_ && !emits_ && dense ? out
                        : now == buffers_[0]       ? buffers_[1]
                                                   : buffers_[0];
      std::byte* const emitted = dense ? out : emitted_;
      if (t < longest_) {
        step(frame, t, now, next, emitted);
        now = next;
      } else if (!every_) {
        continue;
      } else if (emits_) {
        std::memset(emitted, 0, size_t(numel_ * out_size_));
      } else if (dense) {
        std::memcpy(out, now, size_t(numel_ * out_size_));
        now = out;
      }
      if (every_ && !dense) spread(out, emits_ ? emitted_ : now);
    }
    if (!every_) spread(args_.out.data + first_ * out_strides_[1], now);
  }

 private:
  struct Input {
    int number;
    const std::byte* data;  // of the first row and step
    int64_t step;           // bytes
    bool uniform;
    std::byte* packed = nullptr;  // else it is read in place
    std::array<int64_t, 3> strides{};
    bool filled = false;
  };

  bool is_dense(const std::array<int64_t, 3>& s, int64_t size) const {
    return (args_.states == 1 || s[2] == size) && (rows_ == 1 || s[1] == args_.states * size);
  }
  /// Copies between dense states and strided ones.
  void spread(std::byte* out, const std::byte* from) const {
    for (int64_t r = 0; r < rows_; ++r)
      copy_run(out + r * out_strides_[1], out_strides_[2], from + r * args_.states * out_size_,
               out_size_, args_.states, size_t(out_size_));
  }
  void gather(std::byte* to, const std::byte* from, const std::array<int64_t, 3>& s,
              int64_t size) const {
    for (int64_t r = 0; r < rows_; ++r)
      copy_run(to + r * args_.states * size, size, from + r * s[1], s[2], args_.states,
               size_t(size));
  }

  void start() {
    if (args_.initial) {
      const std::array<int64_t, 3> s = prim::strides_of(args_, args_.initial);
      gather(buffers_[0], args_.initial.data + first_ * s[1], s, state_size_);
    } else {
      std::memset(buffers_[0], 0, size_t(numel_ * state_size_));
    }
    longest_ = args_.steps;
    if (!args_.lengths) return;
    longest_ = 0;
    for (int64_t r = 0; r < rows_; ++r) longest_ = std::max(longest_, length(r));
  }
  int64_t length(int64_t r) const {
    const int64_t stride = args_.lengths.sizes[0] == 1 ? 0 : args_.lengths.strides[0];
    return args_.lengths.as<int64_t>()[(first_ + r) * stride];
  }

  /// An input of i64 that is f(row, state), or one number if there is one row.
  template <class F>
  void made(int number, bool varies, F&& f) {
    int64_t* const all = arena_.take_array<int64_t>(varies ? numel_ : 1);
    for (int64_t r = 0; r < (varies ? rows_ : 1); ++r)
      for (int64_t j = 0; j < (varies ? args_.states : 1); ++j) all[r * args_.states + j] = f(r, j);
    add({number, reinterpret_cast<const std::byte*>(all), 0, !varies});
  }
  void add(Input input) {
    if (input.uniform) key_.uniform |= uint32_t(1) << input.number;
    inputs_.push_back(input);
  }

  void plan_inputs() {
    const bool several = rows_ > 1;
    key_.uniform = 1 | 1 << 2;  // the states, which are a table, and the step
    made(1, numel_ > 1, [](int64_t, int64_t j) { return j; });
    made(3, several, [&](int64_t r, int64_t) { return first_ + r; });
    for (size_t k = 0; k < args_.inputs.size(); ++k) {
      const View& v = args_.inputs[k];
      const int number = 4 + int(k);
      if (program_.is_table(size_t(number))) {
        add({number, v.data, 0, true});
        continue;
      }
      const std::array<int64_t, 3> s = prim::strides_of(args_, v);
      const int64_t size = int64_t(size_of(v.dtype));
      Input input{number, v.data + first_ * s[1], s[0],
                  (s[2] == 0 || args_.states == 1) && (rows_ == 1 || s[1] == 0)};
      if (!input.uniform && !is_dense(s, size)) {
        input.packed = arena_.take(size_t(numel_ * size));
        input.strides = s;
      }
      add(input);
    }
    const int rest = 4 + int(args_.inputs.size());
    made(rest, several, [&](int64_t r, int64_t) { return r * args_.states; });
    if (args_.lengths) made(rest + 1, several, [&](int64_t r, int64_t) { return length(r); });
  }

  void step(Frame& frame, int64_t t, const std::byte* now, std::byte* next, std::byte* emitted) {
    frame.set_input(0, now);
    frame.set_input(2, &t);
    for (Input& in : inputs_) {
      const std::byte* data = in.data + t * in.step;
      if (in.packed) {
        if (!in.filled || in.step != 0)
          gather(in.packed, data, in.strides,
                 int64_t(size_of(program_.inputs()[size_t(in.number)])));
        in.filled = true;
        data = in.packed;
      }
      frame.set_input(in.number, data);
    }
    frame.run_once();
    const int64_t block = frame.code().block;
    for (int64_t at = 0; at < numel_; at += block) {
      if (at > 0)
        for (const Input& in : inputs_)
          if (!in.uniform)
            frame.set_input(in.number,
                            static_cast<const std::byte*>(frame.input(in.number)) +
                                block * int64_t(size_of(program_.inputs()[size_t(in.number)])));
      frame.set_output(0, next + at * state_size_);
      if (emits_) frame.set_output(1, emitted + at * out_size_);
      frame.run(std::min(block, numel_ - at));
    }
  }

  const RecurrenceArgs& args_;
  const expr::Program& program_;
  const int64_t first_, rows_, numel_, state_size_, out_size_;
  const bool emits_, every_;
  const std::array<int64_t, 3> out_strides_;
  int64_t longest_ = 0;
  ArenaScope arena_;
  std::byte* buffers_[2] = {};
  std::byte* emitted_ = nullptr;
  SmallVector<Input, 12> inputs_;
  CodeKey key_;
};

}  // namespace

void CpuBackend::recurrence(const RecurrenceArgs& args) {
  if (!args.slots.empty()) return recurrence(prim::Addressed(args).args());
  prim::check(args);
  if (args.out.numel() == 0) return;
  const expr::Program& program = prim::program_of_rows(*args.program, bool(args.lengths));
  ARETE_ASSERT(program.inputs().size() <= 32);
  const Code& code = code_for(program, {});
  // Rows go together until they fill a block, but no thread is to be without.
  const int64_t threads = num_threads();
  const int64_t group =
      std::clamp<int64_t>(code.block / args.states, 1, (args.rows + threads - 1) / threads);
  const int64_t groups = (args.rows + group - 1) / group;
  const double cost =
      code.cost * double(group * args.states) * double(std::max<int64_t>(1, args.steps));
  parallel_for(0, groups, grain_for(cost), [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g)
      RowWalker(args, program, g * group, std::min(group, args.rows - g * group)).run();
  });
}

}  // namespace arete::cpu
