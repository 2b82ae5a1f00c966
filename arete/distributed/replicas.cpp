#include "arete/distributed/replicas.h"

#include <exception>
#include <optional>
#include <thread>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/ops/autocast.h"
#include "arete/ops/shape.h"

namespace arete::distributed::detail {

namespace {

// Gives a copy's tensors the original's values on a device; parameters get their history, too.
void follow(const nn::Module& original, const nn::Module& copy, Device device) {
  const auto place = [&](const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
    for (size_t i = 0; i < from.size(); ++i) {
      const Tensor value = from[i].to(device);
      Tensor t = to[i];
      t.impl()->storage = value.storage();
      t.impl()->layout = value.layout();
      t.impl()->autograd.reset();
      if (const Edge edge = value.requires_grad() ? gradient_edge(value) : Edge())
        set_history(t, edge.node, edge.slot);
    }
  };
  place(original.parameters(), copy.parameters());
  place(original.buffers(), copy.buffers());
}

// What calls on this thread do, for another one.
class CallersModes {
 public:
  explicit CallersModes(const std::vector<Device>& devices)
      : modes_(modes()), autocast_(ops::autocast_state()) {
    for (const Device& d : devices)
      streams_.push_back(d.is_cuda() ? std::optional(cuda::current_stream(d.index)) : std::nullopt);
  }
  // For the part of a device, on a thread that ends with it.
  void enter(size_t part) const {
    modes().grad_enabled = modes_.grad_enabled;
    modes().deterministic = modes_.deterministic;
    modes().word = modes_.word & (Modes::kAnomaly | Modes::kInference);
    ops::autocast_state() = autocast_;
    ops::apply_autocast_state();
    if (streams_[part]) {
      cuda::set_device(streams_[part]->device());
      cuda::set_stream(*streams_[part]);
    }
  }
  void leave() const { ops::clear_autocast_cache(); }

 private:
  const Modes modes_;
  const ops::AutocastState autocast_;
  std::vector<std::optional<cuda::Stream>> streams_;
};

}  // namespace

Tensor call_replicas(const nn::Module& network, const Tensor& input, std::vector<Device> devices,
                     int64_t dim, const std::function<std::shared_ptr<nn::Module>()>& clone) {
  if (devices.empty())
    for (int i = 0; i < cuda::device_count(); ++i) devices.emplace_back(DeviceType::cuda, i);
  if (devices.size() < 2) return network(input);
  for (Device& d : devices) d = d.resolved();
  std::vector<Tensor> state = network.parameters();
  for (const Tensor& b : network.buffers()) state.push_back(b);
  for (const Tensor& t : state)
    ARETE_CHECK(
        t.device() == devices[0],
        ValueError(
            "data_parallel",
            "module must have its parameters and buffers on device " + devices[0].to_string() +
                " (device_ids[0]) but found one of them on device: " + t.device().to_string()));
  const std::vector<Tensor> parts = chunk(input, int64_t(devices.size()), dim);
  devices.resize(parts.size());
  std::vector<std::shared_ptr<nn::Module>> replicas;
  std::vector<Tensor> inputs, outputs(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    replicas.push_back(clone());
    follow(network, *replicas.back(), devices[i]);
    inputs.push_back(parts[i].to(devices[i]));
  }
  const CallersModes callers(devices);
  std::vector<std::exception_ptr> errors(parts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < parts.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        callers.enter(i);
        outputs[i] = (*replicas[i])(inputs[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
      callers.leave();
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
  for (Tensor& t : outputs) t = (t.dim() == 0 ? t.reshape({1}) : t).to(devices[0]);
  return cat(outputs, dim);
}

}  // namespace arete::distributed::detail
