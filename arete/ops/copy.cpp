// Copies and conversions: to, clone, contiguous, copy_, fill_, zero_.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/reference_util.h"

namespace arete::ops {

namespace {

std::optional<Shape> strides_for(const Tensor& t, MemoryFormat f) {
  if (f == MemoryFormat::preserve && t.layout().is_dense() && !t.is_contiguous())
    return Shape(t.strides());
  if (f == MemoryFormat::channels_last) {
    ARETE_CHECK(
        t.dim() == 4 || t.dim() == 5,
        ValueError("clone", "required rank 4 tensor to use channels_last format").got(describe(t)));
    return channels_last_strides(t.sizes());
  }
  return std::nullopt;
}

Reference same_values() {
  return [](const Call& c) {
    return std::vector<Tensor>{from_values(values_of(c.tensor(0)), c.tensor(0).sizes())};
  };
}

// Copy to another dtype, device or memory order; format as MemoryFormat's number.
const OpRecord& to_copy_op =
    define("to_copy(Tensor self, dtype dtype, device device, int memory_format) -> Tensor")
        .doc("A copy with another dtype, device or memory order.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& t = c.tensor(0);
          out.push_back({Shape(t.sizes()), c[1].dtype(), c[2].device(),
                         strides_for(t, MemoryFormat(c.integer(3)))});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& t = c.tensor(0);
          ARETE_CHECK(!t.is_meta(), DeviceError("to", "Cannot copy out of meta tensor; no data!"));
          if (t.device() == out[0].device()) {
            p.copy({view_of(out[0]), view_of(t)});
            return;
          }
          // Between devices plain bytes travel: convert on the source's side first.
          const Tensor source = plain(t, out[0].dtype());
          const Tensor target = out[0].is_contiguous()
                                    ? out[0]
                                    : empty_tensor(out[0].sizes(), out[0].dtype(), out[0].device());
          if (source.device().is_cpu())
            prim::backend_for(target.device())
                .copy_from_host(target.data_ptr(), source.data_ptr(), source.nbytes());
          else if (target.device().is_cpu())
            prim::backend_for(source.device())
                .copy_to_host(target.data_ptr(), source.data_ptr(), source.nbytes());
          else
            ARETE_CHECK(false, NotImplementedError("to",
                                                   "copies between two GPUs go through "
                                                   "the host: use .cpu() first"));
          if (!target.is_same(out[0])) p.copy({view_of(out[0]), view_of(target)});
        })
        .grad([](const GradCall& g) -> TensorList { return {g.grad().to(g.input_dtype(0))}; })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 3}), m.dtype, m.device, int(MemoryFormat::preserve)}, "same dtype"},
              {{m.make_strided({2, 3}), m.dtype, m.device, int(MemoryFormat::contiguous)}, "order"},
              {{m.make({}), m.dtype, m.device, int(MemoryFormat::preserve)}, "0-d"},
              {{m.make({2, 3, 2, 2}), m.dtype, m.device, int(MemoryFormat::channels_last)},
               "nhwc"}};
        })
        .reference(same_values());

const OpRecord& copy_op =
    define("copy(Tensor self, Tensor src) -> Tensor")
        .doc("src broadcast to self's sizes, in self's dtype.")
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
          out.push_back({Shape(self.sizes()), self.dtype(), self.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          Tensor src = c.tensor(1);
          if (src.device() != out[0].device())
            src = src.to(out[0].device(), out[0].dtype());
          else if (src.storage() == out[0].storage())
            src = src.clone(MemoryFormat::contiguous);
          const Layout l = expand(src.layout(), out[0].sizes());
          p.copy({view_of(out[0]), view_of(src, l)});
        })
        .grad([](const GradCall& g) {
          TensorList r(2);
          if (g.needs(0)) r[0] = zeros(g.input_sizes(0), g.grad().options());
          if (g.needs(1)) r[1] = sum_to_size(g.grad(), g.input_sizes(1)).to(g.input_dtype(1));
          return r;
        })
        .in_place()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), m.make({3})}, "broadcast"},
                                     {{m.make_strided({2, 3}), m.make({2, 3})}, "strided"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), m.make({2, 3})}, ErrorKind::value, "The expanded size of the tensor"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape& i) { return at(c.tensor(1), i); })};
        });

void fill_view(const Tensor& out, const Scalar& value, prim::Primitives& p) {
  prim::FillArgs args;
  args.out = view_of(out);
  args.value_is_integer = value.is_integral();
  if (args.value_is_integer)
    args.value.i = value.to_int64();
  else
    args.value.f = value.to_double();
  args.imag = value.to_complex().imag();
  p.fill(args);
}

const OpRecord& fill_op =
    define("fill(Tensor self, Scalar value) -> Tensor")
        .doc("Every element set to value.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& self = c.tensor(0);
          out.push_back({Shape(self.sizes()), self.dtype(), self.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          fill_view(out[0], c.scalar(1), p);
        })
        .grad([](const GradCall& g) -> TensorList {
          return {zeros(g.input_sizes(0), g.grad().options())};
        })
        .in_place()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), Scalar(2)}, "whole"},
                                     {{m.make_strided({2, 3}), Scalar(0.5)}, "strided"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape&) { return c.scalar(1).to_double(); })};
        });

Tensor to_copy(const Tensor& self, DType t, Device d, MemoryFormat f) {
  return call(to_copy_op, {self, t, d, int64_t(f)});
}

}  // namespace
}  // namespace arete::ops

namespace arete {

Tensor Tensor::to(Device d, DType t, bool, bool copy) const {
  if (!copy && d == device() && t == dtype()) return *this;
  return ops::to_copy(*this, t, d, MemoryFormat::preserve);
}
Tensor Tensor::to(DType t, bool copy) const { return to(device(), t, false, copy); }
Tensor Tensor::to(Device d, bool non_blocking, bool copy) const {
  return to(d, dtype(), non_blocking, copy);
}
Tensor Tensor::to(const TensorOptions& o) const {
  return to(o.device_, o.dtype_.value_or(dtype()));
}
Tensor Tensor::clone(MemoryFormat f) const { return ops::to_copy(*this, dtype(), device(), f); }
Tensor Tensor::contiguous(MemoryFormat f) const {
  const bool is_so =
      f == MemoryFormat::channels_last ? layout().is_channels_last() : is_contiguous();
  return is_so ? *this : clone(f);
}
Tensor& Tensor::copy_(const Tensor& src, bool) {
  return ops::call_in_place(*this, ops::copy_op, {*this, src});
}
Tensor& Tensor::fill_(Scalar value) {
  return ops::call_in_place(*this, ops::fill_op, {*this, value});
}
Tensor& Tensor::zero_() { return fill_(0); }

}  // namespace arete

ARETE_FAMILY(copy)
