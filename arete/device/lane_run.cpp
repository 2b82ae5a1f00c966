// Kernels run in lanes: see Note [Lanes].
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/device/lane_tree_internal.h"

namespace arete::lanes {
namespace {

constexpr int kLaneBytes = 8;
constexpr int kWide = 512;  // lanes of a batch of small blocks
constexpr int kWarp = 32;
constexpr int64_t kGrain = 200'000;  // instructions of lanes that are worth another thread

struct Range {
  int64_t begin = 0, end = 0;
};

template <class F>
void visit_number(Num n, F&& f) {
  switch (n) {
    case Num::boolean:
      return f(TypeTag<bool>{}, int32_t());
    case Num::i8:
      return f(TypeTag<int8_t>{}, int32_t());
    case Num::u8:
      return f(TypeTag<uint8_t>{}, int32_t());
    case Num::i16:
      return f(TypeTag<int16_t>{}, int32_t());
    case Num::u16:
      return f(TypeTag<uint16_t>{}, int32_t());
    case Num::i32:
      return f(TypeTag<int32_t>{}, int32_t());
    case Num::u32:
      return f(TypeTag<uint32_t>{}, uint32_t());
    case Num::i64:
      return f(TypeTag<int64_t>{}, int64_t());
    case Num::u64:
      return f(TypeTag<uint64_t>{}, uint64_t());
    case Num::f16:
      return f(TypeTag<Half>{}, float());
    case Num::bf16:
      return f(TypeTag<BFloat16>{}, float());
    case Num::f32:
      return f(TypeTag<float>{}, float());
    case Num::f64:
      return f(TypeTag<double>{}, double());
    case Num::none:
      break;
  }
  ARETE_BUG("a number without a type");
}

// Which lanes go on.
class Mask {
 public:
  explicit Mask(int n) : bits_(size_t(n), 1), active_(n) {}
  Mask(const Mask&) = default;
  bool full() const { return active_ == int(bits_.size()); }
  bool any() const { return active_ > 0; }
  bool operator[](int i) const { return bits_[size_t(i)]; }
  const uint8_t* bits() const { return bits_.data(); }

  void clear() {
    std::fill(bits_.begin(), bits_.end(), uint8_t(0));
    active_ = 0;
  }
  // Those of this for which the condition is `wanted`.
  Mask where(const int32_t* condition, bool wanted) const {
    Mask r(*this);
    for (size_t i = 0; i < bits_.size(); ++i)
      r.bits_[i] = uint8_t(bits_[i] & uint8_t((condition[i] != 0) == wanted));
    r.count();
    return r;
  }
  void operator|=(const Mask& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
    count();
  }
  void remove(const Mask& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] = uint8_t(bits_[i] & ~other.bits_[i] & 1);
    count();
  }

 private:
  void count() {
    int n = 0;
    for (const uint8_t b : bits_) n += b;
    active_ = n;
  }
  std::vector<uint8_t> bits_;
  int active_;
};

// What all workers of a launch share.
struct Launch {
  const Program& program;
  std::array<unsigned, 3> grid, block;
  std::span<const Argument> arguments;
  size_t shared;
  int threads;  // of a block
  int blocks;   // of a batch
  int64_t all;  // blocks of the grid
};

class Worker {
 public:
  explicit Worker(const Launch& launch)
      : l_(launch),
        p_(launch.program),
        width_(launch.threads * launch.blocks),
        registers_(size_t(p_.slots) * size_t(width_) * kLaneBytes),
        data_(p_.memory.size()),
        ranges_(p_.memory.size()),
        starts_(p_.memory.size()) {
    for (size_t i = 0; i < p_.memory.size(); ++i) {
      const Memory& m = p_.memory[i];
      if (m.where == Memory::argument) {
        const Argument& a = l_.arguments[size_t(m.parameter)];
        ranges_[i] = {int64_t(a.data), int64_t(a.data) + int64_t(a.bytes)};
        continue;
      }
      if (m.where == Memory::global) {
        ranges_[i] = {int64_t(m.data->data()), int64_t(m.data->data()) + m.bytes};
        continue;
      }
      data_[i].resize(size_t(pitch(m)) * size_t(m.where == Memory::local ? width_ : l_.blocks));
      ranges_[i] = {int64_t(data_[i].data()), int64_t(data_[i].data()) + int64_t(data_[i].size())};
    }
    for (const Preset& s : p_.presets) preset(s);
  }

  // The blocks of a batch, which begins at `first`.
  void run(int64_t first) {
    first_ = first;
    n_ = int(std::min<int64_t>(l_.blocks, l_.all - first)) * l_.threads;
    for (const Preset& s : p_.presets)
      if (s.what == Preset::block_index) {
        auto* d = static_cast<uint32_t*>(slot(s.slot));
        for (int i = 0; i < n_; ++i) d[i] = block_of(i)[size_t(s.bits)];
      } else if (s.what == Preset::parameter) {
        preset(s);  // the batch before may have changed its own
      }
    Mask mask(n_);
    Mask gone(mask);
    gone.clear();
    gone_ = &gone;
    run(*p_.body, mask);
  }

 private:
  int64_t bytes(const Memory& m) const {
    return m.where == Memory::dynamic ? int64_t(l_.shared) : m.bytes;
  }
  // From one thread's, or block's, to the next.
  int64_t pitch(const Memory& m) const { return (bytes(m) + 7) / 8 * 8; }
  void* slot(int i) { return registers_.data() + size_t(i) * size_t(width_) * kLaneBytes; }

  std::array<unsigned, 3> block_of(int lane) const {
    const int64_t b = first_ + lane / l_.threads;
    return {unsigned(b % l_.grid[0]), unsigned(b / l_.grid[0] % l_.grid[1]),
            unsigned(b / l_.grid[0] / l_.grid[1])};
  }
  std::array<unsigned, 3> thread_of(int lane) const {
    const unsigned t = unsigned(lane % l_.threads);
    return {t % l_.block[0], t / l_.block[0] % l_.block[1], t / l_.block[0] / l_.block[1]};
  }

  // What stays the same from batch to batch.
  void preset(const Preset& s) {
    if (s.what == Preset::block_index) return;
    void* const to = slot(s.slot);
    if (s.what == Preset::thread || s.what == Preset::block_dim || s.what == Preset::grid_dim) {
      for (int i = 0; i < width_; ++i)
        static_cast<uint32_t*>(to)[i] =
            s.what == Preset::thread
                ? thread_of(i)[size_t(s.bits)]
                : (s.what == Preset::block_dim ? l_.block : l_.grid)[size_t(s.bits)];
      return;
    }
    if (s.what == Preset::memory) {
      const Memory& m = p_.memory[size_t(s.bits)];
      auto* const d = static_cast<int64_t*>(to);
      for (int i = 0; i < width_; ++i)
        d[i] = ranges_[size_t(s.bits)].begin + (m.where == Memory::global ? 0
                                                : m.where == Memory::local
                                                    ? i * pitch(m)
                                                    : i / l_.threads * pitch(m));
      starts_[size_t(s.bits)] = d;
      return;
    }
    visit_reg(s.reg, [&](auto t) {
      using T = decltype(t);
      T value{};
      if (s.what == Preset::constant) {
        std::memcpy(&value, &s.bits, sizeof(T));
      } else {
        const Argument& a = l_.arguments[size_t(s.bits)];
        if (!a.number) {
          const int64_t address = int64_t(a.data);
          std::memcpy(&value, &address, sizeof(T));
        } else {
          const Num num = s.member == Num::none ? p_.parameters[size_t(s.bits)].type.num : s.member;
          visit_number(num, [&](auto tag, auto) {
            typename decltype(tag)::type x;
            std::memcpy(&x, static_cast<const std::byte*>(a.number) + s.offset, sizeof(x));
            value = T(x);
          });
        }
      }
      std::fill_n(static_cast<T*>(to), width_, value);
    });
  }

  // ---- values
  // An array for a result. Those of one expression lie on a stack: a node gives back what its
  // operands had (struct Frame).
  void* temporary() {
    if (top_ == temporaries_.size())
      temporaries_.push_back(std::make_unique<int64_t[]>(size_t(width_)));
    return temporaries_[top_++].get();
  }
  struct Frame {
    size_t& top;
    size_t before;
    explicit Frame(size_t& t) : top(t), before(t) {}
    ~Frame() { top = before; }
  };

  // Where the value is: in `d`, where that is given, else where it is cheapest.
  void* value(const Node& n, const Mask& m, void* d = nullptr) {
    if (n.op == Op::variable) {
      if (!d) return slot(n.slot);
      copy(n.type.reg(), d, slot(n.slot), m);
      return d;
    }
    if (n.op == Op::assign) {
      assign(n, m);
      return value_of_slot(n, m, d);
    }
    if (n.op == Op::comma) {
      {
        const Frame frame(top_);
        value(*n.a, m);
      }
      return value(*n.b, m, d);
    }
    if (n.op == Op::bounded) {
      if (!d) d = temporary();
      const Frame frame(top_);
      void* const v = value(*n.a, m, d);
      check_index(n, m, static_cast<int64_t*>(v), static_cast<int64_t*>(value(*n.b, m)));
      return v;
    }
    if (n.op == Op::call) {
      call(n, m);
      return n.type.num == Num::none ? nullptr : value_of_slot(n, m, d);
    }
    if (n.op == Op::fence) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return nullptr;
    }
    if (!d) d = temporary();
    const Frame frame(top_);
    switch (n.op) {
      case Op::map1:
        n.map1(d, value(*n.a, m), n_);
        break;
      case Op::map2: {
        const void* const a = value(*n.a, m);
        n.map2(d, a, value(*n.b, m), n_);
        break;
      }
      case Op::map3: {
        const void* const a = value(*n.a, m);
        const void* const b = value(*n.b, m);
        n.map3(d, a, b, value(*n.c, m), n_);
        break;
      }
      case Op::index:
        index(n, m, static_cast<int64_t*>(d));
        break;
      case Op::load:
        load(n, m, d);
        break;
      case Op::store:
        store(n, m, d);
        break;
      case Op::post: {
        void* const old = temporary();
        copy(n.type.reg(), old, slot(n.slot), m);
        assign(n, m);
        copy(n.type.reg(), d, old, m);
        break;
      }
      case Op::select: {
        const int32_t* const c = static_cast<int32_t*>(value(*n.a, m));
        const Mask first = m.where(c, true), second = m.where(c, false);
        const void* const a = first.any() ? value(*n.b, first) : nullptr;
        const void* const b = second.any() ? value(*n.c, second) : nullptr;
        if (a) copy(n.type.reg(), d, a, first);
        if (b) copy(n.type.reg(), d, b, second);
        break;
      }
      case Op::both:
      case Op::either: {
        const int32_t* const a = static_cast<int32_t*>(value(*n.a, m));
        const bool stays = n.op == Op::both;  // of which lanes the second is asked
        const Mask asked = m.where(a, stays);
        const int32_t* const b = asked.any() ? static_cast<int32_t*>(value(*n.b, asked)) : nullptr;
        auto* const r = static_cast<int32_t*>(d);
        for (int i = 0; i < n_; ++i) r[i] = b && asked[i] ? b[i] : !stays;
        break;
      }
      case Op::atomic:
        atomic(n, m, d);
        break;
      case Op::warp:
        warp(n, m, d);
        break;
      default:
        ARETE_BUG("a node that has no value");
    }
    return d;
  }

  void* value_of_slot(const Node& n, const Mask& m, void* d) {
    if (!d) return slot(n.slot);
    copy(n.type.reg(), d, slot(n.slot), m);
    return d;
  }

  void copy(Reg r, void* to, const void* from, const Mask& m) {
    if (to == from) return;
    const auto blend = [&](auto t) {
      using T = decltype(t);
      T* const d = static_cast<T*>(to);
      const T* const s = static_cast<const T*>(from);
      if (m.full()) {
        std::memcpy(d, s, size_t(n_) * sizeof(T));
        return;
      }
      // Both are read, whatever the bit, so that vectors do it.
      const uint8_t* const bits = m.bits();
      const int n = n_;
      for (int i = 0; i < n; ++i) d[i] ^= (d[i] ^ s[i]) & (T(0) - T(bits[i]));
    };
    r == Reg::i32 || r == Reg::u32 || r == Reg::f32 ? blend(uint32_t()) : blend(uint64_t());
  }

  void assign(const Node& n, const Mask& m) {
    const Frame frame(top_);
    if (m.full()) {
      value(*n.b, m, slot(n.slot));
    } else {
      copy(n.type.reg(), slot(n.slot), value(*n.b, m), m);
    }
  }

  void call(const Node& n, const Mask& m) {
    Mask inside(m), gone(m);
    gone.clear();
    Mask* const outer = std::exchange(gone_, &gone);
    run(*n.body, inside);
    gone_ = outer;
  }

  // ---- memory
  [[noreturn]] void outside(const Node& n, int lane, const std::string& what) const {
    const auto t = thread_of(lane), b = block_of(lane);
    const auto text = [](const std::array<unsigned, 3>& v) {
      return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " +
             std::to_string(v[2]) + ")";
    };
    throw IndexError(p_.name, at_line(p_.lines, n.line,
                                      what + ", by thread " + text(t) + " of block " + text(b)));
  }

  // Calls found(lane) for the first active lane that is wrong. The loop that asks has no way out,
  // so that it is done by vectors.
  template <class Wrong, class Found>
  void first_wrong(const Mask& m, Wrong&& wrong, Found&& found) const {
    const uint8_t* const bits = m.bits();
    uint64_t any = 0;
    for (int k = 0; k < n_; ++k) any |= uint64_t(wrong(k)) & bits[k];
    if (any == 0) [[likely]]
      return;
    for (int k = 0; k < n_; ++k)
      if (bits[k] && wrong(k)) found(k);
  }

  void check_index(const Node& n, const Mask& m, const int64_t* i, const int64_t* limit) const {
    first_wrong(
        m, [&](int k) { return (i[k] < 0) | (i[k] >= limit[k]); },
        [&](int k) {
          outside(n, k,
                  "index " + std::to_string(i[k]) + " is out of range for " + *n.name +
                      ", which has " + std::to_string(limit[k]));
        });
  }

  void index(const Node& n, const Mask& m, int64_t* d) {
    const auto* const a = static_cast<int64_t*>(value(*n.a, m));
    const auto* const b = static_cast<int64_t*>(value(*n.b, m));
    if (n.limit > 0)
      first_wrong(
          m, [&](int k) { return (b[k] < 0) | (b[k] >= n.limit); },
          [&](int k) {
            outside(n, k,
                    "index " + std::to_string(b[k]) + " is out of range for " + *n.name +
                        ", which has " + std::to_string(n.limit));
          });
    for (int k = 0; k < n_; ++k) d[k] = a[k] + b[k] * n.imm;
  }

  void check(const Node& n, const Mask& m, const int64_t* address, int size) const {
    if (n.checked) return;
    if (n.a->base >= 0) {
      const Memory& memory = p_.memory[size_t(n.a->base)];
      const auto within = [&](int64_t bytes, auto&& begin) {
        first_wrong(
            m,
            [&](int k) { return (address[k] < begin(k)) | (address[k] + size > begin(k) + bytes); },
            [&](int k) {
              outside(n, k, element(address[k] - begin(k), bytes, size, memory.name));
            });
      };
      const Range r = ranges_[size_t(n.a->base)];
      if (const int64_t* const starts = starts_[size_t(n.a->base)])
        within(bytes(memory), [&](int k) { return starts[k]; });
      else
        within(r.end - r.begin, [&](int) { return r.begin; });
      return;
    }
    for (int k = 0; k < n_; ++k)
      if (m[k] && std::none_of(ranges_.begin(), ranges_.end(), [&](const Range& r) {
            return address[k] >= r.begin && address[k] + size <= r.end;
          }))
        outside(n, k, "an address outside of all memory that the kernel was given");
  }
  static std::string element(int64_t at, int64_t bytes, int size, const std::string& name) {
    const int64_t i = at >= 0 ? at / size : -((-at + size - 1) / size);
    return "element " + std::to_string(i) + " of " + name + ", which has " +
           std::to_string(bytes / size);
  }

  void load(const Node& n, const Mask& m, void* d) {
    const auto* const address = static_cast<int64_t*>(value(*n.a, m));
    visit_number(n.stored, [&](auto tag, auto r) {
      using T = typename decltype(tag)::type;
      using R = decltype(r);
      check(n, m, address, sizeof(T));
      R* const to = static_cast<R*>(d);
      if (m.full()) {
        for (int k = 0; k < n_; ++k) to[k] = R(*reinterpret_cast<const T*>(address[k]));
        return;
      }
      for (int k = 0; k < n_; ++k)
        if (m[k]) to[k] = R(*reinterpret_cast<const T*>(address[k]));
    });
  }

  void store(const Node& n, const Mask& m, void* d) {
    void* const from = value(*n.b, m, d);  // before the place, as C++17 has it
    const auto* const address = static_cast<int64_t*>(value(*n.a, m));
    visit_number(n.stored, [&](auto tag, auto r) {
      using T = typename decltype(tag)::type;
      using R = decltype(r);
      check(n, m, address, sizeof(T));
      const R* const v = static_cast<R*>(from);
      for (int k = 0; k < n_; ++k)
        if (m[k]) *reinterpret_cast<T*>(address[k]) = T(v[k]);
    });
  }

  void atomic(const Node& n, const Mask& m, void* d) {
    const auto* const address = static_cast<int64_t*>(value(*n.a, m));
    const void* const second = value(*n.b, m);
    const void* const third = n.c ? value(*n.c, m) : second;
    visit_reg(n.type.reg(), [&](auto t) {
      using T = decltype(t);
      check(n, m, address, sizeof(T));
      const T *const v = static_cast<const T*>(second), *const w = static_cast<const T*>(third);
      T* const old = static_cast<T*>(d);
      for (int k = 0; k < n_; ++k) {
        if (!m[k]) continue;
        const std::atomic_ref<T> cell(*reinterpret_cast<T*>(address[k]));
        T before = cell.load();
        while (!cell.compare_exchange_weak(before, updated(n.atomic, before, v[k], w[k]))) {
        }
        old[k] = before;
      }
    });
  }
  template <class T>
  static T updated(Atomic what, T x, T v, T w) {
    switch (what) {
      case Atomic::add:
        if constexpr (std::is_integral_v<T>)
          return T(std::make_unsigned_t<T>(x) + std::make_unsigned_t<T>(v));
        return x + v;
      case Atomic::sub:
        if constexpr (std::is_integral_v<T>)
          return T(std::make_unsigned_t<T>(x) - std::make_unsigned_t<T>(v));
        return x - v;
      case Atomic::min:
        return v < x ? v : x;
      case Atomic::max:
        return x < v ? v : x;
      case Atomic::exch:
        return v;
      case Atomic::cas:
        return x == v ? w : x;
      case Atomic::inc:
        return x >= v ? T(0) : T(x + 1);
      case Atomic::dec:
        return x == 0 || x > v ? v : T(x - 1);
      default:
        break;
    }
    if constexpr (std::is_integral_v<T>) {
      if (what == Atomic::and_) return x & v;
      if (what == Atomic::or_) return x | v;
      return x ^ v;
    }
    return x;
  }

  // ---- warps
  void warp(const Node& n, const Mask& m, void* d) {
    const void* const a = n.a ? value(*n.a, m) : nullptr;
    if (n.warp == Warp::ballot || n.warp == Warp::any || n.warp == Warp::all ||
        n.warp == Warp::active) {
      const auto* const p = static_cast<const int32_t*>(a);
      each_warp([&](int begin, int end) {
        uint32_t set = 0, active = 0;
        for (int k = begin; k < end; ++k) {
          if (!m[k]) continue;
          active |= 1u << (k - begin);
          if (p && p[k]) set |= 1u << (k - begin);
        }
        const uint32_t r = n.warp == Warp::ballot   ? set
                           : n.warp == Warp::active ? active
                           : n.warp == Warp::any    ? set != 0
                                                    : set == active;
        for (int k = begin; k < end; ++k) static_cast<uint32_t*>(d)[k] = r;
      });
      return;
    }
    const auto* const by = static_cast<int32_t*>(value(*n.b, m));
    const auto* const widths = static_cast<int32_t*>(value(*n.c, m));
    visit_reg(n.type.reg(), [&](auto t) {
      using T = decltype(t);
      const T* const v = static_cast<const T*>(a);
      each_warp([&](int begin, int end) {
        for (int k = begin; k < end; ++k) {
          if (!m[k]) continue;
          const int lane = k - begin, width = std::clamp(widths[k], 1, kWarp);
          const int low = lane / width * width;
          int from = lane;
          switch (n.warp) {
            case Warp::shfl:
              from = low + (by[k] % width + width) % width;
              break;
            case Warp::up:
              from = lane - by[k] >= low ? lane - by[k] : lane;
              break;
            case Warp::down:
              from = lane + by[k] < low + width ? lane + by[k] : lane;
              break;
            default: {
              const int other = lane ^ by[k];
              from = other < low + width ? other : lane;
            }
          }
          // A lane that is not there has nothing to give: the caller keeps its own.
          static_cast<T*>(d)[k] = v[from >= 0 && begin + from < end ? begin + from : k];
        }
      });
    });
  }
  template <class F>
  void each_warp(F&& f) const {
    for (int block = 0; block < n_; block += l_.threads)
      for (int w = block; w < block + l_.threads; w += kWarp)
        f(w, std::min(w + kWarp, block + l_.threads));
  }

  // ---- statements: `m` loses the lanes that leave
  void run(const Statement& s, Mask& m) {
    if (!m.any()) return;
    switch (s.what) {
      case Do::nothing:
        break;
      case Do::block:
        for (const Statement* p : s.list) run(*p, m);
        break;
      case Do::expression: {
        const Frame frame(top_);
        if (s.value->op == Op::assign)
          assign(*s.value, m);
        else
          value(*s.value, m);
        break;
      }
      case Do::branch: {
        Mask first(m), second(m);
        {
          const Frame frame(top_);
          const auto* const c = static_cast<int32_t*>(value(*s.value, m));
          first = m.where(c, true);
          second = m.where(c, false);
        }
        run(*s.first, first);
        if (s.second) run(*s.second, second);
        m = first;
        m |= second;
        break;
      }
      case Do::loop:
        loop(s, m);
        break;
      case Do::leave:
        m.clear();
        break;
      case Do::next:
        *waiting_ |= m;
        m.clear();
        break;
      case Do::give:
        if (s.value) {
          const Frame frame(top_);
          copy(s.value->type.reg(), slot(s.slot), value(*s.value, m), m);
        }
        *gone_ |= m;
        m.clear();
        break;
      case Do::print:
        print(s, m);
        break;
    }
  }

  // Lanes in their order, and what one prints in one piece, as on GPUs.
  void print(const Statement& s, const Mask& m) {
    const Frame frame(top_);
    std::vector<const void*> values;
    for (const Printed& p : s.printed) values.push_back(p.value ? value(*p.value, m) : nullptr);
    std::string all;
    for (int k = 0; k < n_; ++k) {
      if (!m[k]) continue;
      for (size_t i = 0; i < values.size(); ++i) {
        const Printed& p = s.printed[i];
        all += p.text;
        if (!p.value) continue;
        const auto add = [&](auto v) {
          const int size = std::snprintf(nullptr, 0, p.conversion.c_str(), v);
          const size_t at = all.size();
          all.resize(at + size_t(std::max(size, 0)) + 1);
          std::snprintf(all.data() + at, all.size() - at, p.conversion.c_str(), v);
          all.pop_back();
        };
        if (p.value->type.num == Num::f64)
          add(static_cast<const double*>(values[i])[k]);
        else if (p.conversion.ends_with('c'))
          add(int(static_cast<const int64_t*>(values[i])[k]));
        else
          add(static_cast<const long long*>(values[i])[k]);
      }
    }
    std::fwrite(all.data(), 1, all.size(), stdout);
    std::fflush(stdout);
  }

  void loop(const Statement& s, Mask& m) {
    Mask going(m);
    if (s.once) {
      run(*s.first, going);
      if (waiting_) m.remove(*waiting_);
      m.remove(*gone_);
      return;
    }
    Mask waiting(m);
    waiting.clear();
    Mask* const outer = std::exchange(waiting_, &waiting);
    for (bool first = true; going.any(); first = false) {
      if (s.value && !(first && s.after)) {
        const Frame frame(top_);
        going = going.where(static_cast<int32_t*>(value(*s.value, going)), true);
        if (!going.any()) break;
      }
      run(*s.first, going);
      going |= waiting;
      waiting.clear();
      if (s.second) run(*s.second, going);
    }
    waiting_ = outer;
    m.remove(*gone_);
  }

  const Launch& l_;
  const Program& p_;
  int width_, n_ = 0;
  int64_t first_ = 0;
  std::vector<std::byte> registers_;
  std::vector<std::unique_ptr<int64_t[]>> temporaries_;
  size_t top_ = 0;
  std::vector<std::vector<std::byte>> data_;
  std::vector<Range> ranges_;
  std::vector<const int64_t*> starts_;  // of memory that is not an argument: where each lane's is
  Mask *gone_ = nullptr, *waiting_ = nullptr;
};

Num number_of(DType t) {
  switch (t) {
    case DType::boolean:
      return Num::boolean;
    case DType::u8:
      return Num::u8;
    case DType::i8:
      return Num::i8;
    case DType::i16:
      return Num::i16;
    case DType::u16:
      return Num::u16;
    case DType::u32:
      return Num::u32;
    case DType::u64:
      return Num::u64;
    case DType::i32:
      return Num::i32;
    case DType::i64:
      return Num::i64;
    case DType::f16:
      return Num::f16;
    case DType::bf16:
      return Num::bf16;
    case DType::f32:
      return Num::f32;
    case DType::f64:
      return Num::f64;
    default:
      return Num::none;
  }
}

// Whether memory of one type may be read as another: integers with a sign and those without, as
// pointers of kernels are passed on.
bool same_elements(Num a, Num b) {
  const auto is_float = [](Num n) { return n >= Num::f16; };
  if (a == b) return true;
  return bytes_of(a) == bytes_of(b) && !is_float(a) && !is_float(b) && a != Num::boolean &&
         b != Num::boolean;
}

// Whether an integer parameter of fewer bytes holds the number, which is whole: a GPU reads its low
// bytes, which on the machines at hand are those of the shorter number, and so does a lane.
bool is_narrowed(Num wanted, const Argument& a) {
  int64_t v = 0;
  if (!a.is_whole || a.bytes != sizeof(v)) return false;
  std::memcpy(&v, a.number, sizeof(v));
  switch (wanted) {
    case Num::i8:
      return std::in_range<int8_t>(v);
    case Num::u8:
      return std::in_range<uint8_t>(v);
    case Num::i16:
      return std::in_range<int16_t>(v);
    case Num::u16:
      return std::in_range<uint16_t>(v);
    case Num::i32:
      return std::in_range<int32_t>(v);
    case Num::u32:
      return std::in_range<uint32_t>(v);
    default:
      return false;
  }
}

void check_arguments(const Program& p, std::span<const Argument> arguments) {
  if (arguments.size() != p.parameters.size())
    throw TypeError(p.name, "the number of arguments is wrong")
        .expected(std::to_string(p.parameters.size()))
        .got(std::to_string(arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Parameter& q = p.parameters[i];
    const Argument& a = arguments[i];
    if (q.bytes > 0) {
      if (!a.number || int(a.bytes) != q.bytes)
        throw TypeError(p.name, "the argument is not the struct that the kernel takes")
            .argument(q.name)
            .expected(std::to_string(q.bytes) + " bytes")
            .got(a.number ? std::to_string(a.bytes) + " bytes" : "a tensor");
      continue;
    }
    const std::string wanted = std::string(name_of(q.type.num)) + (q.type.pointer ? "*" : "");
    if (q.type.pointer != !a.number)
      throw TypeError(p.name, a.number ? "a number where the kernel has a pointer"
                                       : "a tensor where the kernel has a number")
          .argument(q.name)
          .expected(wanted);
    if (a.number ? int(a.bytes) != bytes_of(q.type.num) && !is_narrowed(q.type.num, a)
                 : !a.is_plain && !same_elements(q.type.num, number_of(a.dtype)))
      throw TypeError(p.name, "the argument has another type than the parameter")
          .argument(q.name)
          .expected(wanted)
          .got(a.number ? "a number of " + std::to_string(a.bytes) + " bytes"
                        : std::string(name_of(a.dtype)));
  }
}

}  // namespace

void launch(const Program& program, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
            std::span<const Argument> arguments, size_t shared_bytes) {
  check_arguments(program, arguments);
  const int64_t threads = int64_t(block[0]) * block[1] * block[2];
  if (threads > 1024)
    throw ValueError(program.name, "a block has more threads than a GPU's can have")
        .expected("at most 1024")
        .got(std::to_string(threads));
  const int64_t blocks = int64_t(grid[0]) * grid[1] * grid[2];
  if (blocks == 0 || threads == 0) return;
  const int together = int(std::min<int64_t>(std::max<int64_t>(1, kWide / threads), blocks));
  const Launch l{program, grid, block, arguments, shared_bytes, int(threads), together, blocks};
  const int64_t grain = std::max<int64_t>(1, kGrain / (program.work * threads * together + 1));
  parallel_for(0, (blocks + together - 1) / together, grain, [&](int64_t begin, int64_t end) {
    Worker worker(l);
    for (int64_t i = begin; i < end; ++i) worker.run(i * together);
  });
}

}  // namespace arete::lanes
