// Results in the memory of an operand that is needed no more.
#pragma once

#include "arete/ops/call.h"
#include "arete/ops/vmap.h"

namespace arete::ops {

/// op(used, rest...), all arguments given, for an op with an in-place form and a result of used's
/// dtype and sizes: in used's memory if nobody else holds it and no history is recorded. Formulas
/// that hand their temporaries on so hold one less at a time.
inline Tensor call_over(Tensor used, const OpRecord& op, std::initializer_list<Arg> rest = {}) {
  bool recorded = will_record(used);
  for (const Arg& a : rest) recorded |= a.kind() == Arg::Kind::tensor && will_record(a.tensor());
  const bool free = !recorded && used.impl()->use_count() == 1 &&
                    used.storage()->use_count() == 1 && used.layout().is_dense();
  std::vector<Arg> args{used};
  args.insert(args.end(), rest.begin(), rest.end());
  if (!free) return call(op, args);
  call_in_place(used, op, args);
  return used;
}
/// The same by name, for operators of other families.
inline Tensor call_over(Tensor used, const char* op, std::initializer_list<Arg> rest = {}) {
  return call_over(std::move(used), *find_record(op), rest);
}

}  // namespace arete::ops
