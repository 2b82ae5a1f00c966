// What calls are told besides operands, programs and lists.
//
// Note [Calls that compare themselves]
// Two calls of one primitive are the same kernel if their operands lie alike, their programs and
// lists are the same and plain_fields() are equal; number_fields(), and the parameters of programs,
// may differ between them. All fields of a struct are in one of these or in describe(): who adds a
// field puts it in its place, of which the number of fields reminds him.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "arete/prim/args.h"
#include "arete/prim/effect.h"

namespace arete::prim {
namespace detail {

struct AnyField {
  template <class T>
  operator T() const;
};
template <class Args, size_t... I>
constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { Args{(void(I), AnyField())...}; };
}
/// How many members an aggregate without base classes has.
template <class Args, size_t N = 40>
constexpr size_t count_fields() {
  if constexpr (takes_fields<Args>(std::make_index_sequence<N>()))
    return N;
  else
    return count_fields<Args, N - 1>();
}

}  // namespace detail

#define ARETE_FIELDS(Args, count)                              \
  static_assert(detail::count_fields<Args>() == size_t(count), \
                "a field was added: it belongs to describe(), plain_fields() or number_fields()")

/// Calls f(field) for what has to be equal: numbers of any type, choices, switches, names of
/// operators. The context is everybody's, and not among them.
template <class Args, class F>
void plain_fields(const Args& a, F&& f) {
  if constexpr (std::is_same_v<Args, FillArgs>) {
    ARETE_FIELDS(Args, 5);
    f(a.value_is_integer);
  } else if constexpr (std::is_same_v<Args, CopyArgs>) {
    ARETE_FIELDS(Args, 3);
  } else if constexpr (std::is_same_v<Args, IotaArgs>) {
    ARETE_FIELDS(Args, 6);
  } else if constexpr (std::is_same_v<Args, PointwiseArgs>) {
    ARETE_FIELDS(Args, 6);
  } else if constexpr (std::is_same_v<Args, MultiPointwiseArgs>) {
    ARETE_FIELDS(Args, 7);
    f(a.n_tensors);
  } else if constexpr (std::is_same_v<Args, MultiReduceArgs>) {
    ARETE_FIELDS(Args, 7);
    f(a.monoid);
  } else if constexpr (std::is_same_v<Args, ReduceArgs>) {
    ARETE_FIELDS(Args, 12);
    f(a.monoid);
    f(a.reduced);
  } else if constexpr (std::is_same_v<Args, RecurrenceArgs>) {
    ARETE_FIELDS(Args, 12);
    f(a.steps);
    f(a.rows);
    f(a.states);
    f(a.reverse);
  } else if constexpr (std::is_same_v<Args, ArgReduceArgs>) {
    ARETE_FIELDS(Args, 6);
    f(a.dim);
    f(a.largest);
  } else if constexpr (std::is_same_v<Args, ScanArgs>) {
    ARETE_FIELDS(Args, 9);
    f(a.monoid);
    f(a.dim);
    f(a.reverse);
    f(a.logarithmic);
  } else if constexpr (std::is_same_v<Args, SortArgs>) {
    ARETE_FIELDS(Args, 6);
    f(a.dim);
    f(a.descending);
  } else if constexpr (std::is_same_v<Args, TopkArgs>) {
    ARETE_FIELDS(Args, 6);
    f(a.dim);
    f(a.largest);
  } else if constexpr (std::is_same_v<Args, SelectArgs>) {
    ARETE_FIELDS(Args, 9);
    f(a.dim);
    f(a.place);
    f(a.rank);
    f(a.op);
  } else if constexpr (std::is_same_v<Args, GatherArgs>) {
    ARETE_FIELDS(Args, 8);
    f(a.dim);
    f(a.op);
    f(a.leaves_out);
    f(a.left_out);
  } else if constexpr (std::is_same_v<Args, ScatterArgs>) {
    ARETE_FIELDS(Args, 12);
    f(a.dim);
    f(a.mode);
    f(a.op);
  } else if constexpr (std::is_same_v<Args, TakeRowsArgs>) {
    ARETE_FIELDS(Args, 5);
    f(a.op);
  } else if constexpr (std::is_same_v<Args, AddRowsArgs>) {
    ARETE_FIELDS(Args, 13);
    f(a.op);
    f(a.left_out);
    f(a.sorted);
    f(a.run);
    f(a.what);
  } else if constexpr (std::is_same_v<Args, CompactArgs>) {
    ARETE_FIELDS(Args, 3);
  } else if constexpr (std::is_same_v<Args, RandomArgs>) {
    ARETE_FIELDS(Args, 14);
    f(a.distribution);
  } else if constexpr (std::is_same_v<Args, DropoutArgs>) {
    ARETE_FIELDS(Args, 8);
  } else if constexpr (std::is_same_v<Args, GemmArgs>) {
    ARETE_FIELDS(Args, 16);
    f(a.alpha);
    f(a.beta);
    f(a.activation);
    f(a.differentiate);
  } else if constexpr (std::is_same_v<Args, ConvArgs>) {
    ARETE_FIELDS(Args, 8);
    f(a.pass);
    f(a.window);
    f(a.groups);
  } else if constexpr (std::is_same_v<Args, AttentionArgs>) {
    ARETE_FIELDS(Args, 20);
    f(a.backward);
    f(a.scale);
    f(a.causal);
    f(a.dropout);
    f(a.band);
  } else if constexpr (std::is_same_v<Args, PoolArgs>) {
    ARETE_FIELDS(Args, 11);
    f(a.kind);
    f(a.backward);
    f(a.window);
    f(a.placement);
    f(a.count_include_pad);
    f(a.divisor);
  } else if constexpr (std::is_same_v<Args, FftArgs>) {
    ARETE_FIELDS(Args, 11);
    f(a.kind);
    f(a.forward);
    f(a.scale);
    f(a.weighted);
    f(a.window_after);
  } else if constexpr (std::is_same_v<Args, FusedArgs>) {
    ARETE_FIELDS(Args, 8);
    f(a.outer_rank);
  } else if constexpr (std::is_same_v<Args, EffectArgs>) {
    ARETE_FIELDS(Args, 6);
    f(a.effect);
    f(a.updates);
  } else {
    static_assert(std::is_same_v<Args, LinalgArgs>);
    ARETE_FIELDS(Args, 14);
    f(a.op);
    f(a.upper);
    f(a.left);
    f(a.unit);
    f(a.transposed);
    f(a.vectors);
    f(a.driver);
    f(a.rcond);
  }
}

/// Calls f(field), of 64 bits, for the numbers that may differ.
template <class Args, class F>
void number_fields(Args& a, F&& f) {
  using Its = std::remove_const_t<Args>;
  if constexpr (std::is_same_v<Its, FillArgs>) {
    f(a.value);
    f(a.imag);
  } else if constexpr (std::is_same_v<Its, IotaArgs>) {
    f(a.start);
    f(a.step);
    f(a.istart);
    f(a.istep);
  } else if constexpr (std::is_same_v<Its, RandomArgs>) {
    f(a.seed);
    f(a.offset);
    f(a.a);
    f(a.b);
    f(a.ia);
    f(a.ib);
  } else if constexpr (std::is_same_v<Its, AttentionArgs>) {
    f(a.seed);
    f(a.offset);
  } else if constexpr (std::is_same_v<Its, DropoutArgs>) {
    f(a.seed);
    f(a.offset);
    f(a.keep);
    f(a.scale);
  } else if constexpr (std::is_same_v<Its, EffectArgs>) {
    f(a.factor);
  }
}

#undef ARETE_FIELDS

}  // namespace arete::prim
