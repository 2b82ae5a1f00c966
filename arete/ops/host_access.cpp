#include "arete/core/host_access.h"

#include <cstring>

#include "arete/core/modes.h"
#include "arete/core/sync_debug.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/prim/host_wait.h"

namespace arete {
namespace {

// Strided host memory to row-major. The innermost dimension is a plain loop of fixed-size moves.
template <size_t kBytes>
void gather_rows(std::byte* dst, const std::byte* base, const Layout& l) {
  const int rank = l.rank();
  const int64_t inner = rank ? l.sizes[rank - 1] : 1, step = rank ? l.strides[rank - 1] : 0;
  Shape index(size_t(rank), 0);
  int64_t at = l.offset;
  for (int64_t rows = l.numel() / inner; rows > 0; --rows) {
    for (int64_t i = 0; i < inner; ++i, dst += kBytes)
      std::memcpy(dst, base + (at + i * step) * int64_t(kBytes), kBytes);
    for (int d = rank - 2; d >= 0; --d) {
      at += l.strides[d];
      if (++index[d] < l.sizes[d]) break;
      at -= l.sizes[d] * l.strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

void read_to_host(const Tensor& t, const Layout& l, void* dst) {
  ARETE_CHECK(
      !t.is_meta(),
      DeviceError("item", "Cannot copy out of meta tensor; no data!").got(ops::describe(t)));
  ARETE_CHECK(!(modes().word & Modes::kCapture),
              ValueError("item", "a value was read on the host while a capture records calls")
                  .got(ops::describe(t))
                  .hint("values exist only when the captured program runs; keep the number in a "
                        "tensor, or read it outside the compiled function"));
  tracing::note_read(t, /*address=*/false);
  const int64_t numel = l.numel();
  if (numel == 0) return;
  const size_t bytes = t.element_size();
  if (t.device().is_cpu()) {
    const std::byte* base = t.storage()->readable_data();
    if (l.is_contiguous()) {
      std::memcpy(dst, base + l.offset * int64_t(bytes), size_t(numel) * bytes);
      return;
    }
    auto* out = static_cast<std::byte*>(dst);
    switch (bytes) {
      case 1:
        return gather_rows<1>(out, base, l);
      case 2:
        return gather_rows<2>(out, base, l);
      case 4:
        return gather_rows<4>(out, base, l);
      case 8:
        return gather_rows<8>(out, base, l);
      default:
        return gather_rows<16>(out, base, l);
    }
  }
  prim::Backend& backend = prim::backend_for(t.device());
  note_host_wait(numel == 1 ? "item" : "read", t.device());
  const tracing::HostScope traced({tracing::HostEvent::Kind::to_host, numel == 1 ? "item" : "read",
                                   t.device(), size_t(numel) * bytes, true});
  t.storage()->readable_data();
  const prim::View from = ops::view_of(t, l);
  const prim::HostWait wait;
  if (l.is_contiguous()) {
    backend.copy_to_host(dst, from.data, size_t(numel) * bytes);
    return;
  }
  const prim::ScratchView packed(backend, t.dtype(), l.sizes);
  backend.copy({packed, from});
  backend.copy_to_host(dst, packed.view().data, size_t(numel) * bytes);
}

void write_from_host(const Tensor& t, const void* src) {
  ARETE_ASSERT(t.is_contiguous());
  if (t.is_meta() || t.numel() == 0) return;
  if (t.device().is_cpu()) {
    std::memcpy(t.data_ptr(), src, t.nbytes());
    return;
  }
  note_host_wait("tensor", t.device());
  const tracing::HostScope traced(
      {tracing::HostEvent::Kind::from_host, "tensor", t.device(), t.nbytes(), true});
  prim::backend_for(t.device()).copy_from_host(t.data_ptr(), src, t.nbytes());
}

}  // namespace arete
