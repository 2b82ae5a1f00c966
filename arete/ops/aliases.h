// PyTorch's second names for operators, in one table: they are found by name like records
// (find_record) and are functions of C++, but have no record of their own.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "arete/ops/activation.h"
#include "arete/ops/complex.h"
#include "arete/ops/index.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/softmax.h"
#include "arete/ops/special.h"

// clang-format off
#define ARETE_ALIASES(X)                                                                           \
  X(absolute, abs) X(negative, neg) X(fix, trunc)                                                  \
  X(arccos, acos) X(arcsin, asin) X(arctan, atan) X(arctan2, atan2)                                \
  X(arccosh, acosh) X(arcsinh, asinh) X(arctanh, atanh)                                            \
  X(subtract, sub) X(multiply, mul) X(divide, div) X(true_divide, div)                             \
  X(greater, gt) X(greater_equal, ge) X(less, lt) X(less_equal, le) X(not_equal, ne)               \
  X(clip, clamp) X(argwhere, nonzero) X(trapz, trapezoid)                                          \
  X(resolve_neg, resolve_conj)                                                                     \
  X(special_digamma, digamma) X(special_psi, digamma) X(special_gammaln, lgamma)                   \
  X(special_polygamma, polygamma) X(special_multigammaln, mvlgamma)                                \
  X(special_gammainc, igamma) X(special_gammaincc, igammac)                                        \
  X(special_erf, erf) X(special_erfc, erfc) X(special_erfinv, erfinv)                              \
  X(special_exp2, exp2) X(special_expm1, expm1) X(special_log1p, log1p)                            \
  X(special_expit, sigmoid) X(special_logit, logit) X(special_sinc, sinc)                          \
  X(special_round, round) X(special_xlogy, xlogy)                                                  \
  X(special_i0, i0) X(special_modified_bessel_i0, i0)                                              \
  X(special_modified_bessel_i1, special_i1)                                                        \
  X(special_softmax, softmax) X(special_log_softmax, log_softmax)                                  \
  X(special_logsumexp, logsumexp)
// Of functions that take lists in braces, which no template forwards.
#define ARETE_LIST_ALIASES(X)                                                                      \
  X(moveaxis, movedim) X(swapaxes, transpose) X(swapdims, transpose)                               \
  X(concat, cat) X(concatenate, cat) X(row_stack, vstack) X(broadcast_to, expand)
// clang-format on

namespace arete {

#define ARETE_FORWARD(alias, function)                                       \
  template <class... A>                                                      \
  auto alias(A&&... a)->decltype(::arete::function(std::forward<A>(a)...)) { \
    return ::arete::function(std::forward<A>(a)...);                         \
  }
ARETE_ALIASES(ARETE_FORWARD)
#undef ARETE_FORWARD

namespace ops {
/// A second name and the name of its record.
struct Alias {
  std::string_view name, record;
};
/// In order of names.
std::span<const Alias> all_aliases();
}  // namespace ops

}  // namespace arete
