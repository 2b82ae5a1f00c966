// pointwise and reduce as cases of fused: every record's samples, with each such call made by fused
// instead, give what they give.
#include <algorithm>

#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/ops/random.h"
#include "arete/prim/forward.h"
#include "arete/prim/fused_forms.h"
#include "arete/prim/recorder.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using ops::OpRecord;
using ops::SampleMaker;
using prim::Primitive;

enum class Form {
  routed,      // by the backend, which finds that it is one stage
  decomposed,  // by the primitives that stages are made of
  beside,      // with another stage, so that it is no longer one
};

class AsFusedCalls final : public prim::Forwarding<prim::Primitives, AsFusedCalls> {
 public:
  AsFusedCalls(prim::Backend& backend, Form form) : backend_(backend), form_(form) {}
  Device device() const override { return backend_.device(); }
  StoragePtr new_storage(size_t bytes) override { return backend_.new_storage(bytes); }
  void* scratch(size_t bytes) override { return backend_.scratch(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override {
    backend_.release_scratch(p, bytes);
  }

  template <Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    if constexpr (P == Primitive::pointwise) {
      if (form_ != Form::beside && !args.outputs.empty()) return run(prim::AsFused(args).args());
    } else if constexpr (P == Primitive::reduce) {
      bool real = true;
      for (const prim::View& v : args.inputs) real = real && !is_complex(v.dtype);
      if (real) return run(prim::AsFused(args).args());
    }
    return prim::run_primitive<P>(backend_, args);
  }
  int count() const { return count_; }

 private:
  void run(const prim::FusedArgs& args) {
    ++count_;
    if (form_ == Form::routed) return backend_.fused(args);
    if (form_ == Form::decomposed) return backend_.prim::Primitives::fused(args);
    prim::FusedSpec spec = *args.spec;
    const DType row = spec.stages[0].program->outputs()[0].dtype;
    prim::FusedStage stage{prim::FusedStage::Kind::row, nullptr, {~0}};
    stage.program = expr::trace([](std::span<const expr::Value> v) { return std::vector{v[0]}; },
                                {{row}}, {}, {{row}});
    spec.stages.push_back(std::move(stage));
    prim::FusedArgs more = args;
    more.spec = &spec;
    backend_.fused(more);
  }

  prim::Backend& backend_;
  const Form form_;
  int count_ = 0;
};

class Diverted final : public prim::Capture, ModesGuard {
 public:
  explicit Diverted(Form form) : calls_(prim::backend_for(test_device()), form) {
    modes().capture = this;
    modes().word |= Modes::kCapture;
  }
  prim::Primitives& on(Device device) override {
    if (device == test_device()) return calls_;
    return prim::backend_for(device);
  }
  int count() const { return calls_.count(); }

 private:
  AsFusedCalls calls_;
};

class FusedFormsOfRecords : public testing::TestWithParam<const OpRecord*> {};

TEST_P(FusedFormsOfRecords, ComputeTheSame) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || op.uninitialized) return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  for (const ops::Sample& s : samples_of(op).samples(maker)) {
    SCOPED_TRACE(op.name + " (" + s.note + ")");
    const Generator::State start = default_generator().state();
    const ops::Results plain = run(op, s.args);
    for (const Form form : {Form::routed, Form::decomposed, Form::beside}) {
      default_generator().set_state(start);
      ops::Results results;
      try {
        const Diverted diverted(form);
        results = run(op, s.args);
        if (diverted.count() == 0) continue;
      } catch (const Error& e) {
        // Where the host has to look at values nothing is diverted.
        ASSERT_NE(std::string(e.what()).find("captur"), std::string::npos) << e.what();
        continue;
      }
      ASSERT_EQ(results.size(), plain.size());
      for (size_t k = 0; k < plain.size(); ++k) {
        if (!plain[k].defined()) continue;
        EXPECT_EQ(difference(results[k], to_reference(plain[k]), longest_reduction(s.args)), "")
            << "result " << k << ", form " << int(form);
      }
    }
  }
}

// That calls are diverted at all.
TEST(FusedForms, AreTaken) {
  const Tensor x = rand({5, 6, 7}, TensorOptions(kFloat32, test_device()));
  const auto count = [&](Form form, auto&& f) {
    const Diverted diverted(form);
    f();
    return diverted.count();
  };
  for (const Form form : {Form::routed, Form::decomposed, Form::beside}) {
    EXPECT_EQ(count(form, [&] { x.add(x); }), form == Form::beside ? 0 : 1);
    EXPECT_EQ(count(form, [&] { x.sum({1}); }), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FusedFormsOfRecords, testing::ValuesIn(ops::all_records()),
                         record_name);

}  // namespace
}  // namespace arete::test
