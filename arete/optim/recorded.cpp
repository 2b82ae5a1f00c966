// Steps that become part of CUDA graphs.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <string_view>

#include "arete/device/cuda.h"
#include "arete/optim/state_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

// Note [Steps inside graphs]
// A CUDA graph replays what the device was given, and nothing that the host did. So a step that is
// recorded has its counts and numbers on the device (Note [Steps on the device]), and reads the
// settings of its group from a page in device memory. The graph runs a function before each replay
// that writes the page if settings have changed since, with one launch. Several graphs, and steps
// outside, share the page of a group. What a replay could not follow is an error before it runs: a
// flag that has changed, or another tensor in the place of one that the graph writes or reads.

namespace {

// The page's values: settings that are numbers, or tensors elsewhere.
std::vector<double> page_values(const ParamGroup& group, Device device) {
  std::vector<double> values;
  for (const auto& [name, setting] : group.options()) {
    if (setting.is_fixed()) continue;
    const Tensor& t = setting.tensor();
    values.push_back(t.defined() && t.device() == device ? 0 : setting.value());
  }
  return values;
}

}  // namespace

// Calls f(what, name, number, tensor, storage) for what a recorded step depends on besides the
// values of settings: flags, tensors and memory.
template <class F>
void Optimizer::visit_parts(size_t gi, const std::vector<size_t>& params, Device device,
                            F&& f) const {
  static const Tensor none;
  static const StoragePtr no_memory;
  const ParamGroup& group = groups_[gi];
  for (const auto& [name, setting] : group.options()) {
    const Tensor& t = setting.tensor();
    if (t.defined() && t.device() == device)
      f(Part::setting, name, 0, t, no_memory);
    else if (setting.is_fixed())
      f(Part::setting, name, std::bit_cast<uint64_t>(setting.value()), none, no_memory);
  }
  const uint32_t of_group = keys_in_use(group);
  for (size_t pi : params) {
    const Tensor& param = group.params[pi];
    f(Part::memory, "", uint64_t(param.layout().offset), none, param.storage());
    const uint32_t keys = keys_in_use(of_group, param);
    for (size_t key = 0; key < keys_.size(); ++key)
      if (keys >> key & 1) f(Part::state, keys_[key].name, 0, slots_[gi][pi].state[key], no_memory);
  }
}

// The first that is not as it was recorded; "" if all are.
std::string Optimizer::changed_part(size_t gi, const std::vector<size_t>& params, Device device,
                                    const std::vector<Part>& recorded) const {
  if (gi >= groups_.size() || groups_[gi].params.size() <= params.back()) return "the parameters";
  size_t i = 0;
  std::string changed;
  visit_parts(gi, params, device,
              [&](Part::What what, std::string_view name, uint64_t number, const Tensor& tensor,
                  const StoragePtr& storage) {
                const bool same = i < recorded.size() && recorded[i].what == what &&
                                  recorded[i].number == number &&
                                  recorded[i].tensor.impl() == tensor.impl() &&
                                  recorded[i].storage == storage;
                ++i;
                if (same || !changed.empty()) return;
                const std::string quoted = "'" + std::string(name) + "'";
                changed = what == Part::setting ? "the setting " + quoted
                          : what == Part::state ? "the state " + quoted + " of a parameter"
                                                : "the memory of a parameter";
              });
  return changed.empty() && i != recorded.size() ? "the parameters" : changed;
}

void Optimizer::prepare_page(size_t gi, Batch& batch, Step& step) {
  const Device device = batch.kind_.device;
  const auto same = [&](const PageOfGroup& p) { return p.group == gi && p.device == device; };
  auto page = std::ranges::find_if(pages_, same);
  const std::vector<double> values = page_values(groups_[gi], device);
  if (page == pages_.end()) {
    // It is written before replays: in the memory of a graph that is being captured it would lie on
    // results that the graph needs no more, and has others write there.
    std::optional<cuda::StreamGuard> outside;
    if (step.is_recorded(device)) outside.emplace(cuda::default_stream(device.index));
    page = pages_.insert(pages_.end(), {gi, device, std::make_shared<Page>(values.size(), device)});
  }
  batch.page_ = page->page.get();
  if (!step.is_recorded(device)) return page->page->write(values, *programs_);

  cuda::GraphCapture* const capture = cuda::GraphCapture::current(device.index);
  ARETE_CHECK(capture, DeviceError(name_,
                                   "step() can be recorded into a cuda::Graph only: others "
                                   "do not hand over its settings before they replay it"));
  std::vector<size_t> params;
  for (const Batch::Item& item : batch.items_) params.push_back(item.number);
  std::vector<Part> parts;  // they are kept as long as the graph
  visit_parts(gi, params, device,
              [&](Part::What what, std::string_view, uint64_t number, const Tensor& tensor,
                  const StoragePtr& storage) {
                parts.push_back({what, number, tensor, storage});
              });
  if (on_record) on_record(*capture);
  capture->before_replay([self = std::weak_ptr(self_), name = std::string(name_), gi, device,
                          page = page->page, parts = std::move(parts), params = std::move(params)] {
    const std::shared_ptr<Optimizer*> alive = self.lock();
    ARETE_CHECK(alive, DeviceError("replay", "the optimizer " + name +
                                                 " whose step() the graph replays is no more")
                           .hint("keep it as long as the graph"));
    Optimizer& o = **alive;
    const std::string changed = o.changed_part(gi, params, device, parts);
    ARETE_CHECK(changed.empty(),
                DeviceError("replay", changed + " of the optimizer " + name +
                                          " changed since its step() was recorded")
                    .hint("write into tensors in place, or record the graph again"));
    page->write(page_values(o.groups_[gi], device), *o.programs_);
  });
}

}  // namespace arete::optim
