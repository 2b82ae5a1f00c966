// Loops over the elements of a space.
#pragma once

#include "arete/core/layout.h"

namespace arete::test {

/// Row-major indices of a space, one after another: for (IndexWalk w(sizes); w; ++w) use(*w).
class IndexWalk {
 public:
  explicit IndexWalk(IntList sizes)
      : sizes_(sizes), index_(sizes.size(), 0), left_(numel_of(sizes)) {}
  explicit operator bool() const { return left_ > 0; }
  const Shape& operator*() const { return index_; }
  IndexWalk& operator++() {
    --left_;
    for (int d = int(sizes_.size()) - 1; d >= 0 && ++index_[d] == sizes_[d]; --d) index_[d] = 0;
    return *this;
  }

 private:
  Shape sizes_, index_;
  int64_t left_;
};

}  // namespace arete::test
