// Programs that are traced once for each set of dtypes.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "arete/base/keyed_cache.h"
#include "arete/expr/value.h"

namespace arete::expr {

static_assert(kNumDTypes < 32, "a dtype has five bits in the keys of caches");

/// The type in which reductions over `t` run, and its own storage type.
inline Type work_type(DType t) { return t == kFloat64 ? Type::f64 : Type::f32; }
inline DType work_dtype(DType t) { return t == kFloat64 ? kFloat64 : kFloat32; }

/// A list that is borrowed, also from braces.
template <class T>
struct BorrowedList : std::span<const T> {
  BorrowedList(std::initializer_list<T> l) : std::span<const T>(l.begin(), l.size()) {}
  BorrowedList(const std::vector<T>& v) : std::span<const T>(v) {}
};

/// May be used by several threads. As a static that is used until exit: made by new.
class ProgramCache {
 public:
  /// The program with this key (pack_key), which must say all that the others depend on.
  template <class Body>
  const Program& get(uint64_t key, BorrowedList<DType> inputs, BorrowedList<Type> params,
                     BorrowedList<DType> outputs, const Body& body, uint32_t tables = 0) {
    return *cache_.get(key, [&] {
      return std::make_unique<ProgramPtr>(trace([&](std::span<const Value> v) { return body(v); },
                                                inputs, params, outputs, tables));
    });
  }

 private:
  KeyedCache<ProgramPtr> cache_;
};

}  // namespace arete::expr
