#include "arete/ops/rows.h"

#include <algorithm>
#include <map>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/program_arguments.h"
#include "arete/ops/program_node.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_internal.h"

namespace arete::ops {

using expr::DerivativeInput;
using expr::Literal;
using expr::Value;

namespace {

using Literals = SmallVector<Literal, 4>;
using Tensors = SmallVector<Tensor, 4>;

// Where the elements of a call lie.
struct Space {
  Shape sizes, dims;  // dims: those along a row, sorted
  int64_t length = 1, count = 1;

  Space(std::span<const Tensor> inputs, IntList along, const char* name)
      : sizes(inputs[0].sizes()) {
    for (const Tensor& t : inputs.subspan(1)) sizes = broadcast_shapes(sizes, t.sizes(), name);
    dims = normalize_dims(along, int(sizes.size()), name, true);
    for (const int64_t n : sizes) count *= n;
    for (const int64_t d : dims)
      if (!sizes.empty()) length *= sizes[size_t(d)];
  }
  uint32_t mask() const {
    uint32_t bits = 0;
    for (const int64_t d : dims) bits |= 1u << d;
    return sizes.empty() ? 0 : bits;
  }
  Shape sizes_of(bool is_row) const {
    Shape s = sizes;
    if (is_row)
      for (const int64_t d : dims)
        if (!s.empty()) s[size_t(d)] = 1;
    return s;
  }
  // `t`, which broadcasts to the space, with the dimensions of rows behind the others. Of results
  // that are rows' values `t` has size 1 there.
  Layout rows_last(const Tensor& t) const {
    const size_t rank = sizes.size(), missing = rank - size_t(t.dim());
    Layout l;
    l.offset = t.storage_offset();
    const auto add = [&](size_t d) {
      const int64_t size = d < missing ? 1 : t.sizes()[d - missing];
      l.sizes.push_back(size);
      l.strides.push_back(size == 1 ? 0 : t.strides()[d - missing]);
    };
    const uint32_t bits = mask();
    for (size_t d = 0; d < rank; ++d)
      if (!(bits >> d & 1)) add(d);
    for (const int64_t d : dims)
      if (!sizes.empty()) add(size_t(d));
    if (sizes.empty()) l.sizes.push_back(1), l.strides.push_back(0);
    return l;
  }
  Shape rows_last() const {
    Shape s;
    const uint32_t bits = mask();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (!(bits >> d & 1)) s.push_back(sizes[d]);
    for (const int64_t d : dims)
      if (!sizes.empty()) s.push_back(sizes[size_t(d)]);
    if (s.empty()) s.push_back(1);
    return s;
  }
  int outer_rank() const { return sizes.empty() ? 0 : int(sizes.size() - dims.size()); }
};

// The same as a layout of sizes that are given: what inputs are expanded to.
Layout expanded(Layout l, IntList sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (l.sizes[d] != sizes[d]) l.sizes[d] = sizes[d], l.strides[d] = 0;
  return l;
}

void run(const RowProgram& p, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
         const Literals& params, const Space& space) {
  if (outputs[0].is_meta()) return;
  bool any = false;
  for (const Tensor& t : outputs) any = any || t.numel() > 0;
  if (!any) return;
  const std::span<const Literal> literals(params.data(), params.size());
  prim::Primitives& device = target(outputs[0].device());
  SmallVector<Layout, 8> layouts;
  SmallVector<prim::View, 8> in, out;
  layouts.reserve(inputs.size() + outputs.size());

  const Shape sizes = space.rows_last();
  for (const Tensor& t : inputs) {
    layouts.push_back(expanded(space.rows_last(t), sizes));
    in.push_back(view_of(t, layouts.back()));
  }
  for (const Tensor& t : outputs) {
    layouts.push_back(space.rows_last(t));
    out.push_back(view_of(t, layouts.back()));
  }
  device.fused({.spec = &p.spec(),
                .space = sizes,
                .outer_rank = space.outer_rank(),
                .inputs = {in.data(), in.size()},
                .outputs = {out.data(), out.size()},
                .params = literals});
}

Results call_rows(const RowProgramPtr& program, std::span<const Tensor> inputs,
                  std::span<const Literal> params, IntList dims, const char* name);

class RowsNode final : public Node {
 public:
  RowsNode(RowProgramPtr program, std::span<const Tensor> inputs, const Literals& params,
           const Space& space, const char* name)
      : program_(std::move(program)), params_(params), space_(space), name_(name) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Edge e;
      if (inputs[i].requires_grad() && is_differentiable(inputs[i].dtype()))
        e = gradient_edge(inputs[i]);
      if (e) wanted_ |= uint32_t{1} << i;
      edges.push_back(std::move(e));
      sizes_.push_back(Shape(inputs[i].sizes()));
      saved_.push_back(SavedTensor());
    }
    try {
      for (const DerivativeInput& d : program_->derivative(wanted_).inputs)
        if (d.from == DerivativeInput::From::input)
          saved_[size_t(d.index)] = SavedTensor(inputs[size_t(d.index)], false);
    } catch (const NotImplementedError&) {
      // Who asks for the gradient gets the error.
    }
  }

  std::string name() const override { return name_; }

  TensorList backward(const TensorList& grads, uint64_t needed) override {
    TensorList result(edges.size());
    const uint32_t wanted = wanted_ & uint32_t(needed);
    if (!wanted) return result;
    const RowProgram::Derivative& d = program_->derivative(wanted);
    Tensors inputs;
    bool whole = false;
    for (const DerivativeInput& from : d.inputs) {
      const size_t k = size_t(from.index);
      if (from.from == DerivativeInput::From::input) {
        inputs.push_back(saved_[k].unpack(this, uint32_t(k), name_));
      } else {
        const GradMeta& meta = outputs[k];
        inputs.push_back(grads[k].defined()
                             ? grads[k]
                             : zeros(meta.sizes, TensorOptions(meta.dtype, meta.device)));
      }
      whole = whole || Shape(inputs.back().sizes()) == space_.sizes;
    }
    if (!whole) inputs[0] = inputs[0].expand(space_.sizes);
    const Results values = call_derivative(name_, [&](const char* name) {
      return call_rows(d.program, {inputs.data(), inputs.size()}, {params_.data(), params_.size()},
                       space_.dims, name);
    });
    size_t next = 0;
    for (size_t i = 0; i < edges.size(); ++i)
      if (wanted >> i & 1) result[i] = sum_to_size(values[next++], sizes_[i]);
    return result;
  }

  void release_saved() override {
    for (SavedTensor& s : saved_) s.reset();
  }

 private:
  RowProgramPtr program_;
  Literals params_;  // without the length
  Space space_;
  const char* name_;
  uint32_t wanted_ = 0;
  SmallVector<SavedTensor, 4> saved_;
  SmallVector<Shape, 4> sizes_;
};

bool is_recorded(const RowProgram& p, std::span<const Tensor> inputs) {
  if (!modes().grad_enabled) return false;
  bool any = false;
  for (const Tensor& t : inputs) any = any || (t.requires_grad() && is_differentiable(t.dtype()));
  for (size_t k = 0; any && k < p.n_outputs(); ++k)
    if (is_differentiable(p.output(k))) return true;
  return false;
}

Results call_rows(const RowProgramPtr& program, std::span<const Tensor> inputs,
                  std::span<const Literal> params, IntList dims, const char* name);

Results apply(const RowProgramPtr& program, std::span<const Tensor> inputs,
              std::span<const Literal> given, IntList dims, const char* name) {
  modes().current_op = name;
  for (size_t i = 1; i < inputs.size(); ++i)
    check_same_device(name, inputs[0].device(), 0, inputs[i].device(), i);
  const Literals params(given);
  const Space space(inputs, dims, name);
  ARETE_CHECK(space.length > 0 || space.count > 0 || !program->needs_elements(),
              ValueError(name, "rows without elements have no minimum and no maximum"));
  const uint64_t level = vmaps::may_be() ? vmaps::level_of(inputs) : 0;
  IntrusivePtr<RowsNode> node;
  if (is_recorded(*program, inputs) && vmaps::is_recorded_at(level, inputs))
    node = IntrusivePtr<RowsNode>(new RowsNode(program, inputs, params, space, name));
  Results outputs;
  if (level) {
    outputs =
        vmaps::run_physical(inputs, level, [&](std::span<const Tensor> physical, bool mapped) {
          Shape along;
          for (const int64_t d : space.dims) along.push_back(d + mapped);
          if (!mapped || !space.sizes.empty())
            return call_rows(program, physical, {params.data(), params.size()}, along, name);
          // Numbers are rows of one element.
          std::vector<Tensor> rows;
          for (const Tensor& t : physical) rows.push_back(t.unsqueeze(-1));
          Results made = call_rows(program, rows, {params.data(), params.size()}, {1}, name);
          for (Tensor& t : made) t = t.squeeze(-1);
          return made;
        });
  } else {
    for (size_t k = 0; k < program->n_outputs(); ++k)
      outputs.push_back(allocate_like(inputs, space.sizes_of(program->is_row(k)),
                                      program->output(k), inputs[0].device()));
    Literals all = params;
    all.push_back({.f = double(space.length)});
    run(*program, inputs, {outputs.data(), outputs.size()}, all, space);
  }
  if (node) {
    for (const Tensor& t : outputs)
      node->outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
    for (size_t k = 0; k < outputs.size(); ++k)
      if (is_differentiable(outputs[k].dtype())) set_history(outputs[k], node, uint32_t(k));
  }
  return outputs;
}

Results call_rows(const RowProgramPtr& program, std::span<const Tensor> inputs,
                  std::span<const Literal> params, IntList dims, const char* name) {
  if (tracing::is_plain()) [[likely]]
    return apply(program, inputs, params, dims, name);
  static auto* const records = new AnonymousRecords([](OpRecord& r) {
    r.schema = r.name + "(Program program, Tensor[] inputs, int[] dims) -> Tensor[]";
    r.apply = [](const Call& c) {
      const AppliedProgram& p = c[0].program();
      return apply(p.rows->shared_from_this(), c.tensors(1), p.params, c.ints(2), c.name());
    };
  });
  const AppliedProgram applied{.rows = program.get(), .params = params};
  return call_all(records->find(name), {Arg(applied), Arg(inputs), Arg(dims)});
}

}  // namespace

Results apply_rows(const RowProgramPtr& program, std::span<const Tensor> inputs,
                   std::span<const Scalar> params, IntList dims, const char* name) {
  const Literals literals =
      program_arguments(program->inputs(), program->params(), inputs, params, name);
  return call_rows(program, inputs, {literals.data(), literals.size()}, dims, name);
}

Tensor apply_reduce(const expr::ProgramPtr& program, prim::Monoid monoid,
                    std::span<const Tensor> inputs, std::span<const Scalar> params, IntList dims,
                    bool keepdim, const char* name) {
  ARETE_CHECK(program->outputs().size() == 1, ValueError(name, "a reduction is of one value")
                                                  .expected("a program with one output")
                                                  .got(std::to_string(program->outputs().size())));
  using prim::Monoid;
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::pair<expr::ProgramPtr, Monoid>, RowProgramPtr>;
  RowProgramPtr rows;
  {
    const std::lock_guard lock(*mutex);
    if (known->size() > 512) known->clear();
    RowProgramPtr& found = (*known)[{program, monoid}];
    if (!found) {
      const DType value = program->outputs()[0].dtype;
      const bool is_logic = monoid == Monoid::all || monoid == Monoid::any;
      const bool adds = monoid == Monoid::sum || monoid == Monoid::prod;
      const DType result = is_logic ? kBool : adds && is_integral_or_bool(value) ? kInt64 : value;
      found = RowProgram::trace(
          [&](Rows& r, std::span<const Value> v) {
            std::vector<Value> params(v.begin() + int(program->inputs().size()), v.end());
            // Rounded once, when it is reduced.
            const Value x =
                v[0].builder()->inline_code(*program, v.first(program->inputs().size()),
                                            params)[size_t(program->outputs()[0].value)];
            return std::vector{r.reduce(monoid, x)};
          },
          program->inputs(), program->params(), {result});
    }
    rows = found;
  }
  const Tensor kept = apply_rows(rows, inputs, params, dims, name)[0];
  if (keepdim) return kept;
  const Shape along = normalize_dims(dims, int(kept.dim()), name, true);
  Shape sizes;
  for (int64_t d = 0; d < kept.dim(); ++d)
    if (std::ranges::find(along, d) == along.end()) sizes.push_back(kept.size(d));
  return kept.view(sizes);
}

}  // namespace arete::ops
