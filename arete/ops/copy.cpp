// Copies and conversions: to, clone, contiguous, copy_, fill_, zero_.
#include <algorithm>
#include <numeric>

#include "arete/core/modes.h"
#include "arete/core/sync_debug.h"
#include "arete/core/tracing.h"
#include "arete/device/cuda.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/pinned.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"
#include "arete/ops/work.h"
#include "arete/prim/backend.h"
#include "arete/prim/host_wait.h"

namespace arete::ops {

namespace {

std::optional<Shape> strides_for(const Tensor& t, MemoryFormat f) {
  if (f == MemoryFormat::preserve && !t.is_contiguous()) return strides_like(t);
  if (f == MemoryFormat::channels_last) {
    ARETE_CHECK(
        t.dim() == 4 || t.dim() == 5,
        ValueError("clone", "required rank 4 tensor to use channels_last format").got(describe(t)));
    return channels_last_strides(t.sizes());
  }
  return std::nullopt;
}

// Host memory that a GPU reaches by itself; any GPU will do.
StoragePtr pinned_storage(size_t bytes) {
  const Device gpu(DeviceType::cuda, cuda::current_device());
  return Storage::create(kCPU, bytes, &prim::backend_for(gpu).pinned_allocator(), true);
}

// One order of the same elements in memory without gaps.
bool have_same_order(const Tensor& a, const Tensor& b) {
  return a.layout().sizes == b.layout().sizes && a.layout().is_dense() &&
         (a.layout().strides == b.layout().strides || (a.is_contiguous() && b.is_contiguous()));
}

// The bytes of `src` to `dst` on another device: one dtype, one order.
void move_bytes(const Tensor& dst, const Tensor& src, bool non_blocking) {
  const size_t bytes = src.nbytes();
  if (bytes == 0) return;
  const auto address = [&](const Tensor& t) {
    // Copies from and to host memory see to their order with each other.
    if (t.storage()->promiser())
      t.storage()->writable_data();
    else if (!t.device().is_cpu())
      t.is_same(dst) ? t.storage()->writable_data() : t.storage()->readable_data();
    return t.storage()->data() + t.layout().offset * int64_t(t.element_size());
  };
  using Kind = tracing::HostEvent::Kind;
  if (src.device().is_cpu()) {
    prim::Backend& gpu = prim::backend_for(dst.device());
    src.storage()->readable_data();
    const std::byte* from = address(src);
    const bool async = non_blocking && src.is_pinned();
    if (!async) note_host_wait("to", dst.device());
    const tracing::HostScope traced({Kind::from_host, "to", dst.device(), bytes, !async});
    if (async)
      gpu.copy_from_host_async(*src.storage(), address(dst), from, bytes);
    else
      gpu.copy_from_host(address(dst), from, bytes);
  } else if (dst.device().is_cpu()) {
    prim::Backend& gpu = prim::backend_for(src.device());
    const bool async = non_blocking && dst.is_pinned();
    if (!async) note_host_wait("to", src.device());
    const tracing::HostScope traced({Kind::to_host, "to", src.device(), bytes, !async});
    if (async) {
      gpu.copy_to_host_async(*dst.storage(), address(dst), address(src), bytes);
    } else {
      dst.storage()->writable_data();
      const std::byte* const from = address(src);
      const prim::HostWait wait;
      gpu.copy_to_host(address(dst), from, bytes);
    }
  } else {
    const tracing::HostScope traced({Kind::peer, "to", dst.device(), bytes, false});
    prim::backend_for(dst.device())
        .copy_from_peer(address(dst), prim::backend_for(src.device()), address(src), bytes);
  }
}

// `src` (of dst's sizes) to `dst` on another device. A conversion of dtype or order takes place on
// the GPU, unless fewer bytes travel when the host does it.
void move_to_device(const Tensor& dst, Tensor src, bool non_blocking) {
  ARETE_CHECK(
      !(modes().word & Modes::kCapture),
      NotImplementedError("to", "a copy between devices cannot be part of a compiled function")
          .got(describe(src))
          .hint("move the tensor before the call and pass it as an argument"));
  const bool shrinks = dst.element_size() < src.element_size();
  if (!src.device().is_cpu() || shrinks) {
    if (src.dtype() != dst.dtype() || !have_same_order(src, dst)) src = plain(src, dst.dtype());
  } else if (!have_same_order(src, dst) && !src.layout().is_dense()) {
    src = plain(src, src.dtype());
  }
  if (src.dtype() == dst.dtype() && have_same_order(src, dst))
    return move_bytes(dst, src, non_blocking);
  // As src lies in memory; what remains is done on the other side.
  const Tensor landed =
      empty_tensor(OutputSpec{Shape(src.sizes()), src.dtype(), Shape(src.strides()), dst.device()});
  move_bytes(landed, src, non_blocking);
  target(dst.device()).copy({view_of(dst), view_of(landed)});
}

bool is_non_blocking(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }

// Copy to another dtype, device or memory order; format as MemoryFormat's number.
const OpRecord& to_copy_op =
    define(
        "to_copy(Tensor self, dtype dtype, device device, int memory_format, "
        "bool non_blocking=False) -> Tensor")
        .doc("A copy with another dtype, device or memory order.")
        .surface(Surface::internal)
        .for_files()
        .flops(no_flops)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& t = c.tensor(0);
          out.push_back({Shape(t.sizes()), c[1].dtype(), strides_for(t, MemoryFormat(c.integer(3))),
                         c[2].device()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& t = c.tensor(0);
          ARETE_CHECK(!t.is_meta(), DeviceError("to", "Cannot copy out of meta tensor; no data!"));
          if (t.device() == out[0].device()) {
            p.copy({view_of(out[0]), view_of(t)});
            return;
          }
          const bool non_blocking = is_non_blocking(c, 4);
          // What is left under way can only arrive in pinned memory.
          if (non_blocking && out[0].device().is_cpu() && out[0].nbytes() > 0)
            out[0].impl()->storage = pinned_storage(out[0].storage()->bytes());
          move_to_device(out[0], t, non_blocking);
        })
        .grad([](const GradCall& g) -> TensorList {
          const Tensor& grad = g.grad();
          // Of what became complex: a view of the real parts.
          const bool takes_part = is_complex(grad.dtype()) && !is_complex(g.input_dtype(0)) &&
                                  grad.device() == g.input_device(0);
          return {(takes_part ? real(grad) : grad).to(g.input_device(0), g.input_dtype(0))};
        });

// Note [Copies that are none]
// What lies as contiguous() asks, or has the dtype that to() asks for, is given back as it is, and
// no record is asked. Where calls are written down (Note [Saved programs]) that would be as the
// examples lie in memory, so there both are calls, which look again whenever they are made. What
// they give is a tensor of its own then: it is written down apart from what it was made of, into
// which the function may write afterwards.
bool lies_as(const Tensor& t, MemoryFormat f) {
  return f == MemoryFormat::preserve ||
         (f == MemoryFormat::channels_last ? t.layout().is_channels_last() : t.is_contiguous());
}

Tensor same(const Tensor& t) {
  if (!tracing::is_written_down()) return t;
  const EnableGradGuard grad;  // the history is that of t in any case
  Shape dims(size_t(t.dim()), 0);
  std::iota(dims.begin(), dims.end(), 0);
  return permute(t, dims);
}

const OpRecord& contiguous_op =
    define("contiguous(Tensor self, int memory_format=0) -> Tensor")
        .doc("Itself, or a copy in the order of memory that is asked for.")
        .surface(Surface::internal)
        .for_files()
        .flops(no_flops)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const auto f = MemoryFormat(c.integer(1));
          return {lies_as(x, f) ? same(x) : x.clone(f)};
        });

const OpRecord& to_op = define("to(Tensor self, dtype dtype, int memory_format=1) -> Tensor")
                            .doc("Itself, or a copy of another dtype or order of memory.")
                            .surface(Surface::internal)
                            .for_files()
                            .flops(no_flops)
                            .compose([](const Call& c) -> Results {
                              const Tensor& x = c.tensor(0);
                              const auto f = MemoryFormat(c.integer(2));
                              // Sizes of 1 fit several orders: strides are then made those of the
                              // one that is asked for.
                              if (x.dtype() == c[1].dtype() && lies_as(x, f) &&
                                  (f != MemoryFormat::channels_last || prefers_channels_last(x)))
                                return {same(x)};
                              return {call(to_copy_op, {x, c[1].dtype(), x.device(), int64_t(f)})};
                            });

const OpRecord& copy_op =
    define("copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor")
        .doc("src broadcast to self's sizes, in self's dtype.")
        .surface(Surface::internal)
        .for_files()
        .across_devices()
        .flops(no_flops)
        .indexed({0, true})
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& self = c.tensor(0);
          const Tensor& src = c.tensor(1);
          const Shape s = broadcast_shapes(self.sizes(), src.sizes(), "copy_");
          ARETE_CHECK(s.size() == self.sizes().size() &&
                          std::equal(s.begin(), s.end(), self.sizes().begin()),
                      ValueError("copy_",
                                 "The expanded size of the tensor must match the existing "
                                 "size: the target is smaller than the source")
                          .expected(to_string(self.sizes()))
                          .got(to_string(src.sizes())));
          out.push_back({Shape(self.sizes()), self.dtype(), {}, self.device()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          Tensor src = c.tensor(1);
          ARETE_CHECK(!src.is_meta(),
                      DeviceError("copy_", "Cannot copy out of meta tensor; no data!"));
          const Layout l = expand(src.layout(), out[0].sizes());
          if (src.device() != out[0].device()) {
            if (l.sizes == src.layout().sizes) {
              move_to_device(out[0], src, is_non_blocking(c, 2));
              return;
            }
            // Few bytes travel; they are repeated where they arrive.
            const Tensor landed = empty_tensor(src.sizes(), out[0].dtype(), out[0].device());
            move_to_device(landed, src, is_non_blocking(c, 2));
            p.copy({view_of(out[0]), view_of(landed, expand(landed.layout(), out[0].sizes()))});
            return;
          }
          if (src.storage() == out[0].storage()) {
            src = src.clone(MemoryFormat::contiguous);
            p.copy({view_of(out[0]), view_of(src, expand(src.layout(), out[0].sizes()))});
            return;
          }
          p.copy({view_of(out[0]), view_of(src, l)});
        })
        .grad([](const GradCall& g) {
          TensorList r(2);
          if (g.needs(0)) r[0] = zeros(g.input_sizes(0), g.grad().options());
          if (g.needs(1))
            r[1] = sum_to_size(g.grad(), g.input_sizes(1)).to(g.input_device(1), g.input_dtype(1));
          return r;
        })
        .in_place();

const OpRecord& fill_op =
    define("fill(Tensor self, Scalar value) -> Tensor")
        .doc("Every element set to value.")
        .flops(no_flops)
        .indexed({0, true})
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& self = c.tensor(0);
          out.push_back({Shape(self.sizes()), self.dtype(), {}, self.device()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          p.fill(filling(view_of(out[0]), c.scalar(1), c.name()));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {zeros(g.input_sizes(0), g.grad().options())};
        })
        .in_place();

Tensor to_copy(const Tensor& self, DType t, Device d, MemoryFormat f, bool non_blocking = false) {
  return call(to_copy_op, {self, t, d, int64_t(f), non_blocking});
}

Tensor to_or_same(const Tensor& self, DType t) {
  return call(to_op, {self, t, int64_t(MemoryFormat::preserve)});
}

Tensor pinned_tensor(Layout layout, DType t, size_t bytes) {
  return Tensor{
      IntrusivePtr<TensorImpl>(new TensorImpl(pinned_storage(bytes), std::move(layout), t))};
}

Tensor make_pinned(const Tensor& self) {
  const std::optional<Shape> strides = strides_for(self, MemoryFormat::preserve);
  Tensor out = pinned_tensor(strides ? Layout(self.sizes(), *strides) : Layout(self.sizes()),
                             self.dtype(), self.nbytes());
  // As an operator, for gradients go back through it.
  return out.copy_(self);
}

}  // namespace
}  // namespace arete::ops

namespace arete {

Tensor Tensor::to(Device d, DType t, bool non_blocking, bool copy) const {
  d = d.resolved();
  if (!copy && d == device() && t == dtype())
    return tracing::is_written_down() ? ops::to_or_same(*this, t) : *this;
  return ops::to_copy(*this, t, d, MemoryFormat::preserve, non_blocking);
}
Tensor empty_pinned(IntList sizes, DType dtype) {
  const Layout layout(sizes);
  return ops::pinned_tensor(layout, dtype, size_t(layout.numel()) * size_of(dtype));
}

Tensor Tensor::pin_memory() const {
  ARETE_CHECK(device().is_cpu(),
              DeviceError("pin_memory", "cannot pin '" + ops::describe(*this) +
                                            "': only dense CPU tensors can be pinned"));
  return is_pinned() ? *this : ops::make_pinned(*this);
}
Tensor Tensor::to(DType t, bool copy) const { return to(device(), t, false, copy); }
Tensor Tensor::to(Device d, bool non_blocking, bool copy) const {
  if (!copy && d.resolved() == device()) return *this;
  return to(d, dtype(), non_blocking, copy);
}
Tensor Tensor::to(const TensorOptions& o) const {
  return to(o.device_, o.dtype_.value_or(dtype()));
}
Tensor Tensor::clone(MemoryFormat f) const { return ops::to_copy(*this, dtype(), device(), f); }
Tensor Tensor::contiguous(MemoryFormat f) const {
  if (tracing::is_written_down()) [[unlikely]]
    return ops::call(ops::contiguous_op, {*this, int64_t(f)});
  return ops::lies_as(*this, f) ? *this : clone(f);
}
Tensor& Tensor::copy_(const Tensor& src, bool non_blocking) {
  return ops::call_in_place(*this, ops::copy_op, {*this, src, non_blocking});
}
Tensor& Tensor::fill_(Scalar value) {
  return ops::call_in_place(*this, ops::fill_op, {*this, value});
}
Tensor& Tensor::zero_() { return fill_(0); }

}  // namespace arete

ARETE_FAMILY(copy)
