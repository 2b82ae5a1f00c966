// Small tools for the plain-loop references of operator records, out of line and in no hurry.
#pragma once

#include <functional>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/ops/samples.h"

namespace arete::ops {

/// Calls f(index) for every index of `sizes` in row-major order; once for 0-d.
void for_each_index(IntList sizes, const std::function<void(const Shape&)>& f);

/// Row-major position of `index` in `sizes`; dimensions of size 1 ignore their index and missing
/// leading dimensions of `sizes` are skipped (broadcasting).
int64_t flat_position(IntList sizes, IntList index);

/// Element `index` (broadcast as in flat_position) of a contiguous f64, i64 or bool CPU tensor.
double at(const Tensor& t, IntList index);

/// All elements of a contiguous f64, i64 or bool CPU tensor.
std::vector<double> values_of(const Tensor& t);

/// A contiguous CPU tensor with the given values.
Tensor from_values(const std::vector<double>& values, IntList sizes, DType dtype = kFloat64);

/// A contiguous CPU tensor with element f(index).
Tensor build_tensor(IntList sizes, const std::function<double(const Shape&)>& f,
                    DType dtype = kFloat64);

/// The sizes of the first result, as the record says.
Shape result_sizes(const Call& c);

/// Why factories that only give memory, and operators of random numbers, have no reference.
inline constexpr const char* kUnset = "the values are not set";
inline constexpr const char* kRandomReference =
    "its values are random; the tests of random numbers check them";

}  // namespace arete::ops
