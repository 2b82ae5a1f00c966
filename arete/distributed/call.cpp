#include "arete/distributed/call_internal.h"

#include <algorithm>

#include "arete/base/error.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {
namespace {

// Waits for those who use the memory, but for the calls of a queue: they go before this one anyway.
void settle(const Tensor& t, const void* queue, bool writes) {
  t.storage()->wait_for_other_queues(queue, writes);
}

const std::byte* address(const Tensor& t) {
  return t.storage()->data() + size_t(t.storage_offset()) * t.element_size();
}

}  // namespace

MadeNow::MadeNow(const char* name, std::initializer_list<std::span<const Tensor>> tensors) {
  ARETE_CHECK(!(modes().word & Modes::kCapture),
              NotImplementedError(name, "what processes do together cannot be part of a program"));
  if (prim::Capture* const capture = prim::putting_off()) capture->make_calls_for(name);
  modes().current_op = name;
  for (const std::span<const Tensor> list : tensors)
    for (const Tensor& t : list)
      if (Promiser* const by = t.storage()->promiser()) by->settle(*t.storage());
  modes().word &= ~uint32_t(Modes::kPutOff);
}

bool may_be_put_off(Device home, std::initializer_list<std::span<const Tensor>> tensors) {
  bool any = false;
  for (const std::span<const Tensor> list : tensors)
    for (const Tensor& t : list) {
      any = true;
      // Of what is somewhere else the values are looked at; others see memory that was given out.
      if (t.device() != home || t.storage()->is_exported() || t.storage()->is_shared())
        return false;
    }
  return any && prim::putting_off() && !prim::backend_for(home).is_capturing();
}

void check_tensor(const char* op, const Tensor& t) {
  ARETE_CHECK(t.defined(), TypeError(op, "a tensor is undefined"));
}

void check_no_capture(prim::Backend& gpu) {
  ARETE_CHECK(!gpu.is_capturing(),
              DeviceError("", "the host cannot wait for a call while a graph is captured")
                  .hint("barrier() and wait(timeout) belong before or after the capture"));
}

// A tensor in order, in memory of `home`: itself, or a copy. Those on meta stay there.
Tensor Call::form(const Tensor& t, bool writes) const {
  if (t.is_meta()) return t;
  if (t.device() == home && t.is_contiguous()) {
    if (!is_put_off) settle(t, queue, writes);
    return t;
  }
  return (home.is_cpu() ? t.detach().cpu() : t.detach()).contiguous();
}

// A tensor over the same memory that waits for nobody there once those before it are done: who
// copies a result back is one whom others wait for, and would wait for itself, or those behind it.
Tensor Call::unwatched(const Tensor& t) const {
  if (t.is_meta() || !home.is_cpu() || is_put_off) return t.detach();
  settle(t, queue, true);
  if (!t.device().is_cpu()) {
    // Another thread copies, in a stream of its own.
    prim::Backend& device = prim::backend_for(t.device());
    device.synchronize_stream(device.current_stream());
  }
  const StoragePtr memory = t.storage();
  StoragePtr same = Storage::adopt(memory->device(), memory->data(), memory->bytes(), [memory] {});
  return Tensor{IntrusivePtr<TensorImpl>(new TensorImpl(std::move(same), t.layout(), t.dtype()))};
}

void Call::add_in(const Tensor& t) { in.push_back(form(t, false)); }

void Call::add_out(const Tensor& t) {
  out.push_back(form(t, true));
  if (!out.back().is_same(t)) copied_back.emplace_back(unwatched(t), out.back());
  t.bump_version();
}

bool Call::lies_apart(const std::vector<Tensor>& parts) const {
  const Tensor& first = parts[0];
  bool same_size = true, in_order = true;
  for (size_t r = 0; r < parts.size(); ++r) {
    same_size &= parts[r].numel() == first.numel();
    in_order &= parts[r].device() == home && parts[r].is_contiguous() &&
                address(parts[r]) == address(first) + r * first.nbytes();
  }
  return same_size && !in_order && !first.is_meta();
}

void Call::gather_into(const std::vector<Tensor>& outputs) {
  if (!lies_apart(outputs)) {
    for (const Tensor& t : outputs) add_out(t);
    return;
  }
  const NoGradGuard guard;
  const Tensor flat =
      empty({int64_t(outputs.size()), outputs[0].numel()}, TensorOptions(outputs[0].dtype(), home));
  for (size_t r = 0; r < outputs.size(); ++r) {
    out.push_back(flat.narrow(0, int64_t(r), 1).reshape(outputs[r].sizes()));
    copied_back.emplace_back(unwatched(outputs[r]), out.back());
    outputs[r].bump_version();
  }
}

void Call::gather_from(const std::vector<Tensor>& inputs) {
  if (!lies_apart(inputs)) {
    for (const Tensor& t : inputs) add_in(t);
    return;
  }
  const NoGradGuard guard;
  const Tensor flat =
      empty({int64_t(inputs.size()), inputs[0].numel()}, TensorOptions(inputs[0].dtype(), home));
  for (size_t r = 0; r < inputs.size(); ++r) {
    in.push_back(flat.narrow(0, int64_t(r), 1).reshape(inputs[r].sizes()));
    in.back().copy_(inputs[r].detach());
  }
}

void Call::make_views() {
  for (const Tensor& t : in) in_views.push_back(ops::view_of(t));
  for (const Tensor& t : out) out_views.push_back(ops::view_of(t));
  args.in = in_views;
  args.out = out_views;
}

void Call::copy_back() {
  const NoGradGuard guard;
  for (auto& [to, from] : copied_back) to.copy_(from);
  if (!home.is_cpu()) return;
  // Whoever waits for the call uses another stream than this thread.
  for (auto& [to, from] : copied_back)
    if (!to.device().is_cpu()) {
      prim::Backend& device = prim::backend_for(to.device());
      device.synchronize_stream(device.current_stream());
    }
}

ToldCall::ToldCall(const std::string& backend, const Call& call, size_t together)
    : listener_(tracing::listener()), call_(call) {
  if (!listener_) [[likely]]
    return;
  record_ = &ops::function_record(backend + ":" +
                                  (together > 1 ? "coalesced" : prim::name_of(call.args.kind)));
  tensors_ = ops::Arg(call.in.empty() ? call.out : call.in);
  id_ = listener_->begin_call(*record_, {&tensors_, 1}, false);
}

ToldCall::~ToldCall() {
  if (listener_) [[unlikely]]
    listener_->end_call(id_, *record_, {&tensors_, 1}, {});
}

void ToldCall::end() {
  if (!listener_) [[likely]]
    return;
  const std::vector<Tensor>& results = call_.out.empty() ? call_.in : call_.out;
  std::exchange(listener_, nullptr)
      ->end_call(id_, *record_, {&tensors_, 1}, {results.data(), results.size()});
}

}  // namespace arete::distributed
