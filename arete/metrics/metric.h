// What all metrics are: sums and lists that updates add to, on the device of what they are given,
// and that several processes put together.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::distributed {
class ProcessGroup;
}

namespace arete::metrics {

/// Base class. Updates read nothing on the host: values stay on the device until compute().
/// Metrics are kept without history. Not copyable; one thread at a time.
class Metric {
 public:
  Metric() = default;
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;
  virtual ~Metric() = default;

  /// Adds a batch. ValueError and TypeError for tensors that the metric is not made for.
  virtual void update(const Tensor& preds, const Tensor& target);
  /// The value over everything since the last reset(): float32 on the states' device.
  virtual Tensor compute() const = 0;
  /// Forgets everything.
  void reset();
  /// Moves the states; updates move them to the device of what they are given by themselves.
  void to(Device device);
  Device device() const { return device_; }

  /// Adds what another metric, made with the same arguments, has seen. ValueError for another kind
  /// of states.
  void merge(const Metric& other);
  /// compute() over what all processes of a group have seen, which call it together; the own
  /// states stay. States must be where the group can exchange them (to()).
  Tensor sync_and_compute(const std::shared_ptr<distributed::ProcessGroup>& group = nullptr);

  /// The states by name, as handles; lists as one tensor.
  std::vector<std::pair<std::string, Tensor>> state_dict() const;
  /// Puts copies of such states in the place of the own. ValueError for other names or sizes.
  void load_state_dict(const std::vector<std::pair<std::string, Tensor>>& state);

 protected:
  /// Registers a sum, which begins at 0, or a list of rows of these sizes. Gives its number.
  size_t add_sum(std::string name, IntList sizes, DType dtype);
  size_t add_list(std::string name, IntList row_sizes, DType dtype);
  /// A sum, or all rows of a list.
  Tensor state(size_t i) const;
  /// Adds to a sum, or rows to a list; without history.
  void add(size_t i, const Tensor& values);
  /// Has the states where t is.
  void follow(const Tensor& t) {
    if (t.device() != device_) to(t.device());
  }

 private:
  struct State {
    std::string name;
    Shape sizes;
    DType dtype;
    bool is_list;
    std::vector<Tensor> parts;  // of a sum: one
  };
  void check_same(size_t count, size_t i, const std::string& name, const Tensor& value) const;
  std::vector<State> states_;
  Device device_ = kCPU;
};

}  // namespace arete::metrics
