// What a backend without a library of its own lets the CPU compute.
#include <vector>

#include "arete/prim/backend.h"

namespace arete::prim {
namespace {

// A copy in host memory of what a view of a dense tensor spans.
class HostCopy {
 public:
  HostCopy(Backend& device, const View& v) : device_(device), origin_(v), view_(v) {
    if (!v.data) return;
    bytes_.resize(size_t(v.numel()) * size_of(v.dtype));
    view_.data = bytes_.data();
  }
  const View& view() const { return view_; }
  void read() {
    if (!bytes_.empty()) device_.copy_to_host(bytes_.data(), origin_.data, bytes_.size());
  }
  void write() {
    if (!bytes_.empty()) device_.copy_from_host(origin_.data, bytes_.data(), bytes_.size());
  }

 private:
  Backend& device_;
  View origin_, view_;
  std::vector<std::byte> bytes_;
};

// Which of a, b, c and d a call reads and which it writes, a bit each.
struct Uses {
  unsigned read, written;
};
Uses uses_of(const LinalgArgs& l) {
  using Op = LinalgArgs::Op;
  constexpr unsigned a = 1, b = 2, c = 4, d = 8;
  switch (l.op) {
    case Op::cholesky:
      return {a, a};
    case Op::lu:
    case Op::qr:
      return {a, a | b};
    case Op::lu_solve:
      return {a | b | c, c};
    case Op::triangular_solve:
      return {a | b, b};
    case Op::qr_vectors:
      return {a | b, a};
    case Op::svd:
      return {a, b | c | d};
    case Op::symmetric_eigen:
      return {a, l.vectors ? a | b : b};
    case Op::eigen:
      return {a, b | c};
    case Op::least_squares:
      return {a | b, b | c | d};
  }
  __builtin_unreachable();
}

}  // namespace

void Backend::fft(const FftArgs& f) {
  HostCopy in(*this, f.in), out(*this, f.out);
  in.read();
  backend_for(kCPU).fft({in.view(), out.view(), f.forward, f.scale});
  out.write();
}

void Backend::linalg(const LinalgArgs& l) {
  LinalgArgs host = l;
  HostCopy a(*this, l.a), b(*this, l.b), c(*this, l.c), d(*this, l.d), info(*this, l.info);
  HostCopy* const operands[] = {&a, &b, &c, &d};
  const Uses uses = uses_of(l);
  for (unsigned i = 0; i < 4; ++i)
    if (uses.read >> i & 1) operands[i]->read();
  host.a = a.view(), host.b = b.view(), host.c = c.view(), host.d = d.view();
  host.info = info.view();
  backend_for(kCPU).linalg(host);
  for (unsigned i = 0; i < 4; ++i)
    if (uses.written >> i & 1) operands[i]->write();
  info.write();
}

}  // namespace arete::prim
