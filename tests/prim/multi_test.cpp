// What works on many tensors, or on random numbers, at once: multi_pointwise with an operand shared
// by all elements, multi_reduce, dropout; each against plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "arete/prim/philox.h"
#include "tests/prim/program_reference.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Literal;
using expr::Type;
using expr::Value;
using prim::View;

const Shape kSizes[] = {{1}, {7, 3}, {1000}, {70000}, {4, 5, 6}, {3, 40000}};

// As many sizes of row-major tensors, and some that are dense in other orders.
std::vector<Layout> layouts() {
  std::vector<Layout> all(std::begin(kSizes), std::end(kSizes));
  all.emplace_back(Shape{4, 5, 6, 7}, Shape{210, 1, 35, 5}, 0);  // channels last
  all.emplace_back(Shape{300, 40}, Shape{1, 300}, 0);
  return all;
}

class MultiPointwise : public ::testing::TestWithParam<bool> {};

// Expanded to the tensor's sizes, or as a view of rank 0.
TEST_P(MultiPointwise, AnOperandForAllElements) {
  for (DType t : {kFloat32, kBFloat16, kFloat64}) {
    const DType types[] = {t, kFloat32}, outs[] = {t};
    const Type params[] = {expr::compute_type(t)};
    const expr::ProgramPtr program = expr::trace(
        [](std::span<const Value> v) {
          return std::vector{v[0] * expr::cast(v[1], v[0].type()) + v[2]};
        },
        types, params, outs);
    std::mt19937_64 rng(5);
    std::vector<GuardedBuffer> in, expected;
    GuardedBuffer factor(kFloat32, Layout(Shape{1}));
    factor.set(Shape{0}, 0.75);
    std::vector<Layout> expanded;
    for (const Layout& l : layouts()) {
      const Shape& s = l.sizes;
      in.emplace_back(t, l);
      fill_values(in.back(), rng);
      expected.push_back(in.back());
      for (IndexWalk w(s); w; ++w) expected.back().set(*w, in.back().get(*w) * 0.75 + 0.5);
      expanded.emplace_back(s, Shape(s.size(), 0), 0);
    }
    std::vector<View> inputs, outputs;
    for (size_t k = 0; k < in.size(); ++k) {
      View f = factor.view();
      f.sizes = GetParam() ? IntList(expanded[k].sizes) : IntList();
      f.strides = GetParam() ? IntList(expanded[k].strides) : IntList();
      inputs.push_back(in[k].view());
      inputs.push_back(f);
      outputs.push_back(in[k].view());
    }
    const Literal half{.f = 0.5};
    backend_under_test().multi_pointwise(
        {program.get(), int64_t(in.size()), inputs, outputs, {&half, 1}});
    for (size_t k = 0; k < in.size(); ++k) {
      EXPECT_TRUE(in[k].guards_intact());
      for (IndexWalk w(in[k].layout().sizes); w; ++w)
        ASSERT_EQ(mismatch(in[k].get(*w), expected[k].get(*w), t, 2, 4), "") << k;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Views, MultiPointwise, ::testing::Bool());

// Copies of many pieces: a program that changes nothing, from and to parts in any order with gaps.
TEST(MultiPointwise, PiecesAreCopied) {
  std::mt19937_64 rng(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  for (DType t : {kFloat32, kBFloat16, kFloat64, kUInt8})
    for (int round = 0; round < 12; ++round) {
      const int64_t count = pick(2, 40);
      std::vector<GuardedBuffer> in, out, expected;
      std::vector<Layout> from, to;
      for (int64_t k = 0; k < count; ++k) {
        const auto rank = size_t(pick(1, 5));
        Shape sizes;
        for (size_t d = 0; d < rank; ++d) sizes.push_back(pick(1, rank < 3 ? 70 : 6));
        const auto side = [&] {
          Layout l(sizes);
          int64_t stride = pick(0, 3) ? 1 : 2;
          std::vector<size_t> order(rank);
          std::iota(order.begin(), order.end(), size_t(0));
          if (pick(0, 2) == 0) std::shuffle(order.begin(), order.end(), rng);
          for (size_t d = rank; d-- > 0;) {
            l.strides[order[d]] = stride;
            stride *= sizes[order[d]] + (pick(0, 2) ? 0 : pick(1, 4));
          }
          return l;
        };
        in.emplace_back(t, side());
        fill_values(in.back(), rng);
        out.emplace_back(t, side());
        fill_values(out.back(), rng);
        expected.push_back(out.back());
        for (IndexWalk w(sizes); w; ++w) expected.back().set(*w, in.back().get(*w));
      }
      std::vector<View> inputs, outputs;
      for (size_t k = 0; k < in.size(); ++k) {
        inputs.push_back(in[k].view());
        outputs.push_back(out[k].view());
      }
      backend_under_test().multi_pointwise(
          {expr::conversion(t, t).get(), count, inputs, outputs, {}});
      for (size_t k = 0; k < in.size(); ++k)
        for (IndexWalk w(in[k].layout().sizes); w; ++w)
          ASSERT_EQ(out[k].get(*w), expected[k].get(*w)) << name_of(t) << " piece " << k;
    }
}

TEST(MultiReduce, OneNumberForEachTensor) {
  for (DType t : {kFloat32, kFloat16, kFloat64})
    for (prim::Monoid monoid : {prim::Monoid::sum, prim::Monoid::max}) {
      const DType work = t == kFloat64 ? kFloat64 : kFloat32;
      const DType types[] = {t}, outs[] = {work};
      const expr::ProgramPtr square = expr::trace(
          [&](std::span<const Value> v) {
            const Value x = expr::cast(v[0], expr::compute_type(work));
            return std::vector{x * x};
          },
          types, {}, outs);
      std::mt19937_64 rng(6);
      // More tensors than one launch of any backend takes.
      std::vector<GuardedBuffer> in;
      std::vector<View> inputs;
      for (size_t k = 0; k < 300; ++k) {
        const Shape& s = kSizes[k % std::size(kSizes) == 5 && k > 5 ? 0 : k % std::size(kSizes)];
        in.emplace_back(t, Layout(k % 50 == 3 && k > 3 ? Shape{9} : s));
        fill_values(in.back(), rng);
      }
      for (const GuardedBuffer& b : in) inputs.push_back(b.view());
      GuardedBuffer out(work, Layout(Shape{int64_t(in.size())}));
      backend_under_test().multi_reduce({monoid, square.get(), inputs, out.view(), {}});
      EXPECT_TRUE(out.guards_intact());
      for (size_t k = 0; k < in.size(); ++k) {
        double want = 0;
        for (IndexWalk w(in[k].layout().sizes); w; ++w) {
          const double x = in[k].get(*w);
          want = monoid == prim::Monoid::sum ? want + x * x : std::max(want, x * x);
        }
        ASSERT_EQ(
            mismatch(out.get(Shape{int64_t(k)}), want, work, numel_of(in[k].layout().sizes), want),
            "")
            << k;
      }
    }
}

TEST(Dropout, DrawsTheBernoulliNumbersOfItsStream) {
  std::mt19937_64 rng(7);
  for (DType t : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for (const Layout& l : {Layout(Shape{1}), Layout(Shape{5, 3}), Layout(Shape{100001}),
                            Layout(Shape{40, 50}, Shape{1, 40}, 0)})
      for (double keep : {0.9, 0.25, 1.0}) {
        GuardedBuffer in(t, l), out(t, l);
        fill_values(in, rng);
        const uint64_t seed = rng(), offset = (uint64_t(1) << 32) - 3;
        backend_under_test().dropout({in.view(), out.view(), seed, offset, keep, 1 / keep});
        EXPECT_TRUE(out.guards_intact());
        uint64_t i = 0;
        for (IndexWalk w(l.sizes); w; ++w, ++i) {
          const uint32_t lane = prim::philox_block(seed, offset + i / 4).lane[i % 4];
          const double want = double(lane) * 0x1p-32 < keep ? in.get(*w) / keep : 0;
          ASSERT_EQ(mismatch(out.get(*w), want, t, 1, 12), "") << i;
        }
        backend_under_test().dropout({in.view(), in.view(), seed, offset, keep, 1 / keep});
        EXPECT_TRUE(in.guards_intact());
        for (IndexWalk w(l.sizes); w; ++w) ASSERT_EQ(in.get(*w), out.get(*w)) << "in place";
      }
}

}  // namespace
}  // namespace arete::test
