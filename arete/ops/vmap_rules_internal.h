// Rules by which calls of views and of records with infer and lower run for a whole batch, and what
// rules are made of. A rule that one operator has stands beside its record.
#pragma once

#include <vector>

#include "arete/ops/call.h"
#include "arete/ops/vmap_internal.h"

namespace arete::ops::vmaps {

// Note [Batching rules]
// Most follow from the schema: an operator that names dimensions works on those and leaves others
// alone, so the batch stands in front and the numbers of dimensions grow by one. The others say in
// their records (OpRecord::batching) what they take as a batch of their own:
//   elementwise      any dimensions: the batch is one more
//   leading          any number of dimensions before the last two: the batch is one more of them
//   leading_of_rows  the same before the last one
//   folded           the first dimension: the batch is folded into it
// Contractions, norms, look-ups by index and losses have rules of their own. A record may say in
// place of a rule why there is none: it is called once for each element, right, but no faster than
// a loop. So is a composition that looks at values, which a batch has many of: it sees those of one
// element at a time.

// ---- rules

/// A call for each element.
Results one_by_one(const Rewriting& r);
/// The batch in front of all tensors, and ranks made equal behind it.
Results elementwise(const Rewriting& r);
/// Whether an in-place call runs on the batch as it does on one element, and that call.
bool is_elementwise(const Rewriting& r);
void elementwise_in_place(const Rewriting& r);
/// Operators that name the dimensions they work on.
Results by_dimensions(const Rewriting& r);
/// Operators on matrices, with any dimensions before.
Results leading(const Rewriting& r);
/// The same, where argument 1 has a vector for each matrix.
Results leading_with_vectors(const Rewriting& r);
/// Operators on the last dimension, with any dimensions before.
Results leading_of_rows(const Rewriting& r);
/// Operators that work on each element of the first dimension of their tensors; where there is an
/// argument named input_size, it begins with the size of that.
Results folded(const Rewriting& r);
/// The same, but for the arguments in `beside` (bit i: argument i), which the batch must share.
Results folded_beside(const Rewriting& r, uint32_t beside);
/// Records that make a tensor of random numbers of a size.
Results random_of_size(const Rewriting& r);
/// Records that draw a random number for each element of a tensor.
Results random_elementwise(const Rewriting& r);

/// Whether the schema names dimensions: by_dimensions() is the rule of a record that has no other.
bool names_dimensions(const OpRecord& op);

// ---- what rules are made of

/// A call with other arguments, which it keeps.
class Changed {
 public:
  explicit Changed(const Rewriting& r);
  void set(size_t i, Tensor t);
  void set(size_t i, std::vector<Tensor> t);
  void set(size_t i, Shape s);
  void set(size_t i, int64_t v) { args_[i] = Arg(v); }
  void set(size_t i, bool v) { args_[i] = Arg(v); }
  void clear(size_t i) { args_[i] = Arg(); }
  Results run() const { return call_all(op_, args_); }
  /// Into argument 0.
  void run_in_place() { call_in_place(tensors_[0], op_, args_); }

 private:
  const OpRecord& op_;
  std::vector<Arg> args_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<Tensor>> lists_;
  std::vector<Shape> ints_;
};

Shape with_front(int64_t front, IntList sizes);
/// Dimensions of one element.
inline int64_t rank_of(const Operand& o) { return o.physical.dim() - o.is_mapped; }
inline bool is_tensor_at(const Rewriting& r, size_t i) {
  return r.call[i].kind() == Arg::Kind::tensor;
}
inline bool is_list_at(const Rewriting& r, size_t i) {
  return r.call[i].kind() == Arg::Kind::tensors;
}
/// Dimension d of each element is made longer by the batch, which is dimension 0.
Tensor fold(const Tensor& t, int64_t d = 0);
Tensor unfold(const Tensor& t, int64_t batch, int64_t d = 0);
/// A tensor of so many dimensions, those that are missing of size 1, behind the batch. raised():
/// what all share stays as it is, to broadcast; whole_of_rank(): it is expanded.
Tensor raised(const Operand& o, int64_t rank);
Tensor whole_of_rank(const Rewriting& r, const Operand& o, int64_t rank);
Tensor scaled(const Tensor& t, const Scalar& factor);
/// index (B, K) for dimension d of tensors of that rank whose other sizes are those of `like`: what
/// gather and scatter take.
Tensor spread_index(const Tensor& index, IntList like, int64_t d);

}  // namespace arete::ops::vmaps
