// Samples, references and errors of the records in ops/shape_stack.cpp.
#include <algorithm>
#include <array>

#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

using List = std::vector<Tensor>;

std::vector<Sample> atleast_samples(SampleMaker& m) {
  return {{{m.make({})}, "0-d"},
          {{m.make({2})}, "1-d"},
          {{m.make_strided({2, 3})}, "2-d"},
          {{m.make({2, 1, 2})}, "3-d"}};
}

// Ones are put in front of the first dimension and behind the second.
template <int kRank>
Refs atleast_reference(const Call& c) {
  Shape sizes(c.tensor(0).sizes());
  if (sizes.empty()) sizes.push_back(1);
  if (sizes.size() == 1 && kRank > 1) sizes.insert(sizes.begin(), 1);
  if (sizes.size() == 2 && kRank > 2) sizes.push_back(1);
  return {from_values(values_of(c.tensor(0)), sizes)};
}

const Attached atleast_1d_op =
    attach("atleast_1d").samples(atleast_samples).reference(atleast_reference<1>);
const Attached atleast_2d_op =
    attach("atleast_2d").samples(atleast_samples).reference(atleast_reference<2>);
const Attached atleast_3d_op =
    attach("atleast_3d").samples(atleast_samples).reference(atleast_reference<3>);

// cat along `d` of tensors whose values stand in `parts` as they are joined.
Refs joined(const Refs& parts, int64_t d) {
  Shape sizes(parts[0].sizes());
  sizes[size_t(d)] = 0;
  for (const Tensor& x : parts) sizes[size_t(d)] += x.size(d);
  return {build_tensor(sizes, [&](Shape i) {
    size_t k = 0;
    while (i[size_t(d)] >= parts[k].size(d)) i[size_t(d)] -= parts[k++].size(d);
    return at(parts[k], i);
  })};
}

const Attached dstack_op =
    attach("dstack")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{List{m.make({2}), m.make({2})}}, "1-d"},
                  {{List{m.make_strided({2, 3}), m.make({2, 3})}}, "2-d"},
                  {{List{m.make({2, 1, 2}), m.make({2, 1})}}, "mixed"},
                  {{List{m.make({})}}, "0-d"}};
        })
        .errors([](SampleMaker&) -> std::vector<ErrorSample> {
          return {{{List{}}, ErrorKind::value, "dstack expects a non-empty TensorList"}};
        })
        .reference([](const Call& c) {
          Refs parts;
          for (const Tensor& x : c.tensors(0)) {
            const Arg args[] = {x};
            parts.push_back(atleast_reference<3>(Call(c.op, args))[0]);
          }
          return joined(parts, 2);
        });
const Attached column_stack_op =
    attach("column_stack")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{List{m.make({2}), m.make({2})}}, "1-d"},
                  {{List{m.make_strided({2, 3}), m.make({2})}}, "mixed"},
                  {{List{m.make({}), m.make({})}}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{List{}}, ErrorKind::value, "column_stack expects a non-empty TensorList"},
                  {{List{m.make({2}), m.make({3})}},
                   ErrorKind::value,
                   "Sizes of tensors must match except in dimension 1."}};
        })
        .reference([](const Call& c) {
          Refs parts;
          for (const Tensor& x : c.tensors(0))
            parts.push_back(x.dim() > 1 ? x : from_values(values_of(x), {x.numel(), 1}));
          return joined(parts, 1);
        });
const Attached broadcast_tensors_op =
    attach("broadcast_tensors")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{List{m.make({2, 1}), m.make({3}), m.make({})}}, "usual"},
                  {{List{m.make({0, 1}), m.make({1, 2})}}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{List{m.make({2}), m.make({3})}},
                   ErrorKind::value,
                   "The size of tensor a (2) must match the size of tensor b (3)"}};
        })
        .reference([](const Call& c) {
          Shape sizes;
          for (const Tensor& x : c.tensors(0)) sizes = broadcast_shapes(sizes, x.sizes(), "");
          Refs out;
          for (const Tensor& x : c.tensors(0))
            out.push_back(build_tensor(sizes, [&](const Shape& i) { return at(x, i); }));
          return out;
        });

struct Cut {
  const char* name;
  int64_t dim, least_rank;
};
constexpr Cut kCuts[] = {{"hsplit", 1, 1}, {"vsplit", 0, 2}, {"dsplit", 2, 3}};

int64_t cut_dim(const Call& c) {
  if (c.tensor(0).dim() == 1) return 0;
  const auto* cut = std::ranges::find_if(
      kCuts, [&](const Cut& x) { return std::string_view(c.name()).starts_with(x.name); });
  return cut->dim;
}

Refs cut_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  const int64_t d = cut_dim(c), n = x.size(d);
  std::vector<int64_t> bounds{0};
  if (c[1].kind() == Arg::Kind::ints)
    bounds.insert(bounds.end(), c.ints(1).begin(), c.ints(1).end());
  else
    for (int64_t k = 1; k < c.integer(1); ++k) bounds.push_back(k * n / c.integer(1));
  bounds.push_back(n);
  Refs out;
  for (size_t k = 0; k + 1 < bounds.size(); ++k) {
    Shape sizes(x.sizes());
    sizes[size_t(d)] = bounds[k + 1] - bounds[k];
    out.push_back(build_tensor(sizes, [&](Shape i) {
      i[size_t(d)] += bounds[k];
      return at(x, i);
    }));
  }
  return out;
}

bool attach_cuts() {
  for (const Cut& cut : kCuts) {
    const std::string name = cut.name;
    const auto samples = [cut](SampleMaker& m, OwnedArg arg) {
      std::vector<Sample> all{{{m.make({4, 6, 4}), arg}, "3-d"},
                              {{m.make_strided({4, 2, 4}), arg}, "strided"}};
      if (cut.least_rank == 1) all.push_back({{m.make({4}), arg}, "1-d"});
      return all;
    };
    const auto error = [cut](SampleMaker& m, OwnedArg arg) {
      return ErrorSample{{m.make(Shape(size_t(cut.least_rank - 1), 2)), arg},
                         ErrorKind::value,
                         "torch." + std::string(cut.name) + " requires a tensor with at least"};
    };
    attach(name)
        .samples([samples](SampleMaker& m) { return samples(m, 2); })
        .errors([error](SampleMaker& m) -> std::vector<ErrorSample> {
          return {error(m, 2),
                  {{m.make({5, 5, 5}), 2},
                   ErrorKind::value,
                   "but the size of the dimension 5 is not divisible by the split_size 2!"}};
        })
        .reference(cut_reference);
    attach(name + ".array")
        .samples([samples](SampleMaker& m) {
          return samples(m, OwnedArg({1, 2}));
        })
        .errors([error](SampleMaker& m) -> std::vector<ErrorSample> {
          return {error(m, OwnedArg({1}))};
        })
        .reference(cut_reference);
  }
  return true;
}
const bool cuts = attach_cuts();
const Attached cartesian_prod_op =
    attach("cartesian_prod")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{List{m.make({2}), m.make_strided({3})}}, "two"},
                  {{List{m.make({2}), m.make({1}), m.make({2})}}, "three"},
                  {{List{m.make({3})}}, "one"},
                  {{List{m.make({3}), m.make({0})}}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{List{m.make({2, 2}), m.make({2})}},
                   ErrorKind::value,
                   "Expect a 1D vector, but got shape [2, 2]"}};
        })
        .reference([](const Call& c) -> Refs {
          const auto tensors = c.tensors(0);
          if (tensors.size() == 1) return {from_values(values_of(tensors[0]), tensors[0].sizes())};
          Shape sizes;
          for (const Tensor& x : tensors) sizes.push_back(x.numel());
          std::vector<double> v;
          for_each_index(sizes, [&](const Shape& i) {
            for (size_t k = 0; k < i.size(); ++k) v.push_back(at(tensors[k], {i[k]}));
          });
          return {from_values(v, {numel_of(sizes), int64_t(tensors.size())})};
        });
// Numbers of all pairs of n, in order.
std::vector<std::array<int64_t, 2>> pairs_of(int64_t n, bool again) {
  std::vector<std::array<int64_t, 2>> all;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = again ? i : i + 1; j < n; ++j) all.push_back({i, j});
  return all;
}
const Attached choose_pairs_op =
    attach("choose_pairs")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({6}), false}},
                  {{m.make({4}), true}, "again"},
                  {{m.make({1}), false}, "none"}};
        })
        .reference([](const Call& c) -> Refs {
          std::vector<double> v;
          for (const auto& pair : pairs_of(c.tensor(0).numel(), c.boolean(1)))
            for (const int64_t i : pair) v.push_back(at(c.tensor(0), {i}));
          return {from_values(v, {int64_t(v.size()) / 2, 2})};
        });
const Attached choose_pairs_backward_op =
    attach("choose_pairs_backward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({10, 2}), 5, false}},
                  {{m.make_strided({6, 2}), 3, true}, "again"},
                  {{m.make({0, 2}), 1, false}, "none"}};
        })
        .reference([](const Call& c) -> Refs {
          std::vector<double> v(size_t(c.integer(1)), 0.0);
          int64_t k = 0;
          for (const auto& pair : pairs_of(c.integer(1), c.boolean(2))) {
            for (size_t d = 0; d < 2; ++d) v[size_t(pair[d])] += at(c.tensor(0), {k, int64_t(d)});
            ++k;
          }
          return {from_values(v, {c.integer(1)})};
        });
const Attached combinations_op = attach("combinations")
                                     .samples([](SampleMaker& m) -> std::vector<Sample> {
                                       return {{{m.make({4}), 2, false}, "pairs"},
                                               {{m.make_strided({5}), 2, true}, "pairs again"},
                                               {{m.make({1}), 2, false}, "no pairs"},
                                               {{m.make({0}), 2, true}, "nothing"},
                                               {{m.make_strided({3}), 3, true}, "with replacement"},
                                               {{m.make({2}), 3, false}, "none"},
                                               {{m.make({3}), 0, false}, "of nothing"}};
                                     })
                                     .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                       return {{{m.make({2, 2}), 2, false},
                                                ErrorKind::value,
                                                "Expect a 1D vector, but got shape [2, 2]"},
                                               {{m.make({2}), -1, false},
                                                ErrorKind::value,
                                                "Expect a non-negative number, but got -1"}};
                                     })
                                     .reference([](const Call& c) -> Refs {
                                       // All tuples whose positions rise.
                                       const int64_t n = c.tensor(0).numel(), r = c.integer(1);
                                       if (r == 0) return {from_values({}, {0})};
                                       std::vector<double> v;
                                       for_each_index(Shape(size_t(r), n), [&](const Shape& i) {
                                         for (size_t k = 1; k < i.size(); ++k)
                                           if (c.boolean(2) ? i[k] < i[k - 1] : i[k] <= i[k - 1])
                                             return;
                                         for (int64_t p : i) v.push_back(at(c.tensor(0), {p}));
                                       });
                                       return {from_values(v, {int64_t(v.size()) / r, r})};
                                     });

}  // namespace
}  // namespace arete::ops
