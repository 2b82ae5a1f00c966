// Products of one matrix with several others: one batch of products.
#include <algorithm>
#include <optional>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/core/layout.h"

// Note [Siblings]
// Queries, keys and values are products of the same rows with three weights. Where these lie at
// equal distances, as parameters made one after the other do, and their biases too, a library
// computes all of them at once, as a batch whose matrices are that far apart: a small product
// leaves most of a GPU idle, and three cannot be less than three kernels. Their results lie side by
// side. Such a plan counts on where memory is that is not its own: Plan::pinned() says what must be
// where it was when the plan was made (Note [Pinned plans]). A batch may have other last bits than
// products one by one, which then depend on where memory is: so calls that are to be deterministic
// stay as they are.

namespace arete::compile {
namespace {

using prim::GemmArgs;
using prim::Primitive;
using prim::View;

// Of steps behind the first product of a family.
constexpr size_t kNear = 16;
// Bytes of the results of a family, which have to be there at the same time: of larger products
// none leaves much of a device idle.
constexpr int64_t kMostBytes = int64_t(128) << 20;
// What libraries read at once.
constexpr int64_t kAlignment = 16;

bool lies_alike(const View& a, const View& b) {
  return a.dtype == b.dtype && std::ranges::equal(a.sizes, b.sizes) &&
         std::ranges::equal(a.strides, b.strides);
}

bool are_siblings(const GemmArgs& a, const GemmArgs& b) {
  return is_bare(b) && same_context(a.context, b.context) && a.a.data == b.a.data &&
         lies_alike(a.a, b.a) && lies_alike(a.b, b.b) && lies_alike(a.out, b.out) &&
         a.alpha == b.alpha && bool(a.bias) == bool(b.bias) &&
         (!a.bias || lies_alike(a.bias, b.bias));
}

const GemmArgs* product_of(const prim::RecordedCall& call) {
  if (call.primitive() != Primitive::gemm) return nullptr;
  const auto& g = *static_cast<const GemmArgs*>(call.args());
  // Of one matrix with another, with bits that may depend on where they are: what comes before the
  // rows of a goes on as rows.
  const IntList of_b = g.b.sizes.first(g.b.sizes.size() - 2);
  const bool may = is_bare(g) && !g.context.deterministic && g.out.is_contiguous() &&
                   g.out.numel() > 0 && g.a.numel() > 0 &&
                   (g.a.rank() == 2 || g.a.is_contiguous()) &&
                   std::ranges::all_of(of_b, [](int64_t n) { return n == 1; }) &&
                   (!g.bias || g.bias.rank() == 1);
  return may ? &g : nullptr;
}

int64_t distance(const View& from, const View& to) { return to.data - from.data; }

/// Matrices `stride` elements apart, as a view of three dimensions.
class Stacked {
 public:
  Stacked(const View& v, int64_t rows, int64_t count, int64_t stride) : view_(v) {
    const int64_t columns = v.sizes.back(), step = v.strides.back(),
                  row = v.rank() == 1 ? 0 : v.strides[size_t(v.rank()) - 2];
    sizes_ = Shape{count, rows, columns}, strides_ = Shape{stride, row, step};
    view_.sizes = sizes_, view_.strides = strides_;
  }
  Stacked(const Stacked&) = delete;
  Stacked& operator=(const Stacked&) = delete;
  const View& view() const { return view_; }

 private:
  Shape sizes_, strides_;
  View view_;
};

}  // namespace

void Plan::join_siblings(Buffers& buffers) {
  std::vector<std::vector<Use>> uses;
  Steps calls;
  for (const Step& step : steps_) {
    uses.push_back(uses_of(*step.call, buffers));
    calls.push_back(step.call.get());
  }
  const std::vector<Life> lives = lives_of(calls, buffers);
  const auto is_written = [&](const View& v, size_t first, size_t last) {
    std::vector<Use> its;
    buffers.add_use(its, v, prim::Access::read);
    return std::any_of(uses.begin() + std::ptrdiff_t(first), uses.begin() + std::ptrdiff_t(last),
                       [&](const std::vector<Use>& step) { return collide(step, its); });
  };
  // Whether it lies where it did not come from a step, and will lie there in later runs.
  const auto is_fixed = [&](const View& v) {
    const int b = buffers.of(v);
    return b >= 0 && buffers[b].storage && !buffers[b].temporary &&
           !is_stand_in(buffers[b].storage->data()) && !is_written(v, 0, steps_.size());
  };
  // Whether a step begins a temporary, of which it writes all that is ever used.
  const auto is_made_by = [&](const View& v, size_t step) {
    const int b = buffers.of(v);
    if (b < 0 || !buffers[b].storage || !buffers[b].temporary) return false;
    const Life& life = lives[size_t(b)];
    return life.first == step && v.data == buffers[b].storage->data() &&
           life.bytes == size_t(v.numel()) * size_of(v.dtype);
  };
  const auto may_be_joined = [&](const GemmArgs& g, size_t step) {
    return is_made_by(g.out, step) && is_fixed(g.b) && (!g.bias || is_fixed(g.bias));
  };

  for (size_t j = 0; j < steps_.size(); ++j) {
    const GemmArgs* const first = steps_[j].call ? product_of(*steps_[j].call) : nullptr;
    if (!first || !may_be_joined(*first, j)) continue;
    const int64_t bytes = first->out.numel() * int64_t(size_of(first->out.dtype));
    struct Member {
      size_t step;
      GemmArgs args;
    };
    std::vector<Member> family{{j, *first}};
    for (size_t k = j + 1; k < std::min(j + kNear, steps_.size()); ++k) {
      const GemmArgs* const g = steps_[k].call ? product_of(*steps_[k].call) : nullptr;
      if (g && steps_[k].call->device() == steps_[j].call->device() && are_siblings(*first, *g) &&
          may_be_joined(*g, k) && !is_written(first->a, j, k))
        family.push_back({k, *g});
    }
    std::ranges::sort(family, {}, [](const Member& m) { return m.args.b.data; });
    // The longest row of equal distances that the first one is in.
    std::vector<Member> row;
    for (size_t from = 0; from + 1 < family.size(); ++from) {
      const auto step_of = [&](size_t k, const View GemmArgs::*v) {
        return distance(family[k].args.*v, family[k + 1].args.*v);
      };
      const int64_t apart = step_of(from, &GemmArgs::b),
                    biases = first->bias ? step_of(from, &GemmArgs::bias) : 0;
      if (apart <= 0 || apart % kAlignment != 0 || biases < 0 ||
          biases % int64_t(size_of(first->out.dtype)) != 0 || (first->bias && biases == 0))
        continue;
      size_t end = from + 1;
      while (end + 1 < family.size() && step_of(end, &GemmArgs::b) == apart &&
             (!first->bias || step_of(end, &GemmArgs::bias) == biases))
        ++end;
      std::vector<Member> its(family.begin() + std::ptrdiff_t(from),
                              family.begin() + std::ptrdiff_t(end) + 1);
      if (its.size() > row.size() &&
          std::ranges::any_of(its, [&](const Member& m) { return m.step == j; }))
        row = std::move(its);
    }
    const auto count = int64_t(row.size());
    if (count < 2 || count * bytes > kMostBytes) continue;

    // Where each result was is its part of one.
    const Device device = steps_[j].call->device();
    const StoragePtr joint = buffers.add_temporary(device, size_t(count * bytes));
    GemmArgs all = row[0].args;
    const auto of_b = int64_t(size_of(all.b.dtype)), of_out = int64_t(size_of(all.out.dtype));
    const int64_t columns = all.out.sizes.back(), rows = all.out.numel() / columns;
    const Stacked a(all.a, rows, 1, 0),
        b(all.b, all.a.sizes.back(), count, distance(row[0].args.b, row[1].args.b) / of_b),
        out(all.out, rows, count, rows * columns);
    std::optional<Stacked> bias;
    if (all.bias)
      bias.emplace(all.bias, 1, count, distance(row[0].args.bias, row[1].args.bias) / of_out);
    all.a = a.view(), all.b = b.view(), all.out = out.view();
    if (bias) all.bias = bias->view();
    all.out.data = joint->data(), all.out.storage = joint.get();
    for (const Member& m : row)
      for (const View* v : {&m.args.b, &m.args.bias})
        if (*v) pinned_.push_back(buffers[buffers.of(*v)].storage.get());
    std::vector<std::pair<int, std::byte*>> moved;  // buffers, and where they are now
    for (size_t n = 0; n < row.size(); ++n)
      moved.push_back(
          {buffers.of(row[n].args.out), joint->data() + std::ptrdiff_t(n) * std::ptrdiff_t(bytes)});
    std::unique_ptr<prim::RecordedCall> call = prim::as_recorded(device, all);
    for (const Member& m : row) {
      if (m.step == j) continue;
      steps_[j].calls += steps_[m.step].calls;
      std::ranges::copy(steps_[m.step].numbers, std::back_inserter(steps_[j].numbers));
      steps_[m.step].call.reset();
      uses[m.step].clear();
    }
    steps_[j].call = std::move(call);
    for (size_t k = 0; k < steps_.size(); ++k) {
      if (!steps_[k].call) continue;
      bool has_moved = false;
      steps_[k].call->for_each_operand([&](View& v, prim::Access) {
        const int its = buffers.of(v);
        const auto to = std::ranges::find(moved, its, &std::pair<int, std::byte*>::first);
        if (to == moved.end()) return;
        v.data = to->second + (v.data - buffers[its].storage->data());
        v.storage = joint.get();
        has_moved = true;
      });
      if (has_moved || k == j) uses[k] = uses_of(*steps_[k].call, buffers);
    }
  }
  std::erase_if(steps_, [](const Step& s) { return !s.call; });
}

}  // namespace arete::compile
