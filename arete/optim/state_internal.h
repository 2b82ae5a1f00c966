// What the sources of the optimizer's base share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
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

/// What one call of step() knows, of the group at hand and of all.
struct Optimizer::Step {
  Tensor found_inf, inverse_scale;
  std::optional<double> found_on_host = {};
  std::vector<std::pair<Device, bool>> recorded = {};
  std::vector<std::pair<const Tensor*, Slot*>> mastered = {};
  // Of the group.
  bool capturable = false, resident = false, history = false;
  uint32_t keys = 0;
  std::vector<Device> settings = {};  // where those are that are tensors

  /// Of a scaler, for updates with counts on the host.
  bool is_left_out();
  /// Whether what a GPU does becomes part of a graph.
  bool is_recorded(Device device);
};

/// Something that must be the same when a recorded step is replayed.
struct Optimizer::Part {
  enum What : uint8_t { setting, state, memory } what;
  uint64_t number;
  Tensor tensor;
  StoragePtr storage;
};

/// A count or number that is on the host.
double read_number(const Tensor& t);
void write_number(const Tensor& t, double value);
/// The dtype of new ones: float32, or float64 where that is the default.
DType number_dtype_of_state();

}  // namespace arete::optim
