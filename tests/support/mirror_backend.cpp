#include "tests/support/mirror_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

namespace arete::test {
namespace {

using prim::View;

constexpr size_t kGuard = 512;
constexpr std::byte kPattern{0x5B};

// The host memory of some operands and its copy on the device.
struct Piece {
  std::byte *begin, *end;  // host
  std::byte* device = nullptr;
  std::byte* allocation = nullptr;
  size_t allocated = 0;
};

/// The operands of one call on the device.
class Mirror {
 public:
  Mirror(prim::Backend& device, std::vector<const View*> views) : device_(device) {
    for (const View* v : views) {
      if (!v->data) continue;
      const int64_t size = int64_t(size_of(v->dtype));
      int64_t low = 0, high = 0;
      bool empty = false;
      for (int d = 0; d < v->rank(); ++d) {
        empty = empty || v->sizes[size_t(d)] == 0;
        const int64_t reach = (v->sizes[size_t(d)] - 1) * v->strides[size_t(d)] * size;
        (reach < 0 ? low : high) += reach;
      }
      if (empty)
        pieces_.push_back({v->data, v->data});
      else
        pieces_.push_back({v->data + low, v->data + high + size});
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (size_t i = 1; i < pieces_.size(); ++i) {
      if (pieces_[i].begin < pieces_[kept].end || pieces_[i].begin == pieces_[kept].begin)
        pieces_[kept].end = std::max(pieces_[kept].end, pieces_[i].end);
      else
        pieces_[++kept] = pieces_[i];
    }
    if (!pieces_.empty()) pieces_.resize(kept + 1);
    for (Piece& p : pieces_) {
      const size_t bytes = size_t(p.end - p.begin),
                   shift = reinterpret_cast<uintptr_t>(p.begin) % 64;
      p.allocated = bytes + 2 * kGuard + 64;
      p.allocation = static_cast<std::byte*>(device_.allocate(p.allocated));
      p.device = p.allocation + kGuard + shift;
      std::vector<std::byte> image(p.allocated, kPattern);
      if (bytes) std::memcpy(image.data() + (p.device - p.allocation), p.begin, bytes);
      device_.copy_from_host(p.allocation, image.data(), p.allocated);
    }
  }
  ~Mirror() {
    for (Piece& p : pieces_) device_.deallocate(p.allocation, p.allocated);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  View operator()(const View& v) const {
    View r = v;
    if (!v.data) return r;
    for (const Piece& p : pieces_)
      if (v.data >= p.begin && (v.data < p.end || v.data == p.begin)) {
        r.data = p.device + (v.data - p.begin);
        return r;
      }
    // A view with negative strides may start at the last byte of its piece only if it is empty.
    ADD_FAILURE() << "an operand outside of all pieces";
    return r;
  }
  std::vector<View> operator()(std::span<const View> views) const {
    std::vector<View> r;
    for (const View& v : views) r.push_back((*this)(v));
    return r;
  }

  void fetch() {
    device_.synchronize();
    for (Piece& p : pieces_) {
      std::vector<std::byte> image(p.allocated);
      device_.copy_to_host(image.data(), p.allocation, p.allocated);
      const size_t at = size_t(p.device - p.allocation), bytes = size_t(p.end - p.begin);
      for (size_t i = 0; i < p.allocated; ++i)
        if ((i < at || i >= at + bytes) && image[i] != kPattern) {
          ADD_FAILURE() << "byte " << int64_t(i) - int64_t(at) << " of " << bytes
                        << " was written on the device";
          break;
        }
      if (bytes) std::memcpy(p.begin, image.data() + at, bytes);
    }
  }

 private:
  prim::Backend& device_;
  std::vector<Piece> pieces_;
};

std::vector<const View*> pointers(std::span<const View> a, std::span<const View> b = {}) {
  std::vector<const View*> r;
  for (const View& v : a) r.push_back(&v);
  for (const View& v : b) r.push_back(&v);
  return r;
}

// Runs f(mirror) on operands `views`; they are fetched even if it throws at the synchronization.
template <class F>
auto mirrored(prim::Backend& device, std::vector<const View*> views, F&& f) {
  Mirror m(device, std::move(views));
  if constexpr (std::is_void_v<decltype(f(m))>) {
    f(m);
    m.fetch();
  } else {
    auto result = f(m);
    m.fetch();
    return result;
  }
}

}  // namespace

void MirrorBackend::fill(const prim::FillArgs& a) {
  mirrored(device_, {&a.out}, [&](Mirror& m) {
    auto b = a;
    b.out = m(a.out);
    device_.fill(b);
  });
}

void MirrorBackend::copy(const prim::CopyArgs& a) {
  mirrored(device_, {&a.out, &a.in}, [&](Mirror& m) { device_.copy({m(a.out), m(a.in)}); });
}

void MirrorBackend::iota(const prim::IotaArgs& a) {
  mirrored(device_, {&a.out}, [&](Mirror& m) {
    auto b = a;
    b.out = m(a.out);
    device_.iota(b);
  });
}

void MirrorBackend::pointwise(const prim::PointwiseArgs& a) {
  mirrored(device_, pointers(a.inputs, a.outputs), [&](Mirror& m) {
    const auto in = m(a.inputs), out = m(a.outputs);
    device_.pointwise({a.program, in, out, a.params});
  });
}

void MirrorBackend::multi_pointwise(const prim::MultiPointwiseArgs& a) {
  mirrored(device_, pointers(a.inputs, a.outputs), [&](Mirror& m) {
    const auto in = m(a.inputs), out = m(a.outputs);
    device_.multi_pointwise({a.program, a.n_tensors, in, out, a.params});
  });
}

void MirrorBackend::multi_reduce(const prim::MultiReduceArgs& a) {
  auto views = pointers(a.inputs);
  views.push_back(&a.out);
  mirrored(device_, views, [&](Mirror& m) {
    const auto in = m(a.inputs);
    device_.multi_reduce({a.monoid, a.prologue, in, m(a.out), a.params});
  });
}

void MirrorBackend::dropout(const prim::DropoutArgs& a) {
  mirrored(device_, {&a.in, &a.out}, [&](Mirror& m) {
    device_.dropout({m(a.in), m(a.out), a.seed, a.offset, a.keep, a.scale});
  });
}

void MirrorBackend::attention(const prim::AttentionArgs& a) {
  mirrored(
      device_, {&a.q, &a.k, &a.v, &a.out, &a.lse, &a.grad_out, &a.grad_q, &a.grad_k, &a.grad_v},
      [&](Mirror& m) {
        device_.attention({a.backward, m(a.q), m(a.k), m(a.v), m(a.out), m(a.lse), m(a.grad_out),
                           m(a.grad_q), m(a.grad_k), m(a.grad_v), a.scale, a.causal});
      });
}

void MirrorBackend::fused(const prim::FusedArgs& a) {
  mirrored(device_, pointers(a.inputs, a.outputs), [&](Mirror& m) {
    const auto in = m(a.inputs), out = m(a.outputs);
    auto b = a;
    b.inputs = in;
    b.outputs = out;
    device_.fused(b);
  });
}

void MirrorBackend::reduce(const prim::ReduceArgs& a) {
  auto views = pointers(a.inputs);
  views.push_back(&a.out);
  mirrored(device_, views, [&](Mirror& m) {
    const auto in = m(a.inputs);
    auto b = a;
    b.inputs = in;
    b.out = m(a.out);
    device_.reduce(b);
  });
}

void MirrorBackend::arg_reduce(const prim::ArgReduceArgs& a) {
  mirrored(device_, {&a.in, &a.out, &a.values}, [&](Mirror& m) {
    device_.arg_reduce({m(a.in), m(a.out), m(a.values), a.dim, a.largest});
  });
}

void MirrorBackend::scan(const prim::ScanArgs& a) {
  mirrored(device_, {&a.in, &a.out}, [&](Mirror& m) {
    device_.scan({a.monoid, m(a.in), m(a.out), a.dim, a.reverse});
  });
}

void MirrorBackend::sort(const prim::SortArgs& a) {
  mirrored(device_, {&a.in, &a.values, &a.indices}, [&](Mirror& m) {
    device_.sort({m(a.in), m(a.values), m(a.indices), a.dim, a.descending});
  });
}

void MirrorBackend::topk(const prim::TopkArgs& a) {
  mirrored(device_, {&a.in, &a.values, &a.indices}, [&](Mirror& m) {
    device_.topk({m(a.in), m(a.values), m(a.indices), a.dim, a.largest});
  });
}

void MirrorBackend::gather(const prim::GatherArgs& a) {
  mirrored(device_, {&a.in, &a.index, &a.out}, [&](Mirror& m) {
    device_.gather({m(a.in), m(a.index), m(a.out), a.dim, a.op});
  });
}

void MirrorBackend::scatter(const prim::ScatterArgs& a) {
  mirrored(device_, {&a.out, &a.index, &a.src}, [&](Mirror& m) {
    device_.scatter({m(a.out), m(a.index), m(a.src), a.dim, a.mode, a.op});
  });
}

void MirrorBackend::take_rows(const prim::TakeRowsArgs& a) {
  mirrored(device_, {&a.table, &a.index, &a.out}, [&](Mirror& m) {
    device_.take_rows({m(a.table), m(a.index), m(a.out), a.op});
  });
}

void MirrorBackend::add_rows(const prim::AddRowsArgs& a) {
  mirrored(device_, {&a.out, &a.index, &a.src}, [&](Mirror& m) {
    device_.add_rows({m(a.out), m(a.index), m(a.src), a.op});
  });
}

int64_t MirrorBackend::compact(const prim::CompactArgs& a) {
  return mirrored(device_, {&a.mask, &a.out}, [&](Mirror& m) {
    return device_.compact({m(a.mask), m(a.out)});
  });
}

void MirrorBackend::random(const prim::RandomArgs& a) {
  mirrored(device_, {&a.out}, [&](Mirror& m) {
    auto b = a;
    b.out = m(a.out);
    device_.random(b);
  });
}

void MirrorBackend::gemm(const prim::GemmArgs& a) {
  const std::vector<const View*> views{&a.a,   &a.b,     &a.out,     &a.bias,
                                       &a.aux, &a.a_sum, &a.a_scale, &a.b_scale};
  mirrored(device_, views, [&](Mirror& m) {
    auto b = a;
    b.a_sum = m(a.a_sum);
    b.a_scale = m(a.a_scale);
    b.b_scale = m(a.b_scale);
    b.a = m(a.a);
    b.b = m(a.b);
    b.out = m(a.out);
    b.bias = m(a.bias);
    b.aux = m(a.aux);
    device_.gemm(b);
  });
}

void MirrorBackend::conv(const prim::ConvArgs& a) {
  mirrored(device_, {&a.x, &a.w, &a.y, &a.bias}, [&](Mirror& m) {
    auto b = a;
    b.x = m(a.x);
    b.w = m(a.w);
    b.y = m(a.y);
    b.bias = m(a.bias);
    device_.conv(b);
  });
}

void MirrorBackend::pool(const prim::PoolArgs& a) {
  mirrored(device_, {&a.x, &a.y, &a.indices}, [&](Mirror& m) {
    auto b = a;
    b.x = m(a.x);
    b.y = m(a.y);
    b.indices = m(a.indices);
    device_.pool(b);
  });
}

void MirrorBackend::fft(const prim::FftArgs& a) {
  mirrored(device_, {&a.in, &a.out}, [&](Mirror& m) {
    device_.fft({m(a.in), m(a.out), a.forward, a.scale});
  });
}

void MirrorBackend::linalg(const prim::LinalgArgs& a) {
  mirrored(device_, {&a.a, &a.b, &a.c, &a.d, &a.info}, [&](Mirror& m) {
    auto on_device = a;
    on_device.a = m(a.a);
    on_device.b = m(a.b);
    on_device.c = m(a.c);
    on_device.d = m(a.d);
    on_device.info = m(a.info);
    device_.linalg(on_device);
  });
}

void* MirrorBackend::scratch(size_t bytes) { return ::operator new(bytes, std::align_val_t(64)); }
void MirrorBackend::release_scratch(void* p, size_t) noexcept {
  ::operator delete(p, std::align_val_t(64));
}
void MirrorBackend::copy_to_host(void* dst, const void* src, size_t bytes) {
  if (bytes) std::memcpy(dst, src, bytes);
}
void MirrorBackend::copy_from_host(void* dst, const void* src, size_t bytes) {
  copy_to_host(dst, src, bytes);
}

}  // namespace arete::test
