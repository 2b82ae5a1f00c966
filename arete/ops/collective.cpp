#include "arete/ops/collective.h"

#include <map>
#include <mutex>
#include <numeric>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete::ops {
namespace {

using prim::CollectiveKind;
using prim::ReduceKind;

struct NamedGroups {
  std::mutex mutex;
  std::map<int64_t, CollectiveGroup*> all;
  int64_t next = 0;
};
NamedGroups& named_groups() {
  static auto* const g = new NamedGroups;
  return *g;
}

class Alone final : public CollectiveGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void perform(CollectiveKind, std::span<const Tensor>, std::span<const Tensor>, int, ReduceKind,
               double) override {
    ARETE_BUG("its calls are copies");
  }
};

CollectiveGroup& group_of(int64_t number) {
  static auto* const alone = new Alone;
  if (number == kAlone) return *alone;
  const std::lock_guard lock(named_groups().mutex);
  const auto at = named_groups().all.find(number);
  ARETE_CHECK(at != named_groups().all.end(),
              ValueError("", "the group of processes was destroyed").argument("group"));
  return *at->second;
}

// What is linear has a gradient.
ReduceKind linear_kind(const Call& c, size_t i) {
  const std::string_view name = c[i].string();
  for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::premul_sum})
    if (name == prim::name_of(kind)) return kind;
  throw ValueError(c.name(), "gradients are those of sums and averages")
      .argument("op")
      .expected("SUM, AVG or PREMUL_SUM")
      .got(std::string(name));
}

int checked_root(const Call& c, size_t i, size_t group) {
  const int64_t root = c.integer(i), size = group_of(c.integer(group)).size();
  ARETE_CHECK(root >= 0 && root < size, ValueError(c.name(), "there is no such rank")
                                            .expected("0 to " + std::to_string(size - 1))
                                            .got(std::to_string(root)));
  return int(root);
}

// Elements that follow each other as `n` parts.
std::vector<Tensor> equal_parts(const Tensor& t, int n) {
  std::vector<Tensor> parts;
  const int64_t each = t.numel() / n;
  for (int r = 0; r < n; ++r)
    parts.push_back(alias(t, Layout(Shape{each}, Shape{1}, t.layout().offset + r * each)));
  return parts;
}

std::vector<Tensor> split_rows(const Tensor& t, IntList rows) {
  std::vector<Tensor> parts;
  int64_t row = 0;
  for (const int64_t n : rows) {
    parts.push_back(alias(t, narrow(t.layout(), 0, row, n)));
    row += n;
  }
  return parts;
}

// Of this process alone the result is the argument; else false.
bool copies_alone(const Call& c, size_t group, const Tensor& out, prim::Primitives& p) {
  if (c.integer(group) != kAlone) return false;
  const Tensor from = c.tensor(0).reshape(out.sizes());
  p.copy({view_of(out), view_of(from)});
  return true;
}

void perform_call(const Call& c, size_t group, CollectiveKind kind, std::span<const Tensor> in,
                  std::span<const Tensor> out, int root = 0, ReduceKind reduce = ReduceKind::sum,
                  double factor = 1) {
  group_of(c.integer(group)).perform(kind, in, out, root, reduce, factor);
}

void like_first(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  out.push_back({Shape(x.sizes()), x.dtype()});
}

// x multiplied as a reduction multiplies what it adds.
Tensor scaled_as(const GradCall& g, size_t op, size_t factor, size_t group, const Tensor& x) {
  const std::string_view name = g.arg(op).string();
  if (name == prim::name_of(ReduceKind::avg))
    return x * (1.0 / double(group_of(g.integer(group)).size()));
  return name == prim::name_of(ReduceKind::premul_sum) ? x * g.real(factor) : x;
}

const OpRecord& collective_all_reduce_op =
    define("collective_all_reduce(Tensor self, str op, float factor, int group) -> Tensor")
        .doc("The sum, the average or the sum with a factor of the tensors of all processes.")
        .surface(Surface::internal)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          linear_kind(c, 1);
          group_of(c.integer(3));
          like_first(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 3, out[0], p)) return;
          perform_call(c, 3, CollectiveKind::all_reduce, {&c.tensor(0), 1}, out, 0,
                       linear_kind(c, 1), c.real(2));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(collective_all_reduce_op, {g.grad(), g.arg(1), g.arg(2), g.arg(3)})};
        });

extern const OpRecord& collective_reduce_scatter_op;

const OpRecord& collective_all_gather_op =
    define("collective_all_gather(Tensor self, int group) -> Tensor")
        .doc("The rows of all processes, one after the other; of numbers a vector.")
        .surface(Surface::internal)
        .one_by_one("what the processes give lies along the first dimension")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          Shape sizes = x.dim() == 0 ? Shape{1} : Shape(x.sizes());
          sizes[0] *= group_of(c.integer(1)).size();
          out.push_back({sizes, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 1, out[0], p)) return;
          perform_call(c, 1, CollectiveKind::all_gather, {&c.tensor(0), 1},
                       equal_parts(out[0], group_of(c.integer(1)).size()));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(collective_reduce_scatter_op, {g.grad(), "SUM", 1.0, g.arg(1)})
                      .reshape(g.input_sizes(0))};
        });

const OpRecord& collective_reduce_scatter_op =
    define("collective_reduce_scatter(Tensor self, str op, float factor, int group) -> Tensor")
        .doc(
            "Of the sum, average or sum with a factor of all processes' tensors the rows of this "
            "one: as many for each.")
        .surface(Surface::internal)
        .one_by_one("what the processes give lies along the first dimension")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          linear_kind(c, 1);
          const int64_t size = group_of(c.integer(3)).size();
          ARETE_CHECK(x.dim() > 0 && x.size(0) % size == 0,
                      ValueError(c.name(), "rows do not divide equally across the group")
                          .got(describe(x))
                          .expected("a multiple of " + std::to_string(size)));
          Shape sizes(x.sizes());
          sizes[0] /= size;
          out.push_back({sizes, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 3, out[0], p)) return;
          const Tensor x = c.tensor(0).contiguous();
          perform_call(c, 3, CollectiveKind::reduce_scatter,
                       equal_parts(x, group_of(c.integer(3)).size()), out, 0, linear_kind(c, 1),
                       c.real(2));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {scaled_as(g, 1, 2, 3, call(collective_all_gather_op, {g.grad(), g.arg(3)}))};
        });

std::vector<int64_t> rows_for_each(const Call& c, size_t i, int64_t rows) {
  const int64_t size = group_of(c.integer(3)).size();
  std::vector<int64_t> each(c.ints(i).begin(), c.ints(i).end());
  if (each.empty() && rows >= 0) {
    ARETE_CHECK(rows % size == 0,
                ValueError(c.name(), "rows do not divide equally across the group")
                    .got(std::to_string(rows) + " for " + std::to_string(size) + " ranks"));
    each.assign(size_t(size), rows / size);
  }
  ARETE_CHECK(int64_t(each.size()) == size,
              ValueError(c.name(), "Number of tensor splits not equal to group size"));
  for (const int64_t n : each)
    ARETE_CHECK(n >= 0, ValueError(c.name(), "a split is negative").got(std::to_string(n)));
  ARETE_CHECK(rows < 0 || std::accumulate(each.begin(), each.end(), int64_t(0)) == rows,
              ValueError(c.name(), "Split sizes doesn't match total dim 0 size"));
  return each;
}

const OpRecord& collective_all_to_all_op =
    define(
        "collective_all_to_all(Tensor self, int[] output_splits, int[] input_splits, int group) -> "
        "Tensor")
        .doc(
            "Sends each process some rows, and receives rows from each: as many for all where "
            "neither list says it.")
        .surface(Surface::internal)
        .one_by_one("what the processes give lies along the first dimension")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() > 0, ValueError(c.name(), "a tensor of one number has no parts"));
          rows_for_each(c, 2, x.size(0));
          Shape sizes(x.sizes());
          if (!c.ints(1).empty()) {
            const auto each = rows_for_each(c, 1, -1);
            sizes[0] = std::accumulate(each.begin(), each.end(), int64_t(0));
          } else {
            rows_for_each(c, 1, sizes[0]);
          }
          out.push_back({sizes, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 3, out[0], p)) return;
          const Tensor x = c.tensor(0).contiguous();
          perform_call(c, 3, CollectiveKind::all_to_all,
                       split_rows(x, rows_for_each(c, 2, x.size(0))),
                       split_rows(out[0], rows_for_each(c, 1, out[0].size(0))));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(collective_all_to_all_op, {g.grad(), g.ints(2), g.ints(1), g.arg(3)})};
        });

extern const OpRecord& collective_reduce_op;

const OpRecord& collective_broadcast_op =
    define("collective_broadcast(Tensor self, int src, int group) -> Tensor")
        .doc("The tensor of one process.")
        .surface(Surface::internal)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          checked_root(c, 1, 2);
          like_first(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 2, out[0], p)) return;
          const int src = checked_root(c, 1, 2);
          if (group_of(c.integer(2)).rank() == src) p.copy({view_of(out[0]), view_of(c.tensor(0))});
          perform_call(c, 2, CollectiveKind::broadcast, {}, out, src);
        })
        .grad([](const GradCall& g) -> TensorList {
          const Tensor sum = call(collective_reduce_op, {g.grad(), "SUM", 1.0, g.arg(1), g.arg(2)});
          const bool is_source = group_of(g.integer(2)).rank() == g.integer(1);
          return {is_source ? sum : sum * 0.0};
        });

const OpRecord& collective_reduce_op =
    define("collective_reduce(Tensor self, str op, float factor, int dst, int group) -> Tensor")
        .doc(
            "The sum, the average or the sum with a factor of all processes' tensors for one; the "
            "others have their own.")
        .surface(Surface::internal)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          linear_kind(c, 1);
          checked_root(c, 3, 4);
          like_first(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 4, out[0], p)) return;
          const int dst = checked_root(c, 3, 4);
          const bool here = group_of(c.integer(4)).rank() == dst;
          if (!here) p.copy({view_of(out[0]), view_of(c.tensor(0))});
          perform_call(c, 4, CollectiveKind::reduce, {&c.tensor(0), 1},
                       here ? out : std::span<const Tensor>(), dst, linear_kind(c, 1), c.real(2));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {
              scaled_as(g, 1, 2, 4, call(collective_broadcast_op, {g.grad(), g.arg(3), g.arg(4)}))};
        });

extern const OpRecord& collective_scatter_op;

const OpRecord& collective_gather_op =
    define("collective_gather(Tensor self, int dst, int group) -> Tensor")
        .doc("The tensors of all processes, stacked, for one; the others have zeros.")
        .surface(Surface::internal)
        .one_by_one("what the processes give lies along the first dimension")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          checked_root(c, 1, 2);
          Shape sizes{group_of(c.integer(2)).size()};
          for (const int64_t n : x.sizes()) sizes.push_back(n);
          out.push_back({sizes, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 2, out[0], p)) return;
          const int dst = checked_root(c, 1, 2);
          const CollectiveGroup& group = group_of(c.integer(2));
          std::vector<Tensor> parts;
          if (group.rank() == dst)
            parts = equal_parts(out[0], group.size());
          else
            p.fill({.out = view_of(out[0]), .value = {.i = 0}, .value_is_integer = true});
          perform_call(c, 2, CollectiveKind::gather, {&c.tensor(0), 1}, parts, dst);
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(collective_scatter_op, {g.grad(), g.arg(1), g.arg(2)})};
        });

const OpRecord& collective_scatter_op =
    define("collective_scatter(Tensor self, int src, int group) -> Tensor")
        .doc("Of the rows of one process the one for this; the others' are not read.")
        .surface(Surface::internal)
        .one_by_one("what the processes give lies along the first dimension")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          checked_root(c, 1, 2);
          const int64_t size = group_of(c.integer(2)).size();
          ARETE_CHECK(x.dim() > 0 && x.size(0) == size,
                      ValueError(c.name(), "there must be one row for each rank of the group")
                          .expected(std::to_string(size))
                          .got(describe(x)));
          out.push_back({Shape(x.sizes().begin() + 1, x.sizes().end()), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (copies_alone(c, 2, out[0], p)) return;
          const int src = checked_root(c, 1, 2);
          const CollectiveGroup& group = group_of(c.integer(2));
          std::vector<Tensor> parts;
          const Tensor x = c.tensor(0).contiguous();
          if (group.rank() == src) parts = equal_parts(x, group.size());
          perform_call(c, 2, CollectiveKind::scatter, parts, out, src);
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(collective_gather_op, {g.grad(), g.arg(1), g.arg(2)})};
        });

}  // namespace

int64_t add_group(CollectiveGroup& group) {
  const std::lock_guard lock(named_groups().mutex);
  named_groups().all.emplace(named_groups().next, &group);
  return named_groups().next++;
}

void remove_group(int64_t number) noexcept {
  const std::lock_guard lock(named_groups().mutex);
  named_groups().all.erase(number);
}

}  // namespace arete::ops
ARETE_FAMILY(collective)
