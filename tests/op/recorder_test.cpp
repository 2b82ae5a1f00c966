// Every record's samples pass through a recorder, forward and backward, and are replayed: the same
// bits as the first time, and as eager code for other values in the same memory.
#include <algorithm>
#include <cstring>
#include <functional>

#include "arete/autograd/engine.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/nn.h"
#include "arete/ops/norm.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/prim/recorder.h"
#include "tests/op/recording.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using ops::OpRecord;

// Lets replays take every number from memory, where it is what it was.
void put_numbers_in_memory(prim::Recorder& recorder) {
  for (size_t c = 0; c < recorder.calls().size(); ++c) {
    const std::vector<prim::Number> numbers = recorder.calls()[c]->numbers();
    for (size_t k = 0; k < numbers.size(); ++k) {
      const Tensor value =
          tensor_from_host(&numbers[k].value, numbers[k].dtype, {}, TensorOptions(test_device()));
      recorder.put_in_memory(c, k, ops::view_of(value));
    }
  }
  const int64_t still[] = {0, 0};
  recorder.put_random_state(
      ops::view_of(tensor_from_host(still, kInt64, {2}, TensorOptions(test_device()))));
}

void expect_bits(const std::vector<Tensor>& got, const std::vector<std::vector<std::byte>>& want,
                 const prim::Recorder& recorder) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k)
    EXPECT_EQ(bits(got[k]), want[k]) << "result " << k << "\n" << recorder.to_string();
}

class Recorded : public testing::TestWithParam<const OpRecord*> {};

TEST_P(Recorded, ReplaysBitForBit) {
  const OpRecord& op = *GetParam();
  for_each_recorded(
      op, [&](const ops::Sample& s, prim::Recorder& recorder, const std::vector<Tensor>& results) {
        const auto want = bits_of(results);
        poison(recorder);
        recorder.replay();
        prim::backend_for(test_device()).synchronize();
        expect_bits(results, want, recorder);

        put_numbers_in_memory(recorder);
        poison(recorder);
        recorder.replay();
        prim::backend_for(test_device()).synchronize();
        expect_bits(results, want, recorder);

        // Random numbers were drawn.
        if (has_sizes_by_value(recorder) || op.random) return;
        change(s.args);
        poison(recorder);
        recorder.replay();
        prim::backend_for(test_device()).synchronize();
        expect_bits(results, bits_of(forward_and_backward(op, s.args)), recorder);
      });
}

// ---- numbers that change

Tensor number(double value) {
  return tensor_from_host(&value, kFloat64, {}, TensorOptions(test_device()));
}

// A call with a number, recorded at one value and replayed at others.
void expect_follows(const std::function<Tensor(double)>& f) {
  prim::Recorder recorder;
  Tensor result;
  {
    const Recording recording(recorder);
    result = f(0.5);
  }
  size_t found = 0;
  const Tensor value = number(0.5);
  for (size_t c = 0; c < recorder.calls().size(); ++c) {
    const auto numbers = recorder.calls()[c]->numbers();
    for (size_t k = 0; k < numbers.size(); ++k)
      if (numbers[k].dtype == kFloat64 && numbers[k].value.f == 0.5) {
        recorder.put_in_memory(c, k, ops::view_of(value));
        ++found;
      }
  }
  EXPECT_GT(found, 0u) << recorder.to_string();
  for (const double v : {0.5, 0.25, 3.0, 1.75}) {
    Tensor(value).fill_(Scalar(v));
    recorder.replay();
    EXPECT_EQ(bits(result), bits(f(v))) << v << "\n" << recorder.to_string();
  }
}

TEST(RecordedNumbers, Change) {
  const Tensor x = rand({37, 129}, TensorOptions(kFloat32, test_device()));
  const Tensor y = rand({37, 129}, TensorOptions(kFloat32, test_device()));
  const Tensor half = x.to(kFloat16);
  expect_follows([&](double v) { return x * Scalar(v); });
  expect_follows([&](double v) { return half.transpose(0, 1) + Scalar(v); });
  expect_follows([&](double v) { return add(x, y, Scalar(v)); });
  expect_follows([&](double v) { return clamp(x.to(kFloat64), std::nullopt, Scalar(v)); });
  expect_follows([&](double v) { return layer_norm(x, {129}, {}, {}, v); });
  expect_follows([&](double v) { return linalg::vector_norm(x, 1).mul(Scalar(v)); });
}

TEST(RecordedNumbers, MoveRandomCalls) {
  const Tensor x = rand({1000}, TensorOptions(kFloat32, test_device()));
  prim::Recorder recorder;
  manual_seed(3);
  const auto draw = [&] {
    return std::vector<Tensor>{rand({1001}, TensorOptions(kFloat32, test_device())),
                               randn({7, 3}, TensorOptions(kFloat64, test_device())),
                               randint(0, 1000, {50}, TensorOptions(kInt64, test_device())),
                               dropout(x, 0.25, true)};
  };
  std::vector<Tensor> results;
  {
    const Recording recording(recorder);
    results = draw();
  }
  const Generator::State after = default_generator().state();
  const Tensor state = zeros({2}, TensorOptions(kInt64, test_device()));
  recorder.put_random_state(ops::view_of(state));
  const auto expect_draws = [&](uint64_t seed, uint64_t offset) {
    const int64_t moved[] = {int64_t(3 ^ seed), int64_t(offset)};
    Tensor(state).copy_(tensor_from_host(moved, kInt64, {2}, TensorOptions(kCPU)));
    recorder.replay();
    default_generator().set_state({seed, offset});
    expect_bits(results, bits_of(draw()), recorder);
  };
  expect_draws(3, 0);
  expect_draws(3, after.offset);  // what would have come next
  expect_draws(77, 12345);
  expect_draws(uint64_t(1) << 40, (uint64_t(1) << 32) - 5);  // the counter's low half overflows
}

INSTANTIATE_TEST_SUITE_P(All, Recorded, testing::ValuesIn(ops::all_records()), record_name);

}  // namespace
}  // namespace arete::test
