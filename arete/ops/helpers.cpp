// The helpers that records share (declared in call.h).
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/anomaly.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/op_node.h"
#include "arete/ops/target.h"
#include "arete/prim/recorder.h"

namespace arete::ops {

prim::Primitives& target(Device device) {
  if (modes().word & (Modes::kCapture | Modes::kPutOff)) return modes().capture->on(device);
  return prim::backend_for(device);
}

namespace {
// Calls of the thread wait in order; what else is under way with the memory is waited for.
bool only_waits_here(const Storage& memory, bool writes) {
  if (!(modes().word & Modes::kPutOff) || memory.promiser() != modes().capture->promiser())
    return false;
  memory.wait_for_other_queues(nullptr, writes);
  return true;
}
}  // namespace

std::byte* operand_data(const Storage& memory) {
  return only_waits_here(memory, false) ? memory.data() : memory.readable_data();
}

void note_look() noexcept {
  if (modes().word & Modes::kPutOff) modes().capture->note_look();
}

void wait_to_write(const Storage& memory) {
  if (!only_waits_here(memory, true)) memory.writable_data();
}

bool holds_nan(const Tensor& t) {
  if (!t.defined() || !is_floating(t.dtype()) || t.is_meta() || t.numel() == 0) return false;
  const ModesGuard guard;
  modes().word = 0;
  modes().grad_enabled = false;
  return t.isnan().any().item<bool>();
}

prim::View view_of(const Tensor& t) { return view_of(t, t.layout()); }

prim::View view_of(const Tensor& t, const Layout& l) {
  std::byte* data = operand_data(*t.storage());
  if (data) data += l.offset * int64_t(size_of(t.dtype()));
  return {data, t.dtype(), IntList(l.sizes.data(), l.sizes.size()),
          IntList(l.strides.data(), l.strides.size()), t.storage().get()};
}

bool may_hold(const Tensor& t, const OutputSpec& spec) {
  if (t.dtype() != spec.dtype || t.device() != spec.device || t.layout().sizes != spec.sizes)
    return false;
  return spec.strides ? t.layout().strides == *spec.strides : t.is_contiguous();
}

namespace {
size_t bytes_of(int64_t elements, const Layout& layout, DType dtype) {
  ARETE_CHECK(
      elements <= INT64_MAX / int64_t(size_of(dtype)),
      ValueError("empty", "a tensor of sizes " + to_string(layout.sizes) + " is too large"));
  return size_t(elements) * size_of(dtype);
}
}  // namespace

Tensor empty_tensor(IntList sizes, DType dtype, Device device) {
  if (modes().destination || device.is_meta()) [[unlikely]]
    return empty_tensor(OutputSpec{Shape(sizes), dtype, {}, device});
  Layout layout(sizes);
  StoragePtr memory = target(device).new_storage(bytes_of(layout.numel(), layout, dtype));
  return Tensor(
      IntrusivePtr<TensorImpl>(new TensorImpl(std::move(memory), std::move(layout), dtype)));
}

Tensor empty_tensor(const OutputSpec& spec) {
  Layout layout = spec.strides ? Layout(spec.sizes, *spec.strides) : Layout(spec.sizes);
  if (const Tensor** given = modes().destination) [[unlikely]] {
    if (const Tensor* const t = *given; t && may_hold(*t, spec)) {
      *given = nullptr;
      return alias(*t, t->layout());
    }
  }
  const size_t bytes = bytes_of(spec.strides ? layout.end() : layout.numel(), layout, spec.dtype);
  const Device device = spec.device.value();
  StoragePtr memory = device.is_meta() ? Storage::create(device, bytes, nullptr)
                                       : target(device).new_storage(bytes);
  return Tensor(
      IntrusivePtr<TensorImpl>(new TensorImpl(std::move(memory), std::move(layout), spec.dtype)));
}

Tensor alias(const Tensor& t, Layout layout) {
  return Tensor(t.impl()->alias(std::move(layout), t.dtype()));
}

Tensor sum_to_size(const Tensor& g, IntList sizes) {
  const IntList from = g.sizes();
  if (from.size() == sizes.size() && std::equal(from.begin(), from.end(), sizes.begin())) return g;
  Shape dims;
  const size_t lead = from.size() - sizes.size();
  for (size_t d = 0; d < from.size(); ++d)
    if (d < lead || (sizes[d - lead] == 1 && from[d] != 1)) dims.push_back(int64_t(d));
  Tensor out = dims.empty() ? g : g.sum(dims, true);
  return lead ? out.reshape(sizes) : out;
}

std::string describe(const Tensor& t) {
  if (!t.defined()) return "an undefined tensor";
  return std::string(name_of(t.dtype())) + to_string(t.sizes()) +
         (t.device().is_cpu() ? "" : " on " + t.device().to_string());
}

void refuse_devices(const char* name, Device a, size_t i, Device b, size_t j) {
  throw DeviceError(name,
                    "Expected all tensors to be on the same device, but found at least two "
                    "devices, " +
                        a.to_string() + " and " + b.to_string() + "!")
      .got("tensor argument " + std::to_string(i) + " on " + a.to_string() + ", tensor argument " +
           std::to_string(j) + " on " + b.to_string())
      .hint("move one of them with .to(device)");
}

Device common_device(const Call& call) {
  std::optional<Device> device;
  size_t first = 0;
  for_each_tensor(call, [&](size_t i, const Tensor& t) {
    if (!t.defined()) return;
    if (!device) {
      device = t.device();
      first = i;
    }
    check_same_device(call.name(), *device, first, t.device(), i);
  });
  return device.value_or(kCPU);
}

void Promotion::add(const Tensor& t) {
  std::optional<DType>& type = t.dim() > 0 ? dim_ : zero_;
  type = type ? promote_types(*type, t.dtype()) : t.dtype();
}

void Promotion::add(const Scalar& s) {
  if (!number_ || category_of(*number_) < s.category()) number_ = s.dtype();
}

namespace {
// What decides first, and what counts only where it is of a higher category: of that the complexity
// alone for floats.
std::optional<DType> combined(std::optional<DType> first, std::optional<DType> second) {
  if (!first || !second) return first ? first : second;
  if (category_of(*second) <= category_of(*first)) return first;
  if (is_floating(*first)) return complex_of(*first);
  return promote_types(*first, *second);
}
}  // namespace

DType Promotion::result() const { return combined(dim_, combined(zero_, number_)).value_or(kBool); }

DType result_type(std::span<const Tensor> tensors, std::span<const Scalar> scalars) {
  Promotion p;
  for (const Tensor& t : tensors)
    if (t.defined()) p.add(t);
  for (const Scalar& s : scalars) p.add(s);
  return p.result();
}

expr::Literal literal(const Scalar& s, expr::Type type) {
  expr::Literal l;
  if (expr::is_float(type))
    l.f = s.to_double();
  else if (type == expr::Type::boolean)
    l.i = s.to_bool();
  else
    l.i = type == expr::Type::u64 ? int64_t(s.to_bits()) : s.to_int64();
  return l;
}

Tensor plain(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype && t.is_contiguous()) return t;
  const Tensor out = empty_tensor(t.sizes(), dtype, t.device());
  if (!t.is_meta()) {
    target(t.device()).copy({view_of(out), view_of(t)});
  }
  return out;
}

}  // namespace arete::ops
