// What the sources of the optimizer's base share.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "arete/expr/program.h"
#include "arete/optim/optimizer.h"
#include "arete/prim/view.h"

namespace arete::optim {

/// Programs already traced, by what they depend on.
struct Optimizer::Programs {
  std::map<std::vector<uint32_t>, expr::ProgramPtr> traced;
  expr::ProgramPtr& find(std::span<const uint32_t> key);
};

/// The settings of a group where steps on a device read them (Note [Steps inside graphs]).
struct Optimizer::Page {
  Page(size_t n, Device device);
  /// Of one setting.
  prim::View at(size_t k) const;
  /// One launch, unless these are the values there.
  void write(const std::vector<double>& values, Programs& programs);
  Tensor memory;
  std::vector<double> written;
};

/// A count or number that is on the host.
double read_number(const Tensor& t);
void write_number(const Tensor& t, double value);
/// The dtype of new ones: float32, or float64 where that is the default.
DType number_dtype_of_state();

}  // namespace arete::optim
