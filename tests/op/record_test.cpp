// One test of each kind for every operator record, over its samples.
#include <algorithm>

#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/op_node.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete::test {
namespace {

using ops::OpRecord;
using ops::SampleMaker;

class Record : public testing::TestWithParam<const OpRecord*> {};

std::string where(const OpRecord& op, DType t, size_t i, const ops::Sample& s) {
  return op.name + ", " + std::string(name_of(t)) + ", sample " + std::to_string(i) + " (" +
         s.note + ")";
}

bool has_number_for_tensor(const OpRecord& op) {
  const ops::Schema& schema = ops::schema_of(op);
  SampleMaker maker(op.dtypes[0], test_device(), false);
  for (const ops::Sample& s : samples_of(op).samples(maker))
    for (size_t i = 0; i < s.args.size(); ++i)
      if (schema.args[i].is_tensor() && s.args[i].kind == ops::Arg::Kind::scalar) return true;
  return false;
}

TEST_P(Record, SaysWhatItIs) {
  const OpRecord& op = *GetParam();
  EXPECT_FALSE(op.doc.empty()) << op.name << " has no documentation";
  EXPECT_TRUE(bool(samples_of(op).samples)) << op.name << " has no samples";
  EXPECT_TRUE(bool(samples_of(op).reference) || !samples_of(op).no_reference_because.empty())
      << op.name << " has neither a reference nor a reason for having none";
  const ops::Schema& schema = ops::schema_of(op);
  EXPECT_FALSE(schema.returns.empty());
  const int ways = int(bool(op.pointwise)) + int(op.view || op.views) + int(bool(op.compose)) +
                   int(op.infer && op.lower);
  EXPECT_EQ(ways, 1) << op.name << " must be pointwise, view, composition or primitive";
  // A sentence; for building blocks, which no page of PyTorch's explains, it is all there is.
  EXPECT_TRUE(op.doc.ends_with('.') || op.doc.ends_with('?'))
      << op.name << ": its documentation is no sentence: " << op.doc;
  size_t tensors = 0;
  for (const ops::SchemaArg& a : schema.args) tensors += a.is_tensor();
  EXPECT_FALSE(op.surface == ops::Surface::function && tensors == 0)
      << op.name << " is a function in any case: it has no tensor";
  if (op.takes_numbers) {
    EXPECT_FALSE(op.pointwise && op.pointwise->n_inputs > 1)
        << op.name << " takes numbers in any case: it is pointwise";
    EXPECT_TRUE(has_number_for_tensor(op))
        << op.name << " has no sample with a number for a tensor";
  }
}

// Note [Batching rules] in ops/vmap_rules_internal.h. That the rules are right is held by
// python/tests/test_vmap.py, which compares each record's samples with a loop.
TEST_P(Record, SaysHowABatchRuns) {
  const OpRecord& op = *GetParam();
  if (!op.infer) return;
  const ops::Batching& batching = op.batching;
  const auto& args = ops::schema_of(op).args;
  const bool takes_part =
      op.random || std::ranges::any_of(args, [](const auto& a) { return a.is_tensor(); });
  EXPECT_TRUE(!takes_part || batching.rule || batching.one_by_one ||
              ops::vmaps::names_dimensions(op))
      << op.full_name() << " has neither a rule for batches nor a reason for having none";
  EXPECT_TRUE(takes_part || !(batching.rule || batching.one_by_one))
      << op.full_name() << " has no part in batches";
}

TEST_P(Record, AgreesWithReference) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || !samples_of(op).reference) return;
  for (DType t : op.dtypes) {
    SampleMaker maker(t, test_device(), false);
    const auto samples = samples_of(op).samples(maker);
    for (size_t i = 0; i < samples.size(); ++i) {
      SCOPED_TRACE(where(op, t, i, samples[i]));
      const ops::Results got = run(op, samples[i].args);
      auto reference_args = map_tensors(samples[i].args, to_reference);
      for (auto& a : reference_args) {
        if (a.kind == ops::Arg::Kind::dtype && is_floating(a.dtype)) a.dtype = kFloat64;
        if (a.kind == ops::Arg::Kind::device) a.device = kCPU;
      }
      const auto borrowed = borrow(reference_args);
      const std::vector<Tensor> want = samples_of(op).reference(ops::Call(op, borrowed));
      ASSERT_EQ(got.size(), want.size());
      for (size_t k = 0; k < want.size(); ++k)
        EXPECT_EQ(difference(got[k], want[k], longest_reduction(samples[i].args)), "")
            << "output " << k;
    }
  }
}

TEST_P(Record, DoesNotDependOnStrides) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || op.random || op.uninitialized || op.name == "read_window" ||
      op.name.starts_with("as_strided"))
    return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  const auto samples = samples_of(op).samples(maker);
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(where(op, op.dtypes[0], i, samples[i]));
    ops::Results want;
    try {
      want = run(op, samples[i].args);
    } catch (const Error& e) {
      FAIL() << e.what();
    }
    const auto scrambled = map_tensors(samples[i].args, scramble_strides);
    if (op.view || op.views || op.name.starts_with("view")) {
      // view() may refuse a memory order; what it accepts must be right.
      try {
        run(op, scrambled);
      } catch (const ValueError&) {
        continue;
      }
    }
    const ops::Results got = run(op, scrambled);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(difference(got[k], to_reference(want[k]), longest_reduction(samples[i].args)), "")
          << "output " << k;
  }
}

TEST_P(Record, InfersOnMeta) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples) return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  const auto samples = samples_of(op).samples(maker);
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(where(op, op.dtypes[0], i, samples[i]));
    const ops::Results real = run(op, samples[i].args);
    auto meta_args = map_tensors(samples[i].args, [](const Tensor& t) {
      return ops::empty_tensor(
          ops::OutputSpec{Shape(t.sizes()), t.dtype(), Shape(t.strides()), kMeta});
    });
    for (auto& a : meta_args)
      if (a.kind == ops::Arg::Kind::device) a.device = kMeta;
    ops::Results meta;
    try {
      meta = run(op, meta_args);
    } catch (const DeviceError&) {
      // Only an operator whose shape depends on data may say that there is none.
      EXPECT_TRUE(op.compose != nullptr) << op.name << " cannot infer its shapes";
      continue;
    } catch (const NotImplementedError&) {
      EXPECT_TRUE(op.compose != nullptr) << op.name << " cannot infer its shapes";
      continue;
    }
    ASSERT_EQ(meta.size(), real.size());
    for (size_t k = 0; k < real.size(); ++k) {
      EXPECT_EQ(to_string(meta[k].sizes()), to_string(real[k].sizes())) << "output " << k;
      EXPECT_EQ(meta[k].dtype(), real[k].dtype()) << "output " << k;
    }
  }
}

TEST_P(Record, InPlaceEqualsFunctional) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || !op.has_in_place || op.random) return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  const auto samples = samples_of(op).samples(maker);
  int done = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(where(op, op.dtypes[0], i, samples[i]));
    if (samples[i].args[0].kind != ops::Arg::Kind::tensor) continue;
    const Tensor want = run(op, samples[i].args)[0];
    auto args = samples[i].args;
    Tensor& self = args[0].tensor;
    if (std::any_of(args.begin(), args.end(), [&](const ops::OwnedArg& a) {
          return a.kind == ops::Arg::Kind::dtype && a.dtype != self.dtype();
        })) {
      EXPECT_THROW(ops::call_in_place(self, op, borrow(args)), TypeError);
      continue;
    }
    if (want.layout().sizes != self.layout().sizes ||
        category_of(want.dtype()) > category_of(self.dtype()))
      continue;
    self = self.clone();
    const uint64_t version = self.version();
    const void* memory = self.data_ptr();
    const auto borrowed = borrow(args);
    ops::call_in_place(self, op, borrowed);
    EXPECT_EQ(difference(self, to_reference(want), longest_reduction(args)), "");
    EXPECT_EQ(self.data_ptr(), memory);
    EXPECT_GT(self.version(), version) << "the version did not move";
    ++done;
  }
  EXPECT_GT(done, 0) << op.name << ": no sample fits the in-place form";
}

TEST_P(Record, RejectsErrors) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).errors) return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  for (const ops::ErrorSample& s : samples_of(op).errors(maker)) {
    SCOPED_TRACE(op.name + ": " + s.text);
    try {
      run(op, s.args);
      // What kernels find is raised at the next synchronization.
      prim::backend_for(test_device()).synchronize();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      // Kernels report every index that is out of range in one way.
      if (!test_device().is_cpu() && e.kind() == ErrorKind::index &&
          std::string(e.what()).find("is out of bounds for dimension") != std::string::npos)
        continue;
      EXPECT_EQ(int(e.kind()), int(s.kind)) << e.what();
      EXPECT_NE(std::string(e.what()).find(s.text), std::string::npos) << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Record, testing::ValuesIn(ops::all_records()), record_name);

}  // namespace
}  // namespace arete::test
