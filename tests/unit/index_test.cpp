// Index expressions: reading, writing, their gradients and their errors.
#include <gtest/gtest.h>

#include <numeric>

#include "arete/autograd/gradcheck.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

using Values = std::vector<double>;

// 0, 1, 2, ... in row-major order.
Tensor counted(IntList sizes, DType t = kFloat64) {
  return arange(Scalar(numel_of(sizes)), t).reshape(sizes);
}
Tensor longs(const std::vector<int64_t>& v) { return tensor(v); }
Tensor mask_of(const std::vector<bool>& v, IntList sizes) { return tensor(v).reshape(sizes); }
Shape sizes_of(const Tensor& t) { return Shape(t.sizes()); }

using test::expect_error;

TEST(Index, NumbersAndSlicesAreViews) {
  const Tensor x = counted({3, 4, 5});
  const Tensor a = x.index({1, Slice(1, 4, 2), -1});
  EXPECT_EQ(sizes_of(a), (Shape{2}));
  EXPECT_EQ(a.to_vector<double>(), (Values{29, 39}));
  EXPECT_EQ(a.storage(), x.storage());
  EXPECT_EQ(sizes_of(x.index({kEllipsis, 0})), (Shape{3, 4}));
  EXPECT_EQ(sizes_of(x.index({0, kEllipsis, 0})), (Shape{4}));
  EXPECT_EQ(sizes_of(x.index({kNewAxis, 0, kEllipsis, kNewAxis})), (Shape{1, 4, 5, 1}));
  EXPECT_EQ(x[2].index({3, 4}).item<double>(), 59);
  EXPECT_EQ(x[-1][0].to_vector<double>(), (Values{40, 41, 42, 43, 44}));
}

TEST(Index, OneIndexTensor) {
  const Tensor x = counted({3, 4});
  EXPECT_EQ(x.index({longs({2, 0, -1})}).to_vector<double>(),
            (Values{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(x.index({Slice(), longs({3, 1})}).to_vector<double>(), (Values{3, 1, 7, 5, 11, 9}));
  const Tensor square = x.index({Slice(), longs({3, 1, 0, 0}).reshape({2, 2})});
  EXPECT_EQ(sizes_of(square), (Shape{3, 2, 2}));
  EXPECT_EQ(square[1].to_vector<double>(), (Values{7, 5, 4, 4}));
  EXPECT_EQ(x.index({longs({1}).to(kInt32)}).to_vector<double>(), (Values{4, 5, 6, 7}));
  // A 0-d index tensor is a number.
  EXPECT_EQ(sizes_of(x.index({longs({2}).reshape({})})), (Shape{4}));
  EXPECT_EQ(sizes_of(x.index({longs({})})), (Shape{0, 4}));
}

// Element by element, with the rule for the order of dimensions spelt out.
TEST(Index, SeveralIndexTensors) {
  const Tensor x = counted({2, 3, 4, 5});
  const std::vector<int64_t> a{1, 0, 1}, b{3, 2, 0};
  // Neighbours: the index stands where they stood.
  const Tensor near = x.index({Slice(), longs({2, 0, 1}), longs(b)});
  EXPECT_EQ(sizes_of(near), (Shape{2, 3, 5}));
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t j = 0; j < 5; ++j)
        EXPECT_EQ(near.index({i, k, j}).item<double>(),
                  double(((i * 3 + (k + 2) % 3) * 4 + b[size_t(k)]) * 5 + j));
  // Apart: it comes first.
  const Tensor apart = x.index({longs(a), Slice(), longs(b)});
  EXPECT_EQ(sizes_of(apart), (Shape{3, 3, 5}));
  for (int64_t k = 0; k < 3; ++k)
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(apart.index({k, i, 0}).item<double>(),
                double(((a[size_t(k)] * 3 + i) * 4 + b[size_t(k)]) * 5));
  // Broadcasting among them, and a new axis between counts as apart.
  EXPECT_EQ(sizes_of(x.index({longs(a).reshape({3, 1}), longs({0, 2})})), (Shape{3, 2, 4, 5}));
  EXPECT_EQ(sizes_of(x.index({Slice(), longs({1, 2}), kNewAxis, longs({0, 2})})),
            (Shape{2, 2, 1, 5}));
  // A number is applied before, so its neighbour is the slice.
  EXPECT_EQ(sizes_of(x.index({0, Slice(), longs(b)})), (Shape{3, 3, 5}));
}

TEST(Index, Masks) {
  const Tensor x = counted({2, 3});
  const Tensor all = mask_of({true, false, true, false, false, true}, {2, 3});
  EXPECT_EQ(x.index({all}).to_vector<double>(), (Values{0, 2, 5}));
  EXPECT_EQ(x.index({x > 3}).to_vector<double>(), (Values{4, 5}));
  EXPECT_EQ(x.index({Slice(), mask_of({true, false, true}, {3})}).to_vector<double>(),
            (Values{0, 2, 3, 5}));
  EXPECT_EQ(x.t().index({all.t()}).to_vector<double>(), (Values{0, 2, 5}));
  const Tensor y = counted({2, 3, 4});
  EXPECT_EQ(sizes_of(y.index({all})), (Shape{3, 4}));
  EXPECT_EQ(y.permute({2, 0, 1}).index({longs({0, 1, 3}), all}).to_vector<double>(),
            (Values{0, 9, 23}));
  EXPECT_EQ(sizes_of(x.index({mask_of({true}, {})})), (Shape{1, 2, 3}));
  EXPECT_EQ(sizes_of(x.index({mask_of({false}, {})})), (Shape{0, 2, 3}));
  EXPECT_EQ(nonzero(all).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0, 2, 1, 2}));
}

TEST(Index, Writes) {
  Tensor x = zeros({3, 4}, kFloat64);
  x.index_put_({1}, Scalar(7));
  x.index_put_({Slice(), -1}, tensor({1, 2, 3}));
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 0, 0, 1, 7, 7, 7, 2, 0, 0, 0, 3}));
  x.index_put_({x == 7}, Scalar(-1));
  EXPECT_EQ(x[1].to_vector<double>(), (Values{-1, -1, -1, 2}));
  x.index_put_({longs({0, 2}), longs({0, 1})}, tensor({5.0, 6.0}, kFloat64));
  EXPECT_EQ(x.index({0, 0}).item<double>(), 5);
  EXPECT_EQ(x.index({2, 1}).item<double>(), 6);
  x.zero_();
  x.index_put_({longs({1, 1, 0})}, ones({3, 4}, kFloat64), true);
  EXPECT_EQ(x.select(1, 2).to_vector<double>(), (Values{1, 2, 0}));
  // Dimensions apart, through a view whose memory cannot be merged, with a broadcast value.
  Tensor y = zeros({2, 3, 4}, kFloat64);
  y.index_put_({longs({0, 1}), Slice(), longs({3, 2})},
               tensor({{1}, {2}}, kFloat64).expand({2, 3}));
  EXPECT_EQ(y.index({0, Slice(), 3}).to_vector<double>(), (Values{1, 1, 1}));
  EXPECT_EQ(y.index({1, Slice(), 2}).to_vector<double>(), (Values{2, 2, 2}));
  EXPECT_EQ(y.sum().item<double>(), 9);
  expect_error(ErrorKind::index, {"index 4 is out of bounds for dimension 2 with size 4"}, [&] {
    y.index_put_({longs({0, 1}), Slice(), longs({3, 4})}, Scalar(1));
  });
  const Tensor z = counted({4});
  EXPECT_EQ(index_put(z, {longs({0})}, tensor({9})).to_vector<double>(), (Values{9, 1, 2, 3}));
  EXPECT_EQ(z[0].item<double>(), 0);
}

// Writing through an expression and reading it again gives what was written.
TEST(Index, ReadsWhatItWrote) {
  const std::vector<std::vector<Index>> expressions{
      {longs({2, 0})},
      {Slice(), longs({1, 2}), longs({3, 0})},
      {longs({1, 0}), Slice(), longs({3, 0})},
      {Slice(0, 2), longs({0, 2}).reshape({2, 1}), longs({1, 3, 2})},
      {kEllipsis, longs({2, 3})},
      {mask_of({true, false, true}, {3}), 1},
      {kNewAxis, longs({0, 1}), kEllipsis, longs({1, 1})}};
  for (size_t k = 0; k < expressions.size(); ++k)
    for (bool strided : {false, true}) {
      SCOPED_TRACE("expression " + std::to_string(k));
      Tensor x = strided ? counted({4, 3, 3}).permute({1, 2, 0}) : counted({3, 3, 4});
      const Tensor values = counted(x.index(expressions[k]).sizes()).add(Scalar(100));
      x.index_put_(expressions[k], values);
      EXPECT_EQ(x.index(expressions[k]).to_vector<double>(), values.to_vector<double>());
    }
}

TEST(Index, Gradients) {
  const auto x = [] { return (counted({3, 3, 4}) * 0.1 + 0.3).requires_grad_(); };
  const std::vector<std::vector<Index>> expressions{{1, Slice(0, 2)},
                                                    {longs({2, 0, 2})},
                                                    {Slice(), longs({1, 2}), longs({3, 3})},
                                                    {longs({1, 1}), Slice(), longs({3, 3})},
                                                    {mask_of({true, false, true}, {3}), kNewAxis}};
  for (const auto& e : expressions) {
    EXPECT_EQ(autograd::gradcheck(
                  [&](const std::vector<Tensor>& in) {
                    return std::vector<Tensor>{in[0].index(e) * in[0].index(e)};
                  },
                  {x()}),
              "");
    const Tensor v = (counted(x().index(e).sizes()) * 0.2 - 0.7).requires_grad_();
    for (bool accumulate : {false, true}) {
      if (!accumulate && &e != &expressions[0] && &e != &expressions[4])
        continue;  // repeated places
      EXPECT_EQ(autograd::gradcheck(
                    [&](const std::vector<Tensor>& in) {
                      const Tensor y = index_put(in[0] * 2, e, in[1], accumulate);
                      return std::vector<Tensor>{y * y};
                    },
                    {x(), v}),
                "");
    }
  }
}

TEST(Index, Errors) {
  const Tensor x = counted({3, 4});
  expect_error(ErrorKind::index, {"index 5 is out of bounds for dimension 0 with size 3"},
               [&] { x.index({5}); });
  expect_error(ErrorKind::index, {"index -5 is out of bounds for dimension 1 with size 4"}, [&] {
    x.index({0, -5});
  });
  expect_error(ErrorKind::index, {"index 5 is out of bounds for dimension 0 with size 3"},
               [&] { x.index({longs({5})}); });
  expect_error(ErrorKind::index, {"index 4 is out of bounds for dimension 1 with size 4"}, [&] {
    x.index({longs({0}), longs({4})});
  });
  expect_error(ErrorKind::index, {"too many indices for tensor of dimension 2"}, [&] {
    x.index({0, 0, 0});
  });
  expect_error(ErrorKind::index,
               {"The shape of the mask [2] at index 0 does not match the shape of the indexed "
                "tensor [3, 4] at index 0"},
               [&] {
                 x.index({mask_of({true, false}, {2})});
               });
  expect_error(ErrorKind::index,
               {"tensors used as indices must be long, int, byte or bool tensors"},
               [&] { x.index({x}); });
  expect_error(
      ErrorKind::index,
      {"shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]"},
      [&] {
        x.index({longs({0, 1}), longs({0, 1, 2})});
      });
  expect_error(ErrorKind::index, {"an index can only have a single ellipsis"}, [&] {
    x.index({kEllipsis, kEllipsis});
  });
  expect_error(ErrorKind::index, {"invalid index of a 0-dim tensor"}, [&] { x[0][0][0]; });
  Tensor y = x.clone();
  expect_error(ErrorKind::value,
               {"shape mismatch: value tensor of shape [3] cannot be broadcast to indexing result "
                "of shape [4]"},
               [&] {
                 y.index_put_({0}, tensor({1, 2, 3}));
               });
  expect_error(ErrorKind::autograd, {"a leaf Variable that requires grad"}, [&] {
    Tensor leaf = zeros({3}, kFloat64).requires_grad_();
    leaf.index_put_({longs({0})}, Scalar(1));
  });
}

TEST(ScatterReduce, Modes) {
  const Tensor x = tensor({1, 2, 3}), i = longs({0, 0, 2}), s = tensor({4, 5, 0});
  using L = std::vector<int64_t>;
  // In place too, also where x itself is what meets.
  const ops::OpRecord& op = *ops::find_record("scatter_reduce");
  const Tensor onto = longs({1, 2, 1});
  const auto run = [&](const char* mode, bool self) {
    const L r = scatter_reduce(x, 0, i, s, mode, self).to_vector<int64_t>();
    Tensor y = x.clone(), z = x.clone();
    ops::call_in_place(y, op, {y, int64_t(0), i, s, mode, self});
    EXPECT_EQ(y.to_vector<int64_t>(), r);
    ops::call_in_place(z, op, {z, int64_t(0), onto, z, mode, self});
    EXPECT_EQ(z.to_vector<int64_t>(),
              scatter_reduce(x, 0, onto, x, mode, self).to_vector<int64_t>());
    return r;
  };
  EXPECT_EQ(run("sum", true), (L{10, 2, 3}));
  EXPECT_EQ(run("sum", false), (L{9, 2, 0}));
  EXPECT_EQ(run("prod", true), (L{20, 2, 0}));
  EXPECT_EQ(run("prod", false), (L{20, 2, 0}));
  EXPECT_EQ(run("amax", true), (L{5, 2, 3}));
  EXPECT_EQ(run("amax", false), (L{5, 2, 0}));
  EXPECT_EQ(run("amin", true), (L{1, 2, 0}));
  EXPECT_EQ(run("amin", false), (L{4, 2, 0}));
  EXPECT_EQ(run("mean", true), (L{3, 2, 1}));
  EXPECT_EQ(run("mean", false), (L{4, 2, 0}));
  expect_error(ErrorKind::value, {"reduce argument must be either sum, prod, mean, amax or amin"},
               [&] { run("max", true); });
}

// In place: one write, also where the tensor itself is what meets or says where.
TEST(ScatterReduce, OneWriteInPlace) {
  const Tensor x = longs({1, 2, 0}), i = longs({0, 0, 2}), s = longs({4, 5, 3});
  for (const char* name : {"scatter_reduce", "index_reduce"})
    for (const char* mode : {"prod", "mean", "amax", "amin"})
      for (const bool self : {true, false}) {
        SCOPED_TRACE(std::string(name) + " " + mode);
        const ops::OpRecord& op = *ops::find_record(name);
        const auto check = [&](const Tensor& index, const Tensor& src) {
          Tensor y = x.clone();
          const auto own = [&](const Tensor& t) { return t.impl() == x.impl() ? y : t; };
          const Tensor expected = ops::call(op, {x, int64_t(0), index, src, mode, self});
          const uint64_t before = y.version();
          ops::call_in_place(y, op, {y, int64_t(0), own(index), own(src), mode, self});
          EXPECT_EQ(y.version(), before + 1);
          EXPECT_EQ(y.to_vector<int64_t>(), expected.to_vector<int64_t>());
        };
        check(i, s);
        check(i, x);
        check(x, s);
        check(x, x);
      }
}

TEST(ScatterReduce, InPlaceOnAViewWithHistory) {
  const Tensor i = longs({1, 1, 0}), s = tensor({3.0, 5.0, -1.0}, kFloat64);
  for (const char* name : {"scatter_reduce", "index_reduce"})
    for (const char* mode : {"prod", "mean", "amax", "amin"})
      for (const bool self : {true, false}) {
        SCOPED_TRACE(std::string(name) + " " + mode);
        const ops::OpRecord& op = *ops::find_record(name);
        Tensor x = counted({4}).requires_grad_(), src = s.clone().requires_grad_();
        const Tensor y = x.mul(Scalar(2));
        Tensor part = y.narrow(0, 1, 2);
        const uint64_t before = y.version();
        ops::call_in_place(part, op, {part, int64_t(0), i, src, mode, self});
        EXPECT_EQ(y.version(), before + 1);
        y.mul(y).sum().backward();
        // The same out of place.
        Tensor x2 = counted({4}).requires_grad_(), src2 = s.clone().requires_grad_();
        const Tensor y2 = x2.mul(Scalar(2));
        const Tensor r = ops::call(op, {y2.narrow(0, 1, 2), int64_t(0), i, src2, mode, self});
        const Tensor z = cat({y2.narrow(0, 0, 1), r, y2.narrow(0, 3, 1)}, 0);
        z.mul(z).sum().backward();
        EXPECT_EQ(y.to_vector<double>(), z.to_vector<double>());
        EXPECT_EQ(x.grad().to_vector<double>(), x2.grad().to_vector<double>());
        EXPECT_EQ(src.grad().to_vector<double>(), src2.grad().to_vector<double>());
      }
}

TEST(ScatterReduce, InPlaceForEachElementOfABatch) {
  const Tensor x = counted({2, 3}), i = longs({0, 0, 2, 1, 0, 1}).reshape({2, 3}), s = x.add(x);
  for (const char* name : {"scatter_reduce", "index_reduce"}) {
    const ops::OpRecord& op = *ops::find_record(name);
    const auto one = [&](const std::vector<Tensor>& v) {
      Tensor y = v[0].clone();
      ops::call_in_place(y, op, {y, int64_t(0), v[1], v[2], "mean", false});
      return std::vector{y};
    };
    const Tensor r = vmap(one, {x, i, s})[0];
    for (int64_t k = 0; k < 2; ++k)
      EXPECT_EQ(r.select(0, k).to_vector<double>(),
                one({x.select(0, k), i.select(0, k), s.select(0, k)})[0].to_vector<double>());
  }
}

// Sums and numbers of small integers wrap around alike.
TEST(ScatterReduce, MeansOfMoreThanTheTypeHolds) {
  for (const char* name : {"scatter_reduce", "index_reduce"})
    for (const auto& [n, self, mean] :
         {std::tuple{200, false, 1}, {200, true, 1}, {256, false, 0}, {255, true, 0}}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(n));
      const Tensor x = ones({2}, kInt8),
                   r = ops::call(*ops::find_record(name), {x, int64_t(0), zeros({n}, kInt64),
                                                           ones({n}, kInt8), "mean", self});
      EXPECT_EQ(r.to_vector<int8_t>(), (std::vector<int8_t>{int8_t(mean), 1}));
    }
}

TEST(Index, RecordsTakeMissingIndices) {
  const ops::OpRecord& read = *ops::find_record("index");
  const ops::OpRecord& write = *ops::find_record("index_put");
  const Tensor x = counted({2, 3, 2}), rows = longs({1, 0}), columns = longs({2, -1});
  const std::vector<Tensor> apart{rows, Tensor(), longs({0, 1})}, last{Tensor(), columns};
  EXPECT_EQ(ops::call(read, {x, apart}).to_vector<double>(), (Values{6, 8, 10, 1, 3, 5}));
  EXPECT_EQ(ops::call(read, {x, last}).to_vector<double>(), (Values{4, 5, 4, 5, 10, 11, 10, 11}));
  const Tensor sum = ops::call(write, {x, last, ones({}, kFloat64), true});
  EXPECT_EQ(sum.sub(x).to_vector<double>(), (Values{0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 2, 2}));
  Tensor y = x.clone();
  ops::call_in_place(y, write, {y, apart, zeros({}, kFloat64), false});
  EXPECT_EQ(y.to_vector<double>(), (Values{0, 0, 2, 0, 4, 0, 0, 7, 0, 9, 0, 11}));
}

TEST(Index, CompositionsHaveInPlaceForms) {
  Tensor x = counted({4}).requires_grad_();
  Tensor y = x.mul(Scalar(2));
  const Tensor index = longs({1, 1, 3}), src = tensor({5.0, 4.0, -1.0}, kFloat64);
  ops::call_in_place(y, *ops::find_record("scatter_reduce"),
                     {y, int64_t(0), index, src, "prod", true});
  EXPECT_EQ(y.to_vector<double>(), (Values{0, 40, 4, -6}));
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 40, 2, -2}));
  // A leaf is refused before anything is computed.
  expect_error(ErrorKind::autograd, {"a leaf"}, [&] {
    ops::call_in_place(x, *ops::find_record("put"), {x, index, src, false});
  });
}

}  // namespace
}  // namespace arete
