// Rows of a few elements, one by one: Note [Stages of a group].
#include "arete/compile/fuse_internal.h"
#include "arete/expr/value.h"

namespace arete::compile {
namespace {

using expr::Builder;
using expr::Value;
using prim::Monoid;
using Kind = Stage::Kind;

/// The elements at `position` of a dimension, which is gone then.
Place slice_of(const Place& p, int dim, int64_t position) {
  if (p.is_table) return p;
  Place slice = p;
  Shape &sizes = slice.layout.sizes, &strides = slice.layout.strides;
  slice.data += position * strides[size_t(dim)] * int64_t(size_of(p.dtype));
  sizes.erase(sizes.begin() + dim);
  strides.erase(strides.begin() + dim);
  return slice;
}

uint32_t without(uint32_t dims, int dim) {
  const uint32_t below = (1u << dim) - 1;
  return (dims & below) | (dims >> 1 & ~below);
}

Value combined(Monoid monoid, Value a, Value b) {
  switch (monoid) {
    case Monoid::sum:
      return a + b;
    case Monoid::prod:
      return a * b;
    case Monoid::min:
      return min(a, b);
    case Monoid::max:
      return max(a, b);
    case Monoid::all:
      return a & b;
    case Monoid::any:
      return a | b;
  }
  return a;
}

/// A reduction of a few elements as a program of all of them.
Stage combination_of(const Stage& reduction, int dim, int64_t few) {
  Stage all{.kind = Kind::elements, .params = reduction.params, .slots = reduction.slots};
  const expr::Program& program = *reduction.program;
  Builder b;
  const std::vector<Value> params = b.params_of(program);
  std::vector<Value> totals;
  for (int64_t k = 0; k < few; ++k) {
    std::vector<Value> inputs;
    for (size_t i = 0; i < reduction.inputs.size(); ++i) {
      const Place p = slice_of(reduction.inputs[i], dim, k);
      inputs.push_back(p.is_table ? b.table(program.inputs()[i]) : b.input(program.inputs()[i]));
      all.inputs.push_back(p);
    }
    const std::vector<Value> code = b.inline_code(program, inputs, params);
    for (size_t o = 0; o < reduction.outputs.size(); ++o) {
      const Value v = b.cast(code[size_t(program.outputs()[o].value)],
                             expr::compute_type(reduction.outputs[o].dtype));
      if (k == 0)
        totals.push_back(v);
      else
        totals[o] = combined(reduction.monoid, totals[o], v);
    }
  }
  std::vector<DType> dtypes;
  for (const Place& p : reduction.outputs) {
    dtypes.push_back(p.dtype);
    all.outputs.push_back(slice_of(p, dim, 0));
  }
  all.program = b.build(totals, dtypes);
  return all;
}

}  // namespace

std::optional<StagedCall> one_by_one(const StagedCall& of, int dim) {
  const int64_t few = of.space[size_t(dim)];
  const bool are_rows = of.reduced >> dim & 1;
  if (are_rows && of.reduced != 1u << dim) return std::nullopt;
  StagedCall apart{.context = of.context, .numbers = of.numbers};
  apart.space = of.space;
  apart.space.erase(apart.space.begin() + dim);
  apart.reduced = without(of.reduced & ~(1u << dim), dim);
  for (const Stage& s : of.stages) {
    if (s.kind == Kind::columns) return std::nullopt;
    if (are_rows && s.kind == Kind::reduce) {
      apart.stages.push_back(combination_of(s, dim, few));
      continue;
    }
    const bool once = are_rows && s.kind == Kind::rows;
    for (int64_t k = 0; k < (once ? 1 : few); ++k) {
      Stage& copy = apart.stages.emplace_back(s);
      if (once) copy.kind = Kind::elements;
      for (std::vector<Place>* places : {&copy.inputs, &copy.outputs})
        for (Place& p : *places) p = slice_of(p, dim, k);
    }
  }
  return apart;
}

}  // namespace arete::compile
