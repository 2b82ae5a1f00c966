// Calls of records that are recorded, and what they give as bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "arete/autograd/engine.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/prim/recorder.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {

// Sends the thread's calls to a recorder while it lives.
class Recording : ModesGuard {
 public:
  explicit Recording(prim::Recorder& recorder) {
    modes().capture = &recorder;
    modes().word |= Modes::kCapture;
  }
};

inline std::vector<std::byte> bits(const Tensor& t) {
  const Tensor c = t.detach().to(kCPU).contiguous();
  std::vector<std::byte> bytes(size_t(c.numel()) * size_of(c.dtype()));
  if (!bytes.empty()) std::memcpy(bytes.data(), c.data_ptr(), bytes.size());
  return bytes;
}

inline std::vector<Tensor> inputs_with_gradient(const std::vector<ops::OwnedArg>& args) {
  std::vector<Tensor> inputs;
  const auto add = [&](const Tensor& t) {
    if (t.defined() && t.requires_grad()) inputs.push_back(t);
  };
  for (const ops::OwnedArg& a : args) {
    if (a.kind == ops::Arg::Kind::tensor) add(a.tensor);
    for (const Tensor& t : a.tensors) add(t);
  }
  return inputs;
}

// Results and gradients of one call.
inline std::vector<Tensor> forward_and_backward(const ops::OpRecord& op,
                                                const std::vector<ops::OwnedArg>& args) {
  const ops::Results results = run(op, args);
  std::vector<Tensor> all(results.begin(), results.end());
  if (!op.grad && !op.pointwise && !op.compose) return all;
  std::vector<Tensor> roots, seeds;
  for (const Tensor& t : results)
    if (t.requires_grad()) {
      roots.push_back(t);
      seeds.push_back(full(t.sizes(), Scalar(0.5), t.options()));
    }
  const std::vector<Tensor> inputs = inputs_with_gradient(args);
  if (roots.empty() || inputs.empty()) return all;
  for (const Tensor& g : autograd::grad(roots, inputs, seeds, false, false, true))
    if (g.defined()) all.push_back(g);
  return all;
}

// Nothing that the first run left may be there for the second.
inline void poison(const prim::Recorder& recorder) {
  prim::Backend& backend = prim::backend_for(test_device());
  for (const StoragePtr& memory : recorder.results()) {
    const std::vector<std::byte> image(memory->bytes(), std::byte{0xFF});
    if (!image.empty()) backend.copy_from_host(memory->data(), image.data(), image.size());
  }
}

// Other values in the same memory, within the same domain.
inline void change(const std::vector<ops::OwnedArg>& args) {
  const NoGradGuard guard;
  map_tensors(args, [](Tensor t) {
    if (is_differentiable(t.dtype()) && !t.layout().may_overlap()) t.mul_(Scalar(0.75));
    return t;
  });
}

inline std::vector<std::vector<std::byte>> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<std::byte>> all;
  for (const Tensor& t : tensors) all.push_back(bits(t));
  return all;
}

/// Calls f(sample) for each of a record's samples, with the same bits each time, until one fails.
template <class F>
void for_each_sample(const ops::OpRecord& op, F&& f) {
  if (!samples_of(op).samples || op.uninitialized) return;
  // Sums by atomic additions are in another order each time: as they are on GPUs by default.
  const ModesGuard guard;
  modes().deterministic = test_device().is_cuda();
  ops::SampleMaker maker(op.dtypes[0], test_device(),
                         samples_of(op).test_gradient && is_differentiable(op.dtypes[0]));
  for (const ops::Sample& s : samples_of(op).samples(maker)) {
    SCOPED_TRACE(op.name + " (" + s.note + ")");
    f(s);
    if (testing::Test::HasFailure()) return;
  }
}

/// Calls f(sample, recorder, results) for each of a record's samples after its calls, forward and
/// backward, were recorded. Left out are those where the host has to look at values.
template <class F>
void for_each_recorded(const ops::OpRecord& op, F&& f) {
  for_each_sample(op, [&](const ops::Sample& s) {
    prim::Recorder recorder;
    std::vector<Tensor> results;
    try {
      const Recording recording(recorder);
      results = forward_and_backward(op, s.args);
    } catch (const NotImplementedError&) {
      return;  // no gradient of this sample
    } catch (const Error& e) {
      ASSERT_NE(std::string(e.what()).find("captur"), std::string::npos) << e.what();
      return;
    }
    f(s, recorder, results);
  });
}

/// Whether sizes depend on values: they do not change when calls run again.
inline bool has_sizes_by_value(const prim::Recorder& recorder) {
  return std::ranges::any_of(recorder.calls(), [](const auto& call) {
    return call->primitive() == prim::Primitive::compact;
  });
}

}  // namespace arete::test
