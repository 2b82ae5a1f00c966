// Recordings with several sizes as one program.
#include <algorithm>
#include <cstring>

#include "arete/base/text.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using Kind = ops::Arg::Kind;
using Points = std::vector<std::vector<int64_t>>;
using Values = std::vector<int64_t>;

// What the integers of several recordings have in common. With s sizes there are 1 + s + s (s-1)/2
// recordings, which decide the factors, with squares s more, and others to check them.
class Fitter {
 public:
  Fitter(const Points& points, bool squares) : points_(points), squares_(squares) {}

  std::optional<Extent> fit(const Values& v) const {
    std::optional<Extent> e = fit_products(v);
    if (e || !squares_) return e;
    const std::vector<int64_t>& base = points_[0];
    const size_t n = base.size();
    Values rest = v;
    std::vector<Term> squares;
    for (size_t s = 0; s < n; ++s) {
      const size_t first = s + 1, second = n + 1 + n * (n - 1) / 2 + s;
      const int64_t a = points_[first][s] - base[s], b = points_[second][s] - base[s];
      const int64_t difference = (v[second] - v[0]) * a - (v[first] - v[0]) * b;
      const int64_t divisor = a * b * (b - a);
      if (difference % divisor != 0) return std::nullopt;
      const int64_t factor = difference / divisor;
      if (factor == 0) continue;
      squares.push_back({factor, int(s), int(s)});
      for (size_t r = 0; r < v.size(); ++r) rest[r] -= factor * points_[r][s] * points_[r][s];
    }
    e = fit_products(rest);
    if (e) e->terms.insert(e->terms.end(), squares.begin(), squares.end());
    return e;
  }

 private:
  std::optional<Extent> fit_products(const Values& v) const {
    if (std::ranges::count(v, v[0]) == std::ptrdiff_t(v.size())) return Extent(v[0]);
    const std::vector<int64_t>& base = points_[0];
    const int n = int(base.size());
    const auto step = [&](int s) { return points_[size_t(s) + 1][size_t(s)] - base[size_t(s)]; };
    const auto slope = [&](int s) { return v[size_t(s) + 1] - v[0]; };
    Extent e;
    std::vector<int64_t> linear(static_cast<size_t>(n));
    for (int s = 0; s < n; ++s) linear[size_t(s)] = slope(s);
    size_t at = size_t(n) + 1;
    std::vector<Term> pairs;
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b, ++at) {
        const int64_t mixed = v[at] - v[0] - slope(a) - slope(b);
        if (mixed % (step(a) * step(b)) != 0) return std::nullopt;
        const int64_t factor = mixed / (step(a) * step(b));
        if (factor == 0) continue;
        pairs.push_back({factor, a, b});
        linear[size_t(a)] -= factor * step(a) * base[size_t(b)];
        linear[size_t(b)] -= factor * step(b) * base[size_t(a)];
      }
    e.constant = v[0];
    for (int s = 0; s < n; ++s) {
      if (linear[size_t(s)] % step(s) != 0) return std::nullopt;
      const int64_t factor = linear[size_t(s)] / step(s);
      e.constant -= factor * base[size_t(s)];
      if (factor) e.terms.push_back({factor, s, -1});
    }
    for (const Term& t : pairs) {
      e.constant -= t.factor * base[size_t(t.a)] * base[size_t(t.b)];
      e.terms.push_back(t);
    }
    for (size_t r = 0; r < v.size(); ++r)
      if (value_of(e, points_[r]) != v[r]) return std::nullopt;
    return e;
  }

  const Points& points_;
  const bool squares_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.is_same(b)) return true;
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.sizes(), b.sizes()) ||
      a.device() != b.device())
    return false;
  const ModesGuard quiet;
  modes().word = 0;
  modes().grad_enabled = false;
  const Tensor x = a.to(kCPU).contiguous(), y = b.to(kCPU).contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

class Merger {
 public:
  Merger(std::vector<Body> recordings, const Points& points, const std::vector<SizeInfo>& symbols,
         bool squares, bool& is_unfit)
      : all_(std::move(recordings)),
        points_(points),
        symbols_(symbols),
        fitter_(points, squares),
        is_unfit_(is_unfit) {}

  Body merge() {
    Body& base = all_[0];
    base.symbols = symbols_;
    for (size_t i = 0; i < base.inputs.size(); ++i)
      merge_type(base.inputs[i].type, [&](const Body& b) { return &b.inputs[i].type; });
    for (size_t r = 1; r < all_.size(); ++r) check_constants(all_[r], r);
    for (size_t k = 0; k < base.calls.size(); ++k) {
      for (size_t r = 1; r < all_.size(); ++r) check_call(k, r);
      merge_call(k);
    }
    for (size_t r = 1; r < all_.size(); ++r) {
      ARETE_CHECK(all_[r].calls.size() == base.calls.size(),
                  differ(std::min(all_[r].calls.size(), base.calls.size()) - 1, r)
                      .got(std::to_string(base.calls.size()) + " calls and " +
                           std::to_string(all_[r].calls.size())));
      ARETE_CHECK(all_[r].outputs == base.outputs,
                  ValueError("program", "which results are outputs depends on the sizes"));
    }
    return std::move(base);
  }

 private:
  // "batch = 4, time = 9".
  std::string sizes_text(size_t r) const {
    std::string s;
    for (size_t i = 0; i < symbols_.size(); ++i)
      s += (i ? ", " : "") + symbols_[i].name + " = " + std::to_string(points_[r][i]);
    return s;
  }
  ValueError differ(size_t call, size_t r) const {
    const std::string in = all_[0].calls.empty() || call >= all_[0].calls.size()
                               ? ""
                               : " at " + call_text(all_[0], call);
    ValueError e("program", "the calls of the function depend on the sizes" + in);
    e.expected("the same calls for " + sizes_text(0) + " and for " + sizes_text(r))
        .hint(
            "a loop over a dynamic size, or a branch on one, cannot be part of a program; give "
            "the dimension a fixed size");
    return e;
  }

  void check_constants(const Body& b, size_t r) const {
    const auto& mine = all_[0].constants;
    for (size_t k = 0; k < std::min(mine.size(), b.constants.size()); ++k)
      ARETE_CHECK(same_bits(mine[k].tensor, b.constants[k].tensor),
                  ValueError("program", "the constant '" + mine[k].name +
                                            "', which no operator made, depends on the sizes")
                      .got(ops::describe(mine[k].tensor) + " for " + sizes_text(0) + ", " +
                           ops::describe(b.constants[k].tensor) + " for " + sizes_text(r))
                      .hint("make it by operators (arange, full, ...) inside the function"));
    ARETE_CHECK(mine.size() == b.constants.size(),
                ValueError("program", "the function uses other constants for " + sizes_text(r)));
  }

  void check_call(size_t k, size_t r) const {
    ARETE_CHECK(k < all_[r].calls.size(), differ(k, r));
    const RecordedCall &a = all_[0].calls[k], &b = all_[r].calls[k];
    ARETE_CHECK(a.op == b.op && a.form == b.form, differ(k, r).got(a.name() + " and " + b.name()));
    bool same = a.args.size() == b.args.size() && a.outs == b.outs &&
                a.results.size() == b.results.size() && a.no_grad == b.no_grad &&
                a.function == b.function && a.autocast == b.autocast &&
                a.requires_grad == b.requires_grad;
    for (size_t i = 0; same && i < a.args.size(); ++i) {
      const Argument &x = a.args[i], &y = b.args[i];
      same = x.kind == y.kind && x.values == y.values && x.program == y.program &&
             x.value.ints.size() == y.value.ints.size() && x.value.text == y.value.text &&
             x.value.dtype == y.value.dtype && x.value.device == y.value.device &&
             x.value.scalar.kind() == y.value.scalar.kind() && x.params.size() == y.params.size();
    }
    ARETE_CHECK(same, differ(k, r).got("other arguments"));
  }

  // One integer of all recordings.
  Extent fit(size_t call, const std::string& what, const Values& values) const {
    const std::optional<Extent> e = fitter_.fit(values);
    if (e) return *e;
    is_unfit_ = true;
    std::string got;
    for (size_t r = 0; r < values.size(); ++r)
      got += (r ? "; " : "") + std::to_string(values[r]) + " for " + sizes_text(r);
    throw ValueError("program", what + " of " + call_text(all_[0], call) +
                                    " is no sum of products of the dynamic sizes")
        .got(got)
        .hint("give the dimension a fixed size, or compute with -1 (view, reshape)");
  }

  void merge_call(size_t k) {
    RecordedCall& c = all_[0].calls[k];
    for (size_t i = 0; i < c.args.size(); ++i) {
      Argument& a = c.args[i];
      const std::string what = "argument " + std::to_string(i + 1);
      const auto each = [&](auto&& get) {
        Values v;
        for (const Body& b : all_) v.push_back(get(b.calls[k].args[i]));
        return v;
      };
      std::vector<Extent> extents;
      switch (a.kind) {
        case Kind::ints:
          for (size_t n = 0; n < a.value.ints.size(); ++n)
            extents.push_back(
                fit(k, what, each([n](const Argument& x) { return x.value.ints[n]; })));
          break;
        case Kind::integer:
          extents.push_back(
              fit(k, what, each([](const Argument& x) { return x.value.scalar.to_int64(); })));
          break;
        case Kind::real:
        case Kind::scalar:
          if (std::ranges::all_of(all_, [&](const Body& b) {
                return b.calls[k].args[i].value.scalar == a.value.scalar;
              }))
            break;
          // Whole numbers of any kind.
          for (const Body& b : all_) {
            const Scalar& s = b.calls[k].args[i].value.scalar;
            ARETE_CHECK(!s.is_complex() && !s.is_boolean() && s.to_double() == double(s.to_int64()),
                        ValueError("program", what + " of " + call_text(all_[0], k) +
                                                  " depends on the sizes, and is no whole number")
                            .got(s.to_string())
                            .hint("compute it by operators, from tensors"));
          }
          extents.push_back(
              fit(k, what, each([](const Argument& x) { return x.value.scalar.to_int64(); })));
          break;
        default:
          for (const Body& b : all_)
            ARETE_CHECK(same_value(a, b.calls[k].args[i]),
                        ValueError("program", what + " of " + call_text(all_[0], k) +
                                                  " depends on the sizes"));
      }
      if (std::ranges::any_of(extents, [](const Extent& e) { return !e.is_constant(); }))
        a.extents = std::move(extents);
    }
    for (size_t i = 0; i < c.results.size(); ++i)
      merge_type(c.results[i], [&](const Body& b) { return &b.calls[k].results[i]; });
  }

  static bool same_value(const Argument& a, const Argument& b) {
    if (!(a.value.scalar == b.value.scalar) || a.value.reals != b.value.reals) return false;
    for (size_t p = 0; p < a.params.size(); ++p)
      if (a.params[p].i != b.params[p].i) return false;
    return true;
  }

  // Shapes of results are told to people alone: what fits no sizes depends on values.
  template <class F>
  void merge_type(TensorType& t, F&& of) {
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      Values v;
      for (const Body& b : all_) {
        const TensorType* const other = of(b);
        if (other->sizes.size() == t.sizes.size()) v.push_back(other->sizes[d].constant);
      }
      std::optional<Extent> e;
      if (v.size() == all_.size()) e = fitter_.fit(v);
      merged_.push_back(e ? *e : Extent::unknown());
    }
    t.sizes.assign(merged_.begin(), merged_.end());
    merged_.clear();
  }

  std::vector<Body> all_;
  const Points& points_;
  const std::vector<SizeInfo>& symbols_;
  const Fitter fitter_;
  bool& is_unfit_;
  std::vector<Extent> merged_;
};

}  // namespace

Body merge(std::vector<Body> recordings, const Points& sizes, const std::vector<SizeInfo>& symbols,
           bool squares, bool& is_unfit) {
  return Merger(std::move(recordings), sizes, symbols, squares, is_unfit).merge();
}

}  // namespace arete::program
