// The programs of loss scaling and of the optimizers compile for GPUs. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "arete/amp/grad_scaler.h"
#include "arete/backend/cuda/codegen/multi_reduce.h"
#include "arete/backend/cuda/codegen/pointwise.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/optim/adam.h"
#include "arete/optim/adaptive.h"
#include "arete/optim/sgd.h"
#include "arete/prim/forward.h"
#include "arete/prim/recorder.h"
#include "tests/cuda/compile_hastily.h"

namespace arete::cuda {
namespace {

// Runs everything on the CPU, and remembers the kernels that a GPU would run.
class Watcher final : public prim::Forwarding<prim::Primitives, Watcher>, public prim::Capture {
 public:
  Watcher() {
    modes().capture = this;
    modes().word |= Modes::kCapture;
  }
  int programs = 0;
  inline static std::vector<KernelSource> sources;  // of all watchers

  prim::Primitives& on(Device) override { return *this; }
  Device device() const override { return kCPU; }
  template <prim::Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& a) {
    if constexpr (P == prim::Primitive::pointwise)
      compile(*a.program, PointwiseShape::Kind::linear, a.inputs, a.outputs);
    if constexpr (P == prim::Primitive::multi_pointwise)
      compile(*a.program, PointwiseShape::Kind::multi, a.inputs, a.outputs);
    if constexpr (P == prim::Primitive::multi_reduce)
      compile(multi_reduce_chunks(a.monoid, *a.prologue, true, kMultiReduceTensors));
    return prim::run_primitive<P>(cpu_, a);
  }
  StoragePtr new_storage(size_t bytes) override { return cpu_.new_storage(bytes); }
  void* scratch(size_t bytes) override { return cpu_.scratch(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override { cpu_.release_scratch(p, bytes); }

 private:
  void compile(const expr::Program& program, PointwiseShape::Kind kind,
               std::span<const prim::View> inputs, std::span<const prim::View> outputs) {
    const ElementCode code = element_code(program);
    PointwiseShape shape;
    shape.kind = kind;
    shape.vector = code.vector();
    for (size_t k = 0; k < program.inputs().size(); ++k)
      if (inputs[k].numel() == 1 && outputs[0].numel() > 1) shape.uniform |= 1u << k;
    compile(pointwise_source(code, shape));
  }
  void compile(const KernelSource& source) {
    if (!seen_.insert(source.text).second) return;
    ++programs;
    if (std::none_of(sources.begin(), sources.end(),
                     [&](const KernelSource& s) { return s.text == source.text; }))
      sources.push_back(source);
  }

  ModesGuard guard_;  // ends the capture
  prim::Backend& cpu_ = prim::backend_for(kCPU);
  std::set<std::string> seen_;
};

template <class Optimizer, class Options>
void run(DType dtype, const Options& options) {
  const std::vector<Tensor> parameters{full({8}, 1.0, dtype), full({3, 4}, 1.0, dtype)};
  for (Tensor p : parameters) {
    p.requires_grad_();
    p.set_grad(full(p.sizes(), 0.5, dtype));
  }
  Optimizer optimizer(parameters, options);
  amp::GradScaler scaler;
  Watcher watcher;
  scaler.scale(parameters[0]);
  for (int step = 0; step < 2; ++step) {
    if (step == 1 && dtype != kFloat16) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
  }
  optimizer.step();
  // At least: overflow, inverse, what is remembered (2), numbers, update, scale.
  EXPECT_GE(watcher.programs, 7);
}

TEST(AmpPrograms, Compile) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    run<optim::SGD>(dtype, optim::SGDOptions{.momentum = 0.9, .master_weights = true});
    run<optim::AdamW>(dtype, optim::AdamWOptions{.amsgrad = true, .master_weights = true});
  }
  run<optim::Adagrad>(kFloat32, optim::AdagradOptions{.lr_decay = 0.1});
  run<optim::RMSprop>(kFloat32, optim::RMSpropOptions{.momentum = 0.9, .centered = true});
  expect_to_compile(Watcher::sources, 90, hasty_options(), 500);
}

}  // namespace
}  // namespace arete::cuda
