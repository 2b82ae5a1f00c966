// Texts as PyTorch prints the same values ("torch." being ours).
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "arete/core/modes.h"
#include "arete/core/print.h"
#include "arete/core/tensor.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Print, Scalars) {
  EXPECT_EQ(tensor(3.0).to_string(), "tensor(3.)");
  EXPECT_EQ(tensor(3).to_string(), "tensor(3)");
  EXPECT_EQ(tensor(true).to_string(), "tensor(True)");
  EXPECT_EQ(tensor(3.14159).to_string(), "tensor(3.1416)");
  EXPECT_EQ(tensor(0.0).to_string(), "tensor(0.)");
  EXPECT_EQ(tensor(-0.0).to_string(), "tensor(-0.)");
  EXPECT_EQ(tensor(1e-5).to_string(), "tensor(1.0000e-05)");
  EXPECT_EQ(tensor(123456789.0).to_string(), "tensor(1.2346e+08)");
  EXPECT_EQ(tensor(kInf).to_string(), "tensor(inf)");
  EXPECT_EQ(tensor(kNan).to_string(), "tensor(nan)");
}

TEST(Print, Vectors) {
  EXPECT_EQ(tensor({1.0, 2.0, 3.0}).to_string(), "tensor([1., 2., 3.])");
  EXPECT_EQ(tensor({1, -20, 300}).to_string(), "tensor([  1, -20, 300])");
  EXPECT_EQ(tensor({true, false}).to_string(), "tensor([ True, False])");
  EXPECT_EQ(tensor({0.5, -1.25, 10.0}).to_string(), "tensor([ 0.5000, -1.2500, 10.0000])");
  EXPECT_EQ(tensor({100.0, 0.0, -5.0}).to_string(), "tensor([100.,   0.,  -5.])");
}

TEST(Print, NotFinite) {
  EXPECT_EQ(tensor({kNan, 1.0}).to_string(), "tensor([nan, 1.])");
  EXPECT_EQ(tensor({kInf, -kInf, 1.5}).to_string(), "tensor([   inf,   -inf, 1.5000])");
  EXPECT_EQ(tensor({kNan, kInf}).to_string(), "tensor([nan, inf])");
  EXPECT_EQ(tensor({0.0, kNan}).to_string(), "tensor([0., nan])");
}

TEST(Print, ScientificWhenTheRangeIsWide) {
  EXPECT_EQ(tensor({1.0, 10000.0}).to_string(), "tensor([1.0000e+00, 1.0000e+04])");
  EXPECT_EQ(tensor({1.0, 1000.0}).to_string(), "tensor([   1., 1000.])");
  EXPECT_EQ(tensor({0.00001, 0.5}).to_string(), "tensor([1.0000e-05, 5.0000e-01])");
  EXPECT_EQ(tensor({0.001, 0.5}).to_string(), "tensor([0.0010, 0.5000])");
  EXPECT_EQ(tensor({1e-5, 0.0, -2e-5}).to_string(),
            "tensor([ 1.0000e-05,  0.0000e+00, -2.0000e-05])");
  EXPECT_EQ(tensor({2e8, 3e8}).to_string(), "tensor([2.0000e+08, 3.0000e+08])");
  EXPECT_EQ(tensor({1e-5, kNan}).to_string(), "tensor([1.0000e-05,        nan])");
}

TEST(Print, Matrices) {
  EXPECT_EQ(tensor({{1.0, 2.0}, {3.0, 4.0}}).to_string(),
            "tensor([[1., 2.],\n"
            "        [3., 4.]])");
  EXPECT_EQ(tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}).to_string(),
            "tensor([[[1, 2],\n"
            "         [3, 4]],\n"
            "\n"
            "        [[5, 6],\n"
            "         [7, 8]]])");
  EXPECT_EQ(zeros({2, 1, 1, 2}).to_string(),
            "tensor([[[[0., 0.]]],\n"
            "\n"
            "\n"
            "        [[[0., 0.]]]])");
}

TEST(Print, ViewsShowTheirElements) {
  EXPECT_EQ(arange(6).view({2, 3}).t().to_string(),
            "tensor([[0, 3],\n"
            "        [1, 4],\n"
            "        [2, 5]])");
  EXPECT_EQ(arange(6).slice(0, 1, std::nullopt, 2).to_string(), "tensor([1, 3, 5])");
  EXPECT_EQ(tensor({7}).expand({3}).to_string(), "tensor([7, 7, 7])");
}

TEST(Print, LongRowsBreak) {
  EXPECT_EQ(arange(30).to_string(),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
  EXPECT_EQ(full({12}, 0.5).to_string(),
            "tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000,\n"
            "        0.5000, 0.5000, 0.5000])");
}

TEST(Print, SummarisesBeyondThousand) {
  EXPECT_EQ(arange(1001).to_string(), "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  EXPECT_EQ(ones({100, 100}).to_string(),
            "tensor([[1., 1., 1.,  ..., 1., 1., 1.],\n"
            "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
            "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
            "        ...,\n"
            "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
            "        [1., 1., 1.,  ..., 1., 1., 1.],\n"
            "        [1., 1., 1.,  ..., 1., 1., 1.]])");
  // Small dimensions are shown whole; the format comes from what is shown.
  EXPECT_EQ(arange(2002).view({1001, 2}).to_string(),
            "tensor([[   0,    1],\n"
            "        [   2,    3],\n"
            "        [   4,    5],\n"
            "        ...,\n"
            "        [1996, 1997],\n"
            "        [1998, 1999],\n"
            "        [2000, 2001]])");
  EXPECT_EQ(arange(2002).view({2, 1001}).t().to_string(),
            "tensor([[   0, 1001],\n"
            "        [   1, 1002],\n"
            "        [   2, 1003],\n"
            "        ...,\n"
            "        [ 998, 1999],\n"
            "        [ 999, 2000],\n"
            "        [1000, 2001]])");
  EXPECT_EQ(arange(1000).to_string().find("..."), std::string::npos);
}

TEST(Print, SummarisedBlocks) {
  EXPECT_EQ(zeros({8, 2, 100}).to_string(),
            "tensor([[[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]],\n"
            "\n"
            "        [[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]],\n"
            "\n"
            "        [[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]],\n"
            "\n"
            "        ...,\n"
            "\n"
            "        [[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]],\n"
            "\n"
            "        [[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]],\n"
            "\n"
            "        [[0., 0., 0.,  ..., 0., 0., 0.],\n"
            "         [0., 0., 0.,  ..., 0., 0., 0.]]])");
}

TEST(Print, DtypesThatAreNotDefault) {
  EXPECT_EQ(tensor({1.0, 2.0}, kFloat64).to_string(), "tensor([1., 2.], dtype=arete.float64)");
  EXPECT_EQ(tensor({1, 2}, kInt32).to_string(), "tensor([1, 2], dtype=arete.int32)");
  EXPECT_EQ(tensor({1, 255}, kUInt8).to_string(), "tensor([  1, 255], dtype=arete.uint8)");
  EXPECT_EQ(tensor({1.5, -2.0}, kFloat16).to_string(),
            "tensor([ 1.5000, -2.0000], dtype=arete.float16)");
  EXPECT_EQ(tensor({0.1}, kBFloat16).to_string(), "tensor([0.1001], dtype=arete.bfloat16)");
}

TEST(Print, Complex) {
  EXPECT_EQ(tensor({std::complex<double>(1, -2), std::complex<double>(0.5, 3)}).to_string(),
            "tensor([1.0000-2.j, 0.5000+3.j])");
}

TEST(Print, Empty) {
  EXPECT_EQ(zeros({0}).to_string(), "tensor([])");
  EXPECT_EQ(zeros({0, 3}).to_string(), "tensor([], size=(0, 3))");
  EXPECT_EQ(zeros({0}, kInt64).to_string(), "tensor([], dtype=arete.int64)");
  EXPECT_EQ(zeros({2, 0}, kBool).to_string(), "tensor([], size=(2, 0), dtype=arete.bool)");
}

TEST(Print, Meta) {
  EXPECT_EQ(empty({2, 3}, kMeta).to_string(), "tensor(..., device='meta', size=(2, 3))");
  EXPECT_EQ(empty({2}, {kInt64, kMeta}).to_string(),
            "tensor(..., device='meta', size=(2,), dtype=arete.int64)");
  EXPECT_EQ(empty({}, kMeta).to_string(), "tensor(..., device='meta', size=())");
}

TEST(Print, Gradients) {
  const Tensor x = tensor({1.0, 2.0}, TensorOptions().requires_grad());
  EXPECT_EQ(x.to_string(), "tensor([1., 2.], requires_grad=True)");
  EXPECT_EQ(x.unsqueeze(0).to_string(), "tensor([[1., 2.]], grad_fn=<unsqueeze>)");
}

TEST(Print, LongSuffixesGoToTheNextLine) {
  EXPECT_EQ(full({9}, 0.5, kFloat64).to_string(),
            "tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000],\n"
            "       dtype=arete.float64)");
}

class PrintWith : public ::testing::Test {
 public:
  ~PrintWith() override { set_print_options({}); }
};

TEST_F(PrintWith, Precision) {
  set_print_options({.precision = 2});
  EXPECT_EQ(tensor({1.0, 3.14159, kNan}).to_string(), "tensor([1.00, 3.14,  nan])");
  EXPECT_EQ(tensor({1e-5}).to_string(), "tensor([1.00e-05])");
  EXPECT_EQ(tensor({1.0, 2.0}).to_string(), "tensor([1., 2.])");
}

TEST_F(PrintWith, ScientificOrNot) {
  set_print_options({.scientific = true});
  EXPECT_EQ(tensor({1.0, 0.0}).to_string(), "tensor([1.0000e+00, 0.0000e+00])");
  set_print_options({.precision = 6, .scientific = false});
  EXPECT_EQ(tensor({1e-5, 10.5}).to_string(), "tensor([ 0.000010, 10.500000])");
}

TEST_F(PrintWith, CornersOfLargeTensors) {
  set_print_options({.threshold = 5, .edge_items = 2});
  EXPECT_EQ(arange(10).to_string(), "tensor([0, 1,  ..., 8, 9])");
  EXPECT_EQ(arange(5).to_string(), "tensor([0, 1, 2, 3, 4])");
  EXPECT_EQ(arange(8).reshape({2, 4}).to_string(), "tensor([[0, 1, 2, 3],\n        [4, 5, 6, 7]])");
  set_print_options({.threshold = 0, .edge_items = 1});
  EXPECT_EQ(arange(3).to_string(), "tensor([0,  ..., 2])");
  set_print_options({.threshold = 0, .edge_items = std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(arange(3).to_string(), "tensor([0, 1, 2])");
}

TEST_F(PrintWith, Columns) {
  set_print_options({.line_width = 20});
  EXPECT_EQ(arange(6).to_string(), "tensor([0, 1, 2, 3,\n        4, 5])");
  set_print_options({.line_width = 1});
  EXPECT_EQ(arange(2).to_string(), "tensor([0,\n        1])");
}

TEST_F(PrintWith, WrongOptionsChangeNothing) {
  for (const PrintOptions& wrong : {PrintOptions{.precision = -1}, PrintOptions{.threshold = -1},
                                    PrintOptions{.edge_items = 0}, PrintOptions{.line_width = 0}})
    EXPECT_THROW(set_print_options(wrong), ValueError);
  EXPECT_EQ(print_options().precision, 4);
}

TEST(Print, Undefined) { EXPECT_EQ(Tensor().to_string(), "tensor(undefined)"); }

TEST(Print, NotWhileCapturing) {
  const Tensor x = tensor({1.0});
  const ModesGuard guard;
  modes().word |= Modes::kCapture;
  EXPECT_THROW(x.to_string(), ValueError);
}

}  // namespace
}  // namespace arete
