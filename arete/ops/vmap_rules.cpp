#include "arete/ops/vmap_rules_internal.h"

#include <algorithm>

#include "arete/core/generator.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete::ops::vmaps {

Shape with_front(int64_t front, IntList sizes) {
  Shape all{front};
  for (int64_t s : sizes) all.push_back(s);
  return all;
}

Changed::Changed(const Rewriting& r)
    : op_(r.call.op), args_(r.call.args().begin(), r.call.args().end()) {
  tensors_.resize(args_.size());
  lists_.resize(args_.size());
  ints_.resize(args_.size());
  for (size_t i = 0; i < args_.size(); ++i)
    if (args_[i].kind() == Arg::Kind::tensor) set(i, r.at(i).physical);
}
void Changed::set(size_t i, Tensor t) {
  tensors_[i] = std::move(t);
  args_[i] = Arg(tensors_[i]);
}
void Changed::set(size_t i, std::vector<Tensor> t) {
  lists_[i] = std::move(t);
  args_[i] = Arg(lists_[i]);
}
void Changed::set(size_t i, Shape s) {
  ints_[i] = std::move(s);
  args_[i] = Arg(ints_[i]);
}

// ---- whatever has no rule

Results one_by_one(const Rewriting& r) {
  ARETE_CHECK(r.batch > 0 || !r.specs.empty(),
              ValueError(r.call.name(),
                         "it runs once for each element of a batch, so the sizes of what "
                         "it makes of a batch without elements are not known"));
  std::vector<std::vector<Tensor>> parts(r.specs.size());
  Generator* generator = &default_generator();
  for (const Arg& a : r.call.args())
    if (a.generator()) generator = a.generator();
  const Generator::State state = generator->state();
  for (int64_t b = 0; b < r.batch; ++b) {
    if (r.randomness == Randomness::same && b > 0 && !(generator->state() == state))
      generator->set_state(state);
    const auto one = [&](const Operand& o) {
      return o.is_mapped ? o.physical.select(0, b) : o.physical;
    };
    Changed call(r);
    for (size_t i = 0; i < r.tensors.size(); ++i) {
      if (is_tensor_at(r, i)) call.set(i, one(r.at(i)));
      if (is_list_at(r, i)) {
        std::vector<Tensor> list;
        for (const Operand& o : r.tensors[i]) list.push_back(one(o));
        call.set(i, std::move(list));
      }
    }
    const Results results = call.run();
    parts.resize(results.size());
    for (size_t k = 0; k < results.size(); ++k) parts[k].push_back(results[k]);
  }
  Results all;
  for (size_t k = 0; k < parts.size(); ++k)
    all.push_back(parts[k].empty() ? empty_tensor(with_front(0, r.specs[k].sizes), r.specs[k].dtype,
                                                  *r.specs[k].device)
                                   : stack(parts[k], 0));
  return all;
}

// ---- classes

Results elementwise(const Rewriting& r) {
  Changed call(r);
  int64_t rank = 0;
  for (size_t i = 0; i < r.tensors.size(); ++i)
    for (const Operand& o : r.tensors[i])
      if (o.physical.defined()) rank = std::max(rank, rank_of(o));
  const auto given = [&](const Operand& o) { return whole_of_rank(r, o, rank); };
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_tensor_at(r, i)) call.set(i, given(r.at(i)));
    if (is_list_at(r, i)) {
      std::vector<Tensor> list;
      for (const Operand& o : r.tensors[i]) list.push_back(given(o));
      call.set(i, std::move(list));
    }
  }
  return call.run();
}

bool is_elementwise(const Rewriting& r) {
  return r.call.op.batching.rule == elementwise ||
         (r.call.op.batching.rule == random_elementwise && r.randomness != Randomness::same);
}
void elementwise_in_place(const Rewriting& r) {
  Changed call(r);
  for (size_t i = 1; i < r.tensors.size(); ++i)  // broadcast to what is written
    if (is_tensor_at(r, i)) call.set(i, raised(r.at(i), rank_of(r.at(0))));
  call.run_in_place();
}

namespace {
bool names_dimensions(const SchemaArg& a) {
  return a.name.starts_with("dim") && a.type.starts_with("int");
}
}  // namespace
bool names_dimensions(const OpRecord& op) {
  return std::ranges::any_of(schema_of(op).args,
                             [](const SchemaArg& a) { return names_dimensions(a); });
}

Results by_dimensions(const Rewriting& r) {
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  Changed call(r);
  bool flat = false;  // all dimensions as one, where there is room for one number only
  for (size_t i = 0; i < schema.size() && i < r.call.size(); ++i)
    flat = flat || (names_dimensions(schema[i]) && schema[i].type == "int?" && r.call[i].is_none());
  const auto given = [&](const Operand& o) {
    const Tensor t = r.whole(o);
    if (!t.defined()) return t;
    if (flat) return t.reshape({r.batch, numel_of(IntList(t.sizes()).subspan(1))});
    return rank_of(o) == 0 ? t.unsqueeze(-1) : t;
  };
  int64_t rank = -1;
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_tensor_at(r, i)) {
      if (rank < 0) rank = rank_of(r.at(i));
      call.set(i, given(r.at(i)));
    }
    if (is_list_at(r, i)) {
      std::vector<Tensor> list;
      for (const Operand& o : r.tensors[i]) rank = std::max(rank, rank_of(o));
      for (const Operand& o : r.tensors[i]) {
        // Empty vectors are left out of cat(), whatever the rank of the others.
        if (rank == 1 || rank_of(o) != 1 || o.physical.size(-1) != 0) list.push_back(given(o));
      }
      call.set(i, std::move(list));
    }
  }
  rank = std::max<int64_t>(rank, 1);
  for (size_t i = 0; i < schema.size() && i < r.call.size(); ++i) {
    if (!names_dimensions(schema[i])) continue;
    const Arg& a = r.call[i];
    if (a.kind() == Arg::Kind::integer) {
      call.set(i, int64_t(normalize_dim(a.integer(), int(rank), r.call.name()) + 1));
    } else if (flat) {
      call.set(i, int64_t(1));
    } else {
      Shape dims;
      if (a.is_none() || (a.ints().empty() && schema[i].type == "int[]?"))
        for (int64_t d = 0; d < rank; ++d) dims.push_back(d + 1);
      else
        for (int64_t d : a.ints()) dims.push_back(normalize_dim(d, int(rank), r.call.name()) + 1);
      call.set(i, std::move(dims));
    }
  }
  return call.run();
}

namespace {
// `vectors`: the argument with a vector for each matrix; 0: there is none.
Results of_matrices(const Rewriting& r, size_t vectors) {
  Changed call(r);
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (is_list_at(r, i)) return one_by_one(r);
    if (!is_tensor_at(r, i)) continue;
    // A vector, with the batch in front, would be taken for a matrix.
    const bool is_row = vectors && i == vectors;
    if (!is_row && rank_of(r.at(i)) < 2) return one_by_one(r);
    if (rank_of(r.at(i)) != rank_of(r.at(0)) - is_row) return one_by_one(r);
    call.set(i, r.whole(i));
  }
  return call.run();
}
}  // namespace
Results leading(const Rewriting& r) { return of_matrices(r, 0); }
Results leading_with_vectors(const Rewriting& r) { return of_matrices(r, 1); }
Results leading_of_rows(const Rewriting& r) {
  Changed call(r);
  for (size_t i = 0; i < r.tensors.size(); ++i) {
    if (!is_tensor_at(r, i)) continue;
    if (rank_of(r.at(i)) < 1 || rank_of(r.at(i)) != rank_of(r.at(0))) return one_by_one(r);
    call.set(i, r.whole(i));
  }
  return call.run();
}

Tensor fold(const Tensor& t, int64_t d) {
  const Tensor moved = d == 0 ? t : t.movedim(0, d);
  Shape sizes(moved.sizes());
  sizes[size_t(d)] *= sizes[size_t(d) + 1];
  sizes.erase(sizes.begin() + d + 1);
  return moved.reshape(sizes);
}
Tensor unfold(const Tensor& t, int64_t batch, int64_t d) {
  Shape sizes(t.sizes());
  sizes[size_t(d)] = batch ? sizes[size_t(d)] / batch : 0;
  sizes.insert(sizes.begin() + d, batch);
  const Tensor made = t.reshape(sizes);
  return d == 0 ? made : made.movedim(d, 0);
}

Results folded_beside(const Rewriting& r, uint32_t beside) {
  Changed call(r);
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  if (r.batch == 0) return one_by_one(r);
  for (size_t i = 0; i < r.call.size(); ++i) {
    if (is_list_at(r, i)) return one_by_one(r);
    if (is_tensor_at(r, i)) {
      if (beside >> i & 1) {
        if (r.is_mapped(i)) return one_by_one(r);
        continue;
      }
      if (rank_of(r.at(i)) < 1) return one_by_one(r);
      call.set(i, fold(r.whole(i)));
    } else if (schema[i].name == "input_size") {
      Shape sizes(r.call.ints(i));
      sizes[0] *= r.batch;
      call.set(i, std::move(sizes));
    }
  }
  Results results = call.run();
  for (Tensor& t : results) t = unfold(t, r.batch);
  return results;
}
Results folded(const Rewriting& r) { return folded_beside(r, 0); }

// ---- random numbers

Results random_of_size(const Rewriting& r) {
  Changed call(r);
  const std::vector<SchemaArg>& schema = schema_of(r.call.op).args;
  for (size_t i = 0; i < schema.size(); ++i)
    if (schema[i].name == "size") call.set(i, with_front(r.batch, r.call.ints(i)));
  return call.run();
}
Results random_elementwise(const Rewriting& r) {
  return r.randomness == Randomness::same ? one_by_one(r) : elementwise(r);
}

Tensor scaled(const Tensor& t, const Scalar& factor) {
  return factor == Scalar(1) ? t : mul(t, factor);
}
Tensor raised(const Operand& o, int64_t rank) {
  const Tensor& t = o.physical;
  return o.is_mapped && rank_of(o) < rank ? t.reshape(with_ones(t.sizes(), rank - rank_of(o))) : t;
}
Tensor whole_of_rank(const Rewriting& r, const Operand& o, int64_t rank) {
  const Tensor t = r.whole(o);
  return t.defined() && rank_of(o) < rank ? t.reshape(with_ones(t.sizes(), rank - rank_of(o))) : t;
}

// ---- look-ups by index

Tensor spread_index(const Tensor& index, IntList like, int64_t d) {
  Shape sizes(like.size(), 1), whole(like);
  sizes[0] = index.sizes()[0], sizes[size_t(d)] = index.sizes()[1];
  whole[size_t(d)] = index.sizes()[1];
  return index.reshape(sizes).expand(whole);
}

// ---- which rule

Results rewritten(const Rewriting& r) {
  const OpRecord& op = r.call.op;
  if (op.batching.rule) return op.batching.rule(r);
  return !op.batching.one_by_one && names_dimensions(op) ? by_dimensions(r) : one_by_one(r);
}

}  // namespace arete::ops::vmaps
