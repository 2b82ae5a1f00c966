#include "arete/autograd/forward_mode.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "arete/autograd/engine.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/core/print.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/foreach.h"
#include "arete/ops/sparse.h"

namespace arete::autograd {

namespace {

template <class F>
void each_tensor(tracing::Items<ops::Arg> args, F&& f) {
  for (size_t i = 0; i < args.size; ++i) {
    const ops::Arg& a = args.data[i];
    if (a.kind() == ops::Arg::Kind::tensor) f(a.tensor());
    if (a.kind() == ops::Arg::Kind::tensors)
      for (const Tensor& t : a.tensors())
        if (t.defined()) f(t);
  }
}

Generator& generator_of(tracing::Items<ops::Arg> args) {
  for (size_t i = 0; i < args.size; ++i)
    if (Generator* const g = args.data[i].generator()) return *g;
  return default_generator();
}

// The arguments of a call with variables for those that have tangents.
class Variables {
 public:
  // `record`: what the arguments' history leads to is differentiated, too. What the call has
  // written to since it had these versions (statistics of a norm) is not written again.
  template <class TangentOf>
  Variables(tracing::Items<ops::Arg> args, bool record, TangentOf&& tangent_of,
            const std::vector<uint64_t>& versions)
      : args_(args.data, args.data + args.size) {
    size_t lists = 0, next = 0;
    for (const ops::Arg& a : args_) lists += a.kind() == ops::Arg::Kind::tensors;
    lists_.reserve(lists);
    singles_.reserve(args.size);
    const auto variable = [&](const Tensor& t) {
      if (!t.defined()) return t;
      const Tensor tangent = tangent_of(t);
      const bool is_written = next < versions.size() && versions[next] != t.version();
      ++next;
      if (!tangent.defined()) return is_written ? t.clone() : t;
      Tensor v = record && t.requires_grad() ? t.expand(t.sizes())
                                             : ops::alias(t, t.layout()).requires_grad_();
      variables_.push_back(v);
      tangents_.push_back(tangent);
      return v;
    };
    for (ops::Arg& a : args_) {
      if (a.kind() == ops::Arg::Kind::tensor) {
        singles_.push_back(variable(a.tensor()));
        a = ops::Arg(singles_.back());
      } else if (a.kind() == ops::Arg::Kind::tensors) {
        std::vector<Tensor>& list = lists_.emplace_back();
        for (const Tensor& t : a.tensors()) list.push_back(variable(t));
        a = ops::Arg(list);
      }
    }
  }
  std::span<const ops::Arg> args() const { return {args_.data(), args_.size()}; }
  std::span<const Tensor> variables() const { return variables_; }
  std::span<const Tensor> tangents() const { return tangents_; }

 private:
  std::vector<ops::Arg> args_;
  std::vector<Tensor> singles_;  // neither is ever moved: arguments point at them
  std::vector<std::vector<Tensor>> lists_;
  std::vector<Tensor> variables_, tangents_;
};

// Whether the Jacobians of a pointwise call are diagonal, so that they are their own transposes.
bool is_diagonal(const Tensor& y, std::span<const Tensor> variables) {
  return !is_complex(y.dtype()) && std::ranges::all_of(variables, [&](const Tensor& x) {
    return !is_complex(x.dtype()) && x.layout().sizes == y.layout().sizes;
  });
}

// The outputs' tangents, undefined where they depend on no variable.
TensorList push(const ops::OpRecord& op, const Variables& v, bool record) {
  const EnableGradGuard grads;
  const ops::Results all = ops::call_all(op, v.args());
  TensorList result(all.size());
  if (op.pointwise && is_diagonal(all[0], v.variables())) {
    for (size_t i = 0; i < v.variables().size() && all[0].requires_grad(); ++i) {
      const Tensor given = v.tangents()[i].to(all[0].dtype());
      const Tensor part = grad(all, v.variables().subspan(i, 1), {&given, 1}, true, record,
                               /*allow_unused=*/true)[0];
      if (!part.defined()) continue;
      const EnableGradGuard only(record);
      result[0] = result[0].defined() ? result[0] + part : part.to(all[0].dtype());
    }
    return result;
  }
  std::vector<Tensor> outputs, units;
  // Among several outputs those without elements stand for what was not asked for: formulas need
  // not heed them.
  const auto moves = [&](const Tensor& y) {
    return y.defined() && y.requires_grad() && (all.size() == 1 || y.numel());
  };
  for (size_t k = 0; k < all.size(); ++k)
    if (const Tensor& y = all[k]; moves(y)) {
      outputs.push_back(y);
      units.push_back(zeros(y.sizes(), TensorOptions(y.dtype(), y.device())).requires_grad_());
    }
  if (outputs.empty()) return result;
  TensorList found = grad(outputs, v.variables(), units, true, true, /*allow_unused=*/true);
  std::vector<Tensor> products, given;
  for (size_t i = 0; i < found.size(); ++i)
    // No pass goes on behind a sparse gradient.
    if (Tensor product = found[i].defined() ? ops::dense_of(found[i]) : Tensor();
        product.defined() && product.requires_grad()) {
      products.push_back(std::move(product));
      given.push_back(v.tangents()[i]);
    }
  if (products.empty()) return result;
  found = grad(products, units, given, record, record, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t k = 0; k < all.size(); ++k)
    if (moves(all[k])) result[k] = found[next++];
  return result;
}

}  // namespace

// The tensors of a level that have tangents, and the listener that gives them on.
class DualLevel::Tangents final : public tracing::ThreadListener, public ops::HearsSingleCalls {
 public:
  // Null without a level. Thread-local memory is short: the thread's listeners know.
  static Tangents* of_thread() noexcept {
    if (!(modes().word & Modes::kObserve)) return nullptr;
    for (tracing::ThreadListener* l = modes().listener; l; l = l->outer())
      if (auto* const t = dynamic_cast<Tangents*>(l)) return t;
    return nullptr;
  }

  // Undefined of what has none.
  Tensor find(const Tensor& t) {
    if (entries_.empty()) return {};
    if (const auto it = entries_.find(t.impl()); it != entries_.end()) return it->second.tangent;
    const auto [begin, end] = by_storage_.equal_range(t.storage().get());
    for (auto it = begin; it != end; ++it) {
      const Entry& e = entries_.at(it->second);
      if (e.tangent.defined() && e.self.dtype() == t.dtype() && e.self.layout() == t.layout())
        return e.tangent;
    }
    // A view from before its base became dual.
    if (const auto it = entries_.find(t.impl()->base.get()); it != entries_.end() &&
                                                             it->second.tangent.defined() &&
                                                             t.dtype() == it->second.self.dtype())
      return part_of(it->second, t);
    return {};
  }

  // An undefined tangent: `t` is known to have none.
  void set(const Tensor& t, Tensor tangent) {
    const WithoutTangents quiet;
    if (tangent.defined() && tangent.layout().strides != t.layout().strides && is_dense(t)) {
      Tensor own = ops_empty(t, tangent);
      own.copy_(tangent);
      tangent = own;
    }
    if (entries_.size() >= most_) sweep();
    const auto [it, is_new] = entries_.try_emplace(t.impl(), Entry{t, {}, t.storage().get()});
    if (is_new) by_storage_.emplace(it->second.storage, t.impl());
    it->second.tangent = std::move(tangent);
  }

  uint64_t begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                      bool in_place) override {
    if (quiet) return 0;
    Frame frame;
    // A function that is no record cannot be called again: its parts are heard. So are those of a
    // composition with history, whose nodes save what it makes on its way: a backward pass that
    // reads that wants its tangents.
    const bool has_parts =
        ops::is_function_record(op) || (op.compose && is_grad_enabled() && is_recorded(args));
    if (!covering_ && !has_parts && !(in_place && op.compose_in_place) &&
        !(modes().word & Modes::kInference) && is_dual(args)) {
      frame.is_dual = true;
      frame.state = generator_of(args).state();
      if (in_place) {  // while its values are there
        frame.in_place = true;
        frame.pushed = pushed(op, args, frame);
      } else if (op.compose) {
        each_tensor(args, [&](const Tensor& t) { frame.versions.push_back(t.version()); });
      }
      frame.covers = op.compose || in_place;
      covering_ += frame.covers;
    }
    frames_.push_back(std::move(frame));
    return 0;
  }
  uint64_t begin_call_into(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                           tracing::Items<Tensor* const> outs) override {
    if (quiet) return 0;
    bool any = is_dual(args);
    for (size_t i = 0; i < outs.size; ++i)
      any = any || (outs.data[i]->defined() && find(*outs.data[i]).defined());
    ARETE_CHECK(!any || modes().word & Modes::kInference,
                NotImplementedError(op.name, "Trying to use forward AD with " + op.name +
                                                 "_out that does not support it because it is an "
                                                 "out= function"));
    frames_.emplace_back();
    return 0;
  }
  void end_call(uint64_t, const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                tracing::Items<Tensor> results) override {
    if (quiet) return;
    const Frame frame = std::move(frames_.back());
    frames_.pop_back();
    covering_ -= frame.covers;
    if (!frame.is_dual) return;
    if (frame.in_place) {
      written(results.data[0], frame.pushed.empty() ? Tensor() : frame.pushed[0]);
      return;
    }
    const bool are_views = op.view || op.views || (op.compose && shows(args, results));
    if (are_views) {
      view(op, args, results);
      return;
    }
    bool is_open = false;  // what gave back an argument has its tangent
    for (size_t i = 0; i < results.size; ++i) is_open = is_open || is_open_result(results.data[i]);
    if (!is_open) return;
    check_is_one_call(op, args, results);
    const TensorList tangents = pushed(op, args, frame);
    for (size_t i = 0; i < results.size; ++i)
      if (is_open_result(results.data[i]) && tangents[i].defined())
        set(results.data[i], apart(tangents[i], args));
  }
  void fail_call() noexcept override {
    if (quiet) return;
    covering_ -= frames_.back().covers;
    frames_.pop_back();
  }
  void detached(const Tensor&, const Tensor& to) noexcept override {
    if (!quiet && !entries_.empty()) set(to, {});
  }

  bool is_covered() const { return modes().listener != this; }

  int quiet = 0;

 private:
  struct Entry {
    Tensor self, tangent;
    const Storage* storage;  // under which it is found: a tensor may get another one
  };
  struct Frame {
    bool is_dual = false, in_place = false, covers = false;
    Generator::State state{};        // before random numbers were drawn
    std::vector<uint64_t> versions;  // of a composition's arguments, before it ran
    TensorList pushed;
  };

  static bool is_recorded(tracing::Items<ops::Arg> args) {
    bool any = false;
    each_tensor(args, [&](const Tensor& t) { any = any || t.requires_grad(); });
    return any;
  }
  bool is_dual(tracing::Items<ops::Arg> args) {
    bool any = false;
    each_tensor(args, [&](const Tensor& t) { any = any || find(t).defined(); });
    return any;
  }
  // Whether the results of a composition are views of its first argument.
  static bool shows(tracing::Items<ops::Arg> args, tracing::Items<Tensor> results) {
    if (!args.size || args.data[0].kind() != ops::Arg::Kind::tensor) return false;
    const Tensor& self = args.data[0].tensor();
    for (size_t i = 0; i < results.size; ++i) {
      const Tensor& t = results.data[i];
      if (t.is_same(self) || !t.is_view() || t.storage() != self.storage()) return false;
    }
    return results.size > 0;
  }
  bool is_open_result(const Tensor& t) {
    return t.defined() && is_differentiable(t.dtype()) && !entries_.contains(t.impl());
  }

  static bool is_dense(const Tensor& t) {
    SmallVector<std::pair<int64_t, int64_t>, 6> dims;
    for (int64_t d = 0; d < t.dim(); ++d)
      if (t.size(d) != 1) dims.emplace_back(t.stride(d), t.size(d));
    std::sort(dims.begin(), dims.end());
    int64_t step = 1;
    for (const auto& [stride, size] : dims) {
      if (stride != step) return false;
      step *= size;
    }
    return t.numel() > 0;
  }
  static Tensor ops_empty(const Tensor& like, const Tensor& kind) {
    return empty_strided(like.sizes(), like.strides(), TensorOptions(kind.dtype(), kind.device()));
  }

  static void check_has_strides(const Tensor& tangent, const Tensor& self) {
    ARETE_CHECK(std::ranges::equal(tangent.strides(), self.strides()),
                NotImplementedError("as_strided",
                                    "forward mode has the tangent of this tensor, whose elements "
                                    "have gaps between them, laid out otherwise"));
  }

  static Tensor part_of(const Entry& base, const Tensor& t) {
    const WithoutTangents quiet;
    check_has_strides(base.tangent, base.self);
    const int64_t before = t.layout().offset - base.self.layout().offset;
    return base.tangent.as_strided(t.sizes(), t.strides(), base.tangent.layout().offset + before);
  }

  TensorList pushed(const ops::OpRecord& op, tracing::Items<ops::Arg> args, const Frame& frame) {
    Generator& generator = generator_of(args);
    struct Restore {
      Generator& generator;
      const Generator::State now = generator.state();
      ~Restore() {
        if (!(generator.state() == now)) generator.set_state(now);
      }
    } const restore{generator};
    if (!(restore.now == frame.state)) generator.set_state(frame.state);
    const bool record = is_grad_enabled();
    const auto find_tangent = [this](const Tensor& t) { return find(t); };
    const WithoutTangents none;
    Variables v(args, record, find_tangent, frame.versions);
    const auto needs = [](const Tensor& t) { return t.requires_grad(); };
    bool create = record && std::ranges::any_of(v.tangents(), needs);
    if (record) each_tensor(args, [&](const Tensor& t) { create = create || t.requires_grad(); });
    TensorList found = push(op, v, create);
    if (!create)
      for (Tensor& t : found)
        if (t.defined() && t.requires_grad()) t = t.detach();
    return found;
  }

  // A tangent that shares no memory with an argument's: later writes are to one of the two.
  Tensor apart(Tensor tangent, tracing::Items<ops::Arg> args) {
    bool shares = false;
    each_tensor(args, [&](const Tensor& t) {
      const Tensor own = find(t);
      shares = shares || (own.defined() && own.storage() == tangent.storage());
    });
    if (!shares) return tangent;
    const WithoutTangents none;
    return tangent.clone();
  }

  void view(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
            tracing::Items<Tensor> results) {
    const Tensor& self = args.data[0].tensor();
    const Tensor tangent = find(self);
    if (!tangent.defined()) return;
    SmallVector<ops::Arg, 8> given(args.data, args.data + args.size);
    given[0] = ops::Arg(tangent);
    if (op.storage_offsets) {
      check_has_strides(tangent, self);
      for (size_t i = 0; i < given.size(); ++i)
        if (op.storage_offsets >> i & 1 && !given[i].is_none())
          given[i] =
              ops::Arg(given[i].integer() - self.storage_offset() + tangent.storage_offset());
    }
    ops::Results views;
    {
      const WithoutTangents none;
      views = ops::call_all(op, std::span<const ops::Arg>(given.data(), given.size()));
    }
    for (size_t i = 0; i < results.size; ++i)
      if (is_differentiable(results.data[i].dtype())) set(results.data[i], views[i]);
  }

  // `self` was written to, and `tangent` is that of its new values.
  void written(const Tensor& self, const Tensor& tangent) {
    Tensor own = find(self);
    if (!own.defined() && !tangent.defined()) return;
    const WithoutTangents none;
    const bool is_leaf = own.defined() && own.requires_grad() && own.is_leaf();
    if (!own.defined() && self.is_view()) {
      const Tensor base(self.impl()->base);
      Tensor whole = ops_empty(base, base);
      set(base, whole.zero_());
      own = part_of(entries_.at(base.impl()), self);
      set(self, own);
      own = entries_.at(self.impl()).tangent;
    }
    if (!own.defined() || is_leaf)
      set(self, tangent.defined() ? tangent.to(self.dtype()).clone()
                                  : zeros(self.sizes(), self.options()));
    else if (tangent.defined())
      own.copy_(tangent);
    else
      own.zero_();
  }

  // Loops over several tensors at once, some of which write into their arguments.
  static void check_is_one_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                                tracing::Items<Tensor> results) {
    if (!op.apply) return;
    bool is_one = args.data[0].kind() != ops::Arg::Kind::program ||
                  !args.data[0].program().program ||
                  args.data[0].program().program->inputs().size() == args.data[1].tensors().size();
    each_tensor(args, [&](const Tensor& t) {
      for (size_t i = 0; i < results.size; ++i)
        is_one = is_one && results.data[i].storage() != t.storage();
    });
    ARETE_CHECK(is_one,
                NotImplementedError(op.name, "forward mode does not go through '" + op.name +
                                                 "', which works on lists of tensors"));
  }

  // Lets go of what nobody else holds.
  void sweep() {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const Entry& e = it->second;
      const bool is_held = e.self.impl()->use_count() > 1 ||
                           (e.tangent.defined() && e.self.storage()->use_count() > 1);
      if (is_held) {
        ++it;
        continue;
      }
      const auto [begin, end] = by_storage_.equal_range(e.storage);
      for (auto at = begin; at != end; ++at)
        if (at->second == it->first) {
          by_storage_.erase(at);
          break;
        }
      it = entries_.erase(it);
    }
    most_ = std::max<size_t>(64, 2 * entries_.size());
  }

  std::unordered_map<const TensorImpl*, Entry> entries_;
  std::unordered_multimap<const Storage*, const TensorImpl*> by_storage_;
  std::vector<Frame> frames_;
  int covering_ = 0;  // calls under way that are made again as a whole
  size_t most_ = 64;
};

DualLevel::Tangents& DualLevel::current() {
  Tangents* const t = Tangents::of_thread();
  ARETE_CHECK(t, AutogradError("make_dual",
                               "Trying to create a dual Tensor for forward AD but no "
                               "level exists, make sure to enter_dual_level() first."));
  return *t;
}

DualLevel::DualLevel()
    : tangents_([] {
        ARETE_CHECK(!has_dual_level(),
                    AutogradError("enter_dual_level",
                                  "Nested forward mode AD is not supported at the moment"));
        return std::make_unique<Tangents>();
      }()) {
  detail::tangent_for_text.store(tangent_of, std::memory_order_release);
}

DualLevel::~DualLevel() = default;

bool DualLevel::is_covered() const { return tangents_->is_covered(); }

bool has_dual_level() noexcept { return DualLevel::Tangents::of_thread() != nullptr; }

WithoutTangents::WithoutTangents() {
  if (DualLevel::Tangents* const t = DualLevel::Tangents::of_thread()) ++t->quiet;
}
WithoutTangents::~WithoutTangents() {
  if (DualLevel::Tangents* const t = DualLevel::Tangents::of_thread()) --t->quiet;
}

namespace {
Tensor view_without_tangent(const Tensor& t) {
  const WithoutTangents none;
  return t.expand(t.sizes());
}
}  // namespace

Tensor make_dual(const Tensor& primal, const Tensor& tangent) {
  DualLevel::Tangents& level = DualLevel::current();
  for (const auto& [what, t] : {std::pair("primal", &primal), std::pair("tangent", &tangent)})
    ARETE_CHECK(
        t->defined() && is_differentiable(t->dtype()),
        ValueError("make_dual", std::string("Expected ") + what +
                                    " to be floating point or complex, but got: " +
                                    (t->defined() ? std::string(name_of(t->dtype())) : "none")));
  ARETE_CHECK(!level.find(primal).defined(),
              AutogradError("make_dual",
                            "Making a dual Tensor based on a Tensor that already has a forward "
                            "gradient at the same level 0 is not supported."));
  const Tensor dual = view_without_tangent(primal);
  level.set(primal, {});  // which shares the memory
  set_tangent(dual, tangent);
  return dual;
}

Tensor tangent_of(const Tensor& t) {
  DualLevel::Tangents* const level = DualLevel::Tangents::of_thread();
  return level ? level->find(t) : Tensor();
}

Tensor primal_of(const Tensor& t) {
  const Tensor primal = view_without_tangent(t);
  if (has_dual_level()) DualLevel::current().set(primal, {});
  return primal;
}

void set_tangent(const Tensor& t, const Tensor& tangent) {
  DualLevel::Tangents& level = DualLevel::current();
  if (tangent.defined()) {
    ARETE_CHECK(
        tangent.layout().sizes == t.layout().sizes,
        AutogradError("make_dual",
                      "Trying to set a forward gradient that has a different size than that of "
                      "the original Tensor, this is not supported. Tensor is of size " +
                          to_string(t.sizes()) + " while the given forward gradient is of size " +
                          to_string(tangent.sizes()) + "."));
    ARETE_CHECK(!level.find(tangent).defined(),
                AutogradError("make_dual",
                              "Setting a forward grad that itself has a forward gradient at the "
                              "same level 0 is not supported."));
    ARETE_CHECK(tangent.device() == t.device(),
                DeviceError("make_dual", "the tangent is on " + tangent.device().to_string() +
                                             ", the tensor on " + t.device().to_string()));
  }
  level.set(t, tangent);
}

}  // namespace arete::autograd
