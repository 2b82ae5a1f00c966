#include "arete/ops/foreach.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/in_place.h"
#include "arete/ops/linalg.h"
#include "arete/ops/multi.h"
#include "arete/ops/op_node.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/reduce.h"
#include "arete/ops/vmap.h"

namespace arete::ops {

namespace {

using Tensors = std::span<const Tensor>;
using Scalars = std::span<const Scalar>;
using Items = std::vector<PreparedCall>;

const char* name_of_list(const OpRecord& op) {
  return program_record("_foreach_" + op.name).name.c_str();
}

void check_tensors(const char* name, Tensors list) {
  ARETE_CHECK(!list.empty(), ValueError(name, "Tensor list must have at least one tensor."));
  ARETE_CHECK(std::ranges::all_of(list, &Tensor::defined),
              TypeError(name, "expected Tensors, not undefined ones"));
}

void check_lengths(const char* name, size_t a, size_t b) {
  ARETE_CHECK(a == b, ValueError(name, "Tensor lists must have the same number of tensors, got " +
                                           std::to_string(a) + " and " + std::to_string(b)));
}

// How many places the lists have.
size_t places(const OpRecord& op, const char* name, std::span<const ListArg> args) {
  // Others may look at arguments that lists do not have.
  const std::vector<SchemaArg>& known = schema_of(op).args;
  const auto least =
      std::ranges::count_if(known, [](const SchemaArg& a) { return a.default_text.empty(); });
  ARETE_CHECK(
      (op.pointwise || op.compose) && args.size() >= size_t(least) && args.size() <= known.size(),
      TypeError(name, "no operator on lists, or not its arguments")
          .got(std::to_string(args.size()) + " arguments"));
  std::optional<size_t> n;
  for (const ListArg& a : args)
    if (const Tensors* list = std::get_if<Tensors>(&a)) {
      if (n) check_lengths(name, *n, list->size());
      check_tensors(name, *list);
      n = list->size();
    }
  ARETE_CHECK(n.has_value(), ValueError(name, "one of the arguments must be a list of tensors"));
  for (const ListArg& a : args)
    if (const Scalars* list = std::get_if<Scalars>(&a))
      ARETE_CHECK(
          list->size() == *n,
          ValueError(name, "Tensor list must have same number of elements as scalar list."));
  return *n;
}

// The arguments at one place.
class Place {
 public:
  Place(std::span<const ListArg> args, size_t i) {
    for (const ListArg& a : args)
      args_.push_back(std::visit(
          [&](const auto& v) {
            using T = std::remove_cvref_t<decltype(v)>;
            if constexpr (std::is_same_v<T, Tensors> || std::is_same_v<T, Scalars>)
              return Arg(v[i]);
            else
              return Arg(v);
          },
          a));
  }
  std::span<const Arg> get() const { return {args_.data(), args_.size()}; }
  const Tensor& first() const { return args_[0].tensor(); }

 private:
  SmallVector<Arg, 6> args_;
};

// Calls that can be launched together.
struct Launch {
  const PreparedCall* first;
  int64_t n = 0;
  std::vector<prim::View> inputs, outputs;
  bool takes(const PreparedCall& c) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::ranges::equal(a, b, [](expr::Literal x, expr::Literal y) { return x.i == y.i; });
    };
    return first->program == c.program && first->out.device() == c.out.device() &&
           same(first->params, c.params);
  }
};

// Runs prepared calls that do not read what others of them write.
void launch(const char* name, const Items& items) {
  std::vector<Launch> launches;
  for (const PreparedCall& c : items) {
    if (c.out.numel() == 0) continue;
    auto l = std::ranges::find_if(launches, [&](const Launch& known) { return known.takes(c); });
    if (l == launches.end()) l = launches.insert(l, Launch{.first = &c});
    ++l->n;
    for (const Tensor& t : c.inputs) l->inputs.push_back(view_of(t));
    l->outputs.push_back(view_of(c.out));
  }
  for (const Launch& l : launches)
    run_programs(name, *l.first->program, l.first->out.device(), l.n, l.inputs, l.outputs,
                 {l.first->params.data(), l.first->params.size()});
}

// Memory that a tensor may touch.
struct Range {
  const Storage* storage;
  int64_t begin, end;
  explicit Range(const Tensor& t)
      : storage(t.storage().get()),
        begin(t.layout().offset * int64_t(t.element_size())),
        end(t.layout().end() * int64_t(t.element_size())) {}
  auto key() const { return std::pair(storage, begin); }
};

// Whether each call could as well be the first: no two write to the same memory, and none reads
// what another one writes.
bool are_independent(const Items& items) {
  std::vector<Range> written;
  for (const PreparedCall& c : items)
    if (c.out.numel() > 0) written.emplace_back(c.out);
  std::ranges::sort(written, {}, &Range::key);
  for (size_t i = 1; i < written.size(); ++i)
    if (written[i].storage == written[i - 1].storage && written[i].begin < written[i - 1].end)
      return false;
  for (const PreparedCall& c : items)
    for (const Tensor& t : c.inputs) {
      if (t.numel() == 0 || (t.storage() == c.out.storage() && t.layout() == c.out.layout()))
        continue;
      const Range r(t);
      // The last one that begins before the end of what is read.
      const auto after =
          std::ranges::lower_bound(written, std::pair(r.storage, r.end), {}, &Range::key);
      if (after == written.begin()) continue;
      const Range& w = *(after - 1);
      if (w.storage == r.storage && w.end > r.begin) return false;
    }
  return true;
}

// Modes whose places in the code are single calls, and listeners that go through them one by one.
bool must_be_single() {
  if (modes().word & Modes::kAnomaly) return true;
  if (modes().word & Modes::kObserve)
    for (const tracing::ThreadListener* l = modes().listener; l; l = l->outer())
      if (dynamic_cast<const HearsSingleCalls*>(l)) return true;
  return false;
}

// Tensors that see the elements of a 1-d tensor.
void scatter_elements(const Tensor& all, std::span<const size_t> where, std::span<Tensor> results) {
  for (size_t k = 0; k < where.size(); ++k) {
    Layout l{Shape{}};
    l.offset = all.layout().offset + int64_t(k);
    results[where[k]] = alias(all, std::move(l));
  }
}

// Whether a reduction of this tensor can share a launch with those of others.
bool can_share(const Tensor& t) {
  return !must_be_single() && t.numel() > 0 && is_floating(t.dtype()) && !t.is_meta() &&
         !will_record(t);
}

// Reduces each tensor to a number: those that can share launches (if any may) by `together`, which
// gives a 1-d tensor for some of one kind, the others by `single`.
template <class Together, class Single>
std::vector<Tensor> reduce_all(const char* name, Tensors tensors, bool may_share,
                               Together&& together, Single&& single) {
  check_tensors(name, tensors);
  const WithoutAutocast exact;
  std::vector<Tensor> results(tensors.size());
  std::vector<Tensor> some;
  std::vector<size_t> where;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!may_share || !can_share(tensors[i])) {
      results[i] = single(tensors[i]);
    } else {
      some.push_back(tensors[i]);
      where.push_back(i);
    }
  }
  for (std::vector<size_t>& group : by_device_and_dtype(some)) {
    const Tensor all = together(at_positions(some, group));
    for (size_t& i : group) i = where[i];
    scatter_elements(all, group, results);
  }
  return results;
}

}  // namespace

std::vector<Tensor> foreach_call(const OpRecord& op, std::span<const ListArg> args) {
  const char* const name = name_of_list(op);
  const size_t n = places(op, name, args);
  const WithoutAutocast exact;
  std::vector<Tensor> results(n);
  Items items;
  items.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const Place place(args, i);
    const Call call(op, place.get());
    std::optional<PreparedCall> c;
    if (!must_be_single() && !needs_history(call)) c = prepare_pointwise(call, nullptr);
    results[i] = c ? c->out : ops::call(op, place.get());
    if (c) items.push_back(std::move(*c));
  }
  launch(name, items);
  return results;
}

void foreach_call_in_place(const OpRecord& op, std::span<const ListArg> args) {
  const char* const name = name_of_list(op);
  const size_t n = places(op, name, args);
  const WithoutAutocast exact;
  Items items;
  items.reserve(n);
  bool together = !must_be_single();
  for (size_t i = 0; i < n; ++i) {
    const Place place(args, i);
    const Call call(op, place.get(), true);
    const bool record = needs_history(call);
    check_in_place(place.first(), name, record);
    together = together && !record;
    if (!together) continue;
    std::optional<PreparedCall> c = prepare_pointwise(call, &place.first());
    together = c.has_value();
    if (c) items.push_back(std::move(*c));
  }
  if (together && are_independent(items)) return launch(name, items);
  for (size_t i = 0; i < n; ++i) {
    const Place place(args, i);
    Tensor self = place.first();
    call_in_place(self, op, place.get());
  }
}

void foreach_copy(std::span<const Tensor> self, std::span<const Tensor> src, bool non_blocking) {
  const char* const name = "_foreach_copy_";
  check_tensors(name, self);
  check_lengths(name, self.size(), src.size());
  check_tensors(name, src);
  const auto records = [&](size_t i) { return will_record(self[i]) || will_record(src[i]); };
  Items items;
  items.reserve(self.size());
  std::map<std::pair<DType, DType>, expr::ProgramPtr> programs;
  bool together = !must_be_single();
  for (size_t i = 0; i < self.size(); ++i) {
    check_in_place(self[i], name, records(i));
    const DType to = self[i].dtype(), from = src[i].dtype();
    const bool shares = self[i].storage() == src[i].storage();
    together = together && !records(i) && !shares && self[i].device() == src[i].device() &&
               (to == from || (is_floating(to) && is_floating(from))) && !is_complex(to) &&
               std::ranges::equal(self[i].sizes(), src[i].sizes());
    if (!together) continue;
    expr::ProgramPtr& program = programs[{from, to}];
    if (!program) program = expr::conversion(from, to);
    items.push_back({program, {src[i]}, {}, self[i]});
  }
  if (together && are_independent(items)) return launch(name, items);
  for (size_t i = 0; i < self.size(); ++i) Tensor(self[i]).copy_(src[i], non_blocking);
}

void foreach_zero(Tensors self) {
  const char* const name = "_foreach_zero_";
  check_tensors(name, self);
  Items items;
  items.reserve(self.size());
  std::map<DType, expr::ProgramPtr> programs;
  bool together = !must_be_single();
  for (const Tensor& t : self) {
    const bool record = will_record(t);
    check_in_place(t, name, record);
    together = together && !record && !is_complex(t.dtype());
    if (!together) continue;
    const DType dtype = t.dtype();
    const expr::Type type = expr::compute_type(dtype);
    expr::ProgramPtr& program = programs[dtype];
    if (!program)
      program = expr::trace([](std::span<const expr::Value> v) { return std::vector{v[0]}; }, {},
                            {&type, 1}, {&dtype, 1});
    items.push_back({program, {}, {literal(0, type)}, t});
  }
  if (together && are_independent(items)) return launch(name, items);
  for (const Tensor& t : self) Tensor(t).zero_();
}

std::vector<Tensor> foreach_norm(Tensors tensors, double order, std::optional<DType> dtype,
                                 bool root) {
  const char* const name = root ? "_foreach_norm" : "_foreach_powsum";
  check_tensors(name, tensors);
  for (const Tensor& t : tensors)
    ARETE_CHECK(!root || !std::isinf(order) || t.numel() > 0,
                ValueError(name, std::string(name) +
                                     " cannot compute the infinity norm on an empty tensor because "
                                     "the operation does not have an identity"));
  // Sums of powers are meant literally: |x|^0 is 1 for 0, too, and |x|^inf 0, 1 or infinite.
  const bool literal = !root && (order == 0 || std::isinf(order));
  return reduce_all(
      name, tensors, !literal,
      [&](const std::vector<Tensor>& some) {
        const NoGradGuard no_grad;
        const DType result = dtype.value_or(some[0].dtype());
        const bool wide = result == kFloat64 || some[0].dtype() == kFloat64;
        const Tensor powers = powers_of_each(some, order, wide ? kFloat64 : kFloat32);
        return (root ? root_of_powers(powers, order) : powers).to(result);
      },
      [&](const Tensor& t) {
        if (root) return linalg::vector_norm(t, order, {}, false, dtype);
        const Tensor x = dtype ? t.to(*dtype) : t;
        return pow(abs(x), Scalar(order)).sum();
      });
}

std::vector<Tensor> foreach_max(Tensors tensors) {
  return reduce_all(
      "_foreach_max", tensors, true,
      [&](const std::vector<Tensor>& some) {
        const DType dtype = some[0].dtype();
        return reduce_each("_foreach_max", prim::Monoid::max, *expr::conversion(dtype, dtype),
                           some);
      },
      [](const Tensor& t) { return t.max(); });
}

}  // namespace arete::ops
