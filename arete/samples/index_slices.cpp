// Samples, references and errors of the records in ops/index_slices.cpp.
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/index_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Tensor> select_reference(const Call& c) {
  const Tensor &x = c.tensor(0), &index = c.tensor(2);
  const std::vector<double> k = values_of(index);
  const int dim = normalize_dim(c.integer(1), int(x.dim()), "index_select");
  Shape sizes(x.sizes());
  if (sizes.empty()) return {from_values(values_of(x), {})};
  sizes[size_t(dim)] = index.numel();
  return {build_tensor(sizes, [&](const Shape& i) {
    return at(x, at_dim(i, dim, wrapped(k[size_t(i[size_t(dim)])], x.size(dim))));
  })};
}

const Attached index_select_op =
    attach("index_select")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({4, 3}), 0, m.make_index({5}, 4)}, "rows"},
              {{m.make({4, 3}), -1, m.make_index({2}, 3)}, "columns"},
              {{m.make_strided({2, 3, 2}), 1, m.make_index({4}, 3)}, "strided"},
              {{m.make_strided({3, 2}), 0, m.make_index({2}, 3).sub(Scalar(3))}, "from the end"},
              {{m.make({5}), 0, m.make_index({}, 5)}, "0-d index"},
              {{m.make({3, 2}), 0, m.make_index({0}, 3)}, "nothing"},
              {{m.make({3, 0}), 0, m.make_index({2}, 3)}, "empty rows"},
              {{m.make({}), 0, m.make_index({1}, 1)}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), 0, m.make_index({2, 2}, 3)},
                   ErrorKind::index,
                   "index_select(): Index is supposed to be a vector"},
                  {{m.make({3}), 0, m.make_mask({3})},
                   ErrorKind::type,
                   "Expected dtype int32/int64 for index"},
                  {{m.make({3}), 0, m.make_index({1}, 1).add(Scalar(3))},
                   ErrorKind::index,
                   "index 3 is out of bounds for dimension 0 with size 3"}};
        })
        .reference(select_reference);
const Attached ordered_select_op =
    attach("ordered_select")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto last = [&](IntList sizes) {
            return m.make(sizes).contiguous(MemoryFormat::channels_last);
          };
          const Tensor different =
              arange(Scalar(3), Scalar(0), Scalar(-1), TensorOptions(kInt64, m.device));
          return {{{last({4, 3, 2, 2}), 0, m.make_index({5}, 4), false}, "rows"},
                  {{last({2, 3, 2, 4}), 3, m.make_index({3}, 4), false}, "columns"},
                  {{last({2, 3, 2, 1, 2}), 1, m.make_index({2}, 3), false}, "channels"},
                  {{m.make({2, 3}), 1, m.make_index({2}, 3), false}, "matrix"},
                  {{last({4, 3, 2, 2}), 0, different, true}, "different rows"},
                  {{m.make({2, 5}), 1, different, true}, "different columns"},
                  {{m.make({4}), 0, different, true}, "different elements"}};
        })
        .reference(select_reference);

std::vector<Sample> slices_samples(SampleMaker& m, bool repeats) {
  const auto pick = [&](int64_t n, int64_t high) {
    return repeats ? m.make_index({n}, high)
                   : arange(Scalar(high - n), Scalar(high), TensorOptions(kInt64, m.device));
  };
  return {{{m.make({4, 3}), 0, pick(3, 4), m.make({3, 3})}, "rows"},
          {{m.make({2, 3}), -1, pick(2, 3), m.make_strided({2, 2})}, "columns"},
          {{m.make_strided({2, 3, 2}), 1, pick(2, 3), m.make({2, 2, 2})}, "strided"},
          {{m.make({5}), 0, pick(1, 2).sub(Scalar(5)), m.make({1})}, "from the end"},
          {{m.make({}), 0, m.make_index({1}, 1), m.make({})}, "0-d"},
          {{m.make({3}), 0, m.make_index({}, 3), m.make({})}, "index and source 0-d"},
          {{m.make({3, 2}), 0, m.make_index({0}, 3), m.make({0, 2})}, "nothing"}};
}

std::vector<ErrorSample> slices_errors(SampleMaker& m) {
  return {{{m.make({3, 2}), 0, m.make_index({2}, 3), m.make({1, 2})},
           ErrorKind::value,
           "Number of indices should be equal to source.size(dim)"},
          {{m.make({3}), 0, m.make_index({2, 1}, 3), m.make({2})},
           ErrorKind::index,
           "Index is supposed to be a vector"},
          {{m.make({3}), 0, m.make_index({1}, 1).add(Scalar(3)), m.make({1})},
           ErrorKind::index,
           "index 3 is out of bounds for dimension 0 with size 3"}};
}

template <class F>
std::vector<Tensor> slices_reference(const Call& c, F f) {
  const Tensor self = at_least_1d(c.tensor(0)), src = at_least_1d(c.tensor(3));
  const std::vector<double> k = values_of(c.tensor(2));
  const int dim = normalize_dim(c.integer(1), int(self.dim()), "index_add");
  std::vector<double> v = values_of(self);
  for_each_index(src.sizes(), [&](const Shape& i) {
    const Shape to = at_dim(i, dim, wrapped(k[size_t(i[size_t(dim)])], self.size(dim)));
    double& old = v[size_t(flat_position(self.sizes(), to))];
    old = f(old, at(src, i));
  });
  return {from_values(v, c.tensor(0).sizes())};
}

Scalar alpha_of(const Call& c) { return c.has(4) ? c.scalar(4) : Scalar(1); }

const Attached index_add_op =
    attach("index_add")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all = slices_samples(m, true);
          for (Sample& s : all) s.args.push_back(Scalar(1));
          for (Sample& s : slices_samples(m, true)) {
            s.args.push_back(Scalar(-2));
            s.note += ", alpha";
            all.push_back(s);
          }
          return all;
        })
        .errors(slices_errors)
        .reference([](const Call& c) {
          const double alpha = alpha_of(c).to_double();
          return slices_reference(c, [alpha](double old, double v) { return old + alpha * v; });
        });
const Attached index_copy_op = attach("index_copy")
                                   .samples([](SampleMaker& m) { return slices_samples(m, false); })
                                   .errors(slices_errors)
                                   .reference([](const Call& c) {
                                     return slices_reference(c, [](double, double v) { return v; });
                                   });
const Attached index_fill_op =
    attach("index_fill")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 3}), 0, m.make_index({2}, 4), Scalar(1.5)}, "rows"},
                  {{m.make_strided({2, 3}), -1, m.make_index({2}, 3), Scalar(2)}, "strided"},
                  {{m.make({2, 3, 2, 2}).contiguous(MemoryFormat::channels_last), 2,
                    m.make_index({1}, 2), Scalar(2)},
                   "channels last"},
                  {{m.make({}), -1, m.make_index({1}, 1), Scalar(2)}, "0-d"},
                  {{m.make({2, 3}), 1, m.make_index({}, 3), Scalar(2)}, "index 0-d"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor self = at_least_1d(c.tensor(0));
          const std::vector<double> k = values_of(c.tensor(2));
          const int dim = normalize_dim(c.integer(1), int(self.dim()), "index_fill");
          const Tensor y = build_tensor(self.sizes(), [&](const Shape& i) {
            for (double j : k)
              if (wrapped(j, self.size(dim)) == i[size_t(dim)]) return c.scalar(3).to_double();
            return at(self, i);
          });
          return {y.reshape(c.tensor(0).sizes())};
        });

}  // namespace
}  // namespace arete::ops
