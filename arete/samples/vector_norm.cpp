// Samples, references and errors of the records in ops/vector_norm.cpp.
#include <cmath>

#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached norm_op =
    attach("norm")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all;
          for (double p : std::initializer_list<double>{2, 1, 3, 0.5, 0, HUGE_VAL, -HUGE_VAL}) {
            // Distinct values are symmetric about 0: their absolute values tie.
            const Tensor x = std::isinf(p) ? m.make({3, 4}) : m.make_distinct({3, 4});
            all.push_back({{x, p, std::vector<int64_t>{}, false}, "all"});
            all.push_back({{m.make_distinct({2, 3}), p, {1}, true}, "rows"});
          }
          all.push_back({{m.make_strided({3, 4}, 0.5, 2), 2.0, {0}, false}, "strided"});
          return all;
        })
        .reference([](const Call& c) {
          const double p = c.real(1);
          return std::vector<Tensor>{
              reduce_reference(c, 2, c.boolean(3), [&](const auto& v) { return norm_of(v, p); })};
        });

const Attached norm_of_difference_op =
    attach("norm_of_difference")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all;
          for (double p : std::initializer_list<double>{2, 1, 3, 0.5, 0, HUGE_VAL})
            all.push_back({{m.make_distinct({3, 1, 4}), m.make({1, 2, 4}, 10, 20), p, 0.25}});
          all.push_back({{m.make_strided({3, 4}, 3, 4), m.make({4}, 0.5, 2), 2.0, 0.0}, "strided"});
          all.push_back({{m.make({0, 4}), m.make({1, 4}), 2.0, 0.0}, "empty"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 0}), m.make({2, 0}), HUGE_VAL, 0.0},
                   ErrorKind::value,
                   "Expected reduction dim"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const double p = c.real(2);
          Shape full = broadcast_shapes(a.sizes(), b.sizes(), "");
          const Tensor left = a.expand(full).contiguous(), right = b.expand(full).contiguous();
          const int64_t n = full.back();
          full.pop_back();
          return {build_tensor(full, [&](Shape i) {
            i.push_back(0);
            double sum = 0, big = 0;
            for (i.back() = 0; i.back() < n; ++i.back()) {
              const double d = std::fabs(at(left, i) - at(right, i) + c.real(3));
              sum += p == 0 ? d != 0 : std::pow(d, p);
              big = std::fmax(big, d);
            }
            return std::isinf(p) ? big : p == 0 ? sum : std::pow(sum, 1 / p);
          })};
        });

const Attached norm_slopes_op =
    attach("norm_slopes")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all;
          for (double p : std::initializer_list<double>{2, 1, 3, 1.5, 0.5, 0, HUGE_VAL}) {
            const Tensor a = m.make_distinct({3, 1, 4}).detach(),
                         b = m.make({2, 4}, 10, 20).detach();
            const Tensor y = norm_of_difference(a, b, p, 0.25);
            all.push_back({{m.make({3, 2}).detach(), a, b, y, p, 0.25}});
            all.push_back({{m.make({3, 2}).detach(), b, a, y, p, -0.25}, "other"});
            const Tensor c = m.make({3, 2, 4}, 10, 20).detach();
            all.push_back(
                {{m.make_strided({3, 2}).detach(), c, a, norm_of_difference(c, a, p), p, 0.0},
                 "alone"});
          }
          const Tensor none = m.make({0, 4}).detach();
          all.push_back(
              {{m.make({0}).detach(), m.make({4}).detach(), none, m.make({0}).detach(), 2.0, 0.0},
               "empty"});
          return all;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double p = c.real(4);
          const Tensor &a = c.tensor(1), &b = c.tensor(2);
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), "");
          const Tensor left = a.expand(full).contiguous(), right = b.expand(full).contiguous();
          std::vector<double> sums(size_t(a.numel()), 0.0);
          for_each_index(full, [&](const Shape& i) {
            const auto difference = [&](int64_t k) {
              Shape j = i;
              j.back() = k;
              return at(left, j) - at(right, j) + c.real(5);
            };
            const Shape pair(i.begin(), i.end() - 1);
            const double d = difference(i.back()), y = at(c.tensor(3), pair),
                         dy = at(c.tensor(0), pair), size = std::fabs(d);
            double slope = 0;
            if (std::isinf(p)) {  // y was rounded to its dtype
              const auto is_largest = [&](double s) { return std::fabs(s - y) <= 1e-6 * y; };
              int equal = 0;
              for (int64_t k = 0; k < full.back(); ++k)
                equal += is_largest(std::fabs(difference(k)));
              slope = is_largest(size) ? dy / equal : 0;
            } else if (p != 0 && y != 0 && d != 0) {
              slope = dy * std::pow(size / y, p - 1);
            }
            Shape to(i.end() - a.dim(), i.end());
            for (size_t k = 0; k < to.size(); ++k)
              if (a.size(int64_t(k)) == 1) to[k] = 0;
            sums[size_t(flat_position(a.sizes(), to))] += d < 0 ? -slope : slope;
          });
          return {from_values(sums, a.sizes())};
        });

const Attached pairs_square_op = attach("pairs_square")
                                     .samples([](SampleMaker& m) -> std::vector<Sample> {
                                       return {{{m.make({10}).detach(), 5}},
                                               {{m.make_strided({1}).detach(), 2}, "one pair"},
                                               {{m.make({0}).detach(), 1}, "no pairs"}};
                                     })
                                     .reference([](const Call& c) -> std::vector<Tensor> {
                                       const int64_t n = c.integer(1);
                                       std::vector<double> all(size_t(n * n), 0.0);
                                       int64_t k = 0;
                                       for (int64_t i = 0; i < n; ++i)
                                         for (int64_t j = i + 1; j < n; ++j)
                                           all[size_t(i * n + j)] = all[size_t(j * n + i)] =
                                               at(c.tensor(0), {k++});
                                       return {from_values(all, {n, n})};
                                     });

const Attached pair_norms_op =
    attach("pair_norms")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all;
          for (double p : std::initializer_list<double>{2, 1, 3, 0.5, 0, HUGE_VAL})
            // The differences of distinct values tie.
            all.push_back({{std::isinf(p) ? m.make({5, 3}) : m.make_distinct({5, 3}), p}});
          all.push_back({{m.make_strided({2, 4}), 2.0}, "one pair"});
          all.push_back({{m.make_strided({32, 3}).detach(), 2.0}, "more"});
          // Of an odd and of an even number of rows at a time, the last ones fewer.
          all.push_back({{m.make_strided({262, 33}).detach(), 2.0}, "many"});
          all.push_back({{m.make({1, 2}), 2.0}, "no pairs"});
          all.push_back({{m.make({3, 0}), 2.0}, "no columns"});
          return all;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1);
          std::vector<double> all;
          for (int64_t i = 0; i < x.size(0); ++i)
            for (int64_t j = i + 1; j < x.size(0); ++j) {
              double sum = 0, big = 0;
              for (int64_t k = 0; k < x.size(1); ++k) {
                const double d = std::fabs(at(x, {i, k}) - at(x, {j, k}));
                sum += p == 0 ? d != 0 : std::pow(d, p);
                big = std::fmax(big, d);
              }
              all.push_back(std::isinf(p) ? big : p == 0 ? sum : std::pow(sum, 1 / p));
            }
          return {from_values(all, {int64_t(all.size())})};
        });

}  // namespace
}  // namespace arete::ops
