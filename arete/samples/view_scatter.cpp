// Samples, references and errors of the records in ops/view_scatter.cpp.
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

// In the references positions are written instead of values: the view of 0, 1, 2, ... names the
// element that each one of src replaces.
template <class F>
Refs replaced(const Call& c, F&& view) {
  std::vector<double> v = values_of(c.tensor(0));
  const std::vector<double> src = values_of(c.tensor(1));
  std::vector<double> numbers(v.size());
  for (size_t i = 0; i < v.size(); ++i) numbers[i] = double(i);
  const Tensor at_places = view(from_values(numbers, c.tensor(0).sizes())).contiguous();
  const std::vector<double> places = values_of(at_places);
  for (size_t i = 0; i < places.size(); ++i) v[size_t(places[i])] = src[i];
  return {from_values(v, c.tensor(0).sizes())};
}

const Attached select_scatter_op =
    attach("select_scatter")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2}), 1, 1}, "column"},
                  {{m.make_strided({2, 3, 2}), m.make({2, 2}), -2, -1}, "negative"},
                  {{m.make({3}), m.make({}), 0, 2}, "1-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({3}), 1, 1},
                   ErrorKind::value,
                   "expected src to have a size equal to the slice of self. src size = [3], slice "
                   "size = [2]"},
                  {{m.make({2, 3}), m.make({2}), 1, 3},
                   ErrorKind::index,
                   "index 3 is out of bounds for dimension 1 with size 3"}};
        })
        .reference([](const Call& c) {
          return replaced(c,
                          [&](const Tensor& t) { return select(t, c.integer(2), c.integer(3)); });
        });
const Attached slice_scatter_op =
    attach("slice_scatter")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({5, 2}), m.make({3, 2}), 0, 1, 4, 1}, "usual"},
                  {{m.make_strided({2, 5}), m.make({2, 2}), -1, -4, std::nullopt, 2}, "step"},
                  {{m.make({4}), m.make({4}), 0, std::nullopt, 100, 1}, "all"},
                  {{m.make({4}), m.make({0}), 0, 3, 1, 1}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({5}), m.make({2}), 0, 1, 4, 1},
                   ErrorKind::value,
                   "expected src to have a size equal to the slice of self. src size = [2], slice "
                   "size = [3]"}};
        })
        .reference([](const Call& c) {
          return replaced(c, [&](const Tensor& t) {
            const auto bound = [&](size_t i) {
              return c.has(i) ? std::optional(c.integer(i)) : std::nullopt;
            };
            return slice(t, c.integer(2), bound(3), bound(4), c.integer(5));
          });
        });
const Attached diagonal_scatter_op =
    attach("diagonal_scatter")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make({3}), 0, 0, 1}, "usual"},
                  {{m.make_strided({3, 2, 4}), m.make({2, 3}), 1, 0, -1}, "batch, above"},
                  {{m.make({2, 3}), m.make({0}), 5, 0, 1}, "outside"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), m.make({2}), 0, 0, 1},
                   ErrorKind::value,
                   "expected src to have a size equal to the diagonal of self. src size = [2], "
                   "diagonal size = [3]"}};
        })
        .reference([](const Call& c) {
          return replaced(c, [&](const Tensor& t) {
            return diagonal(t, c.integer(2), c.integer(3), c.integer(4));
          });
        });
const Attached as_strided_scatter_op =
    attach("as_strided_scatter")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make({2, 3}), {2, 3}, {4, 1}, 1}, "block"},
                  {{m.make({6}), m.make({2, 2}), {2, 2}, {3, 1}, std::nullopt}, "from its offset"},
                  {{m.make({3}), m.make({}), std::vector<int64_t>{}, std::vector<int64_t>{}, 2},
                   "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({4}), m.make({3}), {2}, {1}, 0},
                   ErrorKind::value,
                   "expected src to have a size equal to the slice of self. src size = [3], slice "
                   "size = [2]"}};
        })
        .reference([](const Call& c) -> Refs {
          std::vector<double> v = values_of(c.tensor(0));
          for_each_index(c.ints(2), [&](const Shape& i) {
            int64_t to = c.has(4) ? c.integer(4) : 0;
            for (size_t d = 0; d < i.size(); ++d) to += i[d] * c.ints(3)[d];
            v[size_t(to)] = at(c.tensor(1), i);
          });
          return {from_values(v, c.tensor(0).sizes())};
        });

}  // namespace
}  // namespace arete::ops
