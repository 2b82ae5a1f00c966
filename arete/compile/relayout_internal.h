// Memory that is to lie otherwise than calls were recorded.
#pragma once

#include <optional>

#include "arete/prim/view.h"

namespace arete::compile {

/// Where elements of one view lie in another one of the same sizes.
class Relayout {
 public:
  Relayout(const prim::View& from, const prim::View& to);
  bool is_valid() const { return is_valid_; }
  /// The address and the strides of a view of some of the elements over there; none if it has no
  /// such form.
  std::optional<std::byte*> map(const prim::View& v, Shape& strides) const;

 private:
  struct Dim {
    int64_t size, stride, to;
  };
  std::byte *from_, *to_;
  int64_t size_;  // of an element
  SmallVector<Dim, 8> dims_;
  bool is_valid_ = true;
};

}  // namespace arete::compile
