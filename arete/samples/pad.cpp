// Samples, references and errors of the records in ops/pad.cpp.
#include <algorithm>

#include "arete/expr/value.h"
#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

std::vector<Sample> triangle_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), 0}, "usual"},
          {{m.make_strided({4, 3}), -1}, "below"},
          {{m.make({2, 3, 2}), 1}, "batch, above"},
          {{m.make({2, 2}), 5}, "outside"},
          {{m.make({0, 3}), 0}, "empty"}};
}

std::vector<ErrorSample> triangle_errors(SampleMaker& m) {
  return {{{m.make({3}), 0}, ErrorKind::value, "input tensor must have at least 2 dimensions"}};
}

const Attached tril_op = attach("tril")
                             .samples(triangle_samples)
                             .errors(triangle_errors)
                             .reference([](const Call& c) -> Refs {
                               const Tensor& x = c.tensor(0);
                               return {build_tensor(x.sizes(), [&](const Shape& i) {
                                 const int64_t row = i[i.size() - 2], column = i[i.size() - 1];
                                 return column <= row + c.integer(1) ? at(x, i) : 0.0;
                               })};
                             });
const Attached triu_op = attach("triu")
                             .samples(triangle_samples)
                             .errors(triangle_errors)
                             .reference([](const Call& c) -> Refs {
                               const Tensor& x = c.tensor(0);
                               return {build_tensor(x.sizes(), [&](const Shape& i) {
                                 const int64_t row = i[i.size() - 2], column = i[i.size() - 1];
                                 return column >= row + c.integer(1) ? at(x, i) : 0.0;
                               })};
                             });
const Attached constant_pad_nd_op =
    attach("constant_pad_nd")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), {1, 2}, 0.5}, "last dimension"},
                                     {{m.make_strided({2, 3}), {1, 0, 0, 2}, 0}, "both"},
                                     {{m.make({2, 4}), {-1, 1, 2, -1}, 1.0}, "cropped"},
                                     {{m.make({3}), {-4, 2}, 0}, "nothing left of it"},
                                     {{m.make({0, 2}), {1, 0, 1, 0}, 2.0}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), {1}, 0}, ErrorKind::value, "Padding length must be divisible by 2"},
              {{m.make({3}), {1, 1, 1, 1}, 0},
               ErrorKind::value,
               "Padding length should be less than or equal to two times the input dimension but "
               "got "
               "padding length 4 and input of dimension 1"},
              {{m.make({3}), {-2, -2}, 0},
               ErrorKind::value,
               "The input size 3, plus negative padding -2 and -2 resulted in a negative output "
               "size"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const IntList p = c.ints(1);
          Shape sizes(x.sizes()), shift(sizes.size(), 0);
          for (size_t k = 0; k < p.size() / 2; ++k) {
            sizes[sizes.size() - 1 - k] += p[2 * k] + p[2 * k + 1];
            shift[sizes.size() - 1 - k] = p[2 * k];
          }
          return {build_tensor(sizes, [&](Shape i) {
            for (size_t d = 0; d < i.size(); ++d) {
              i[d] -= shift[d];
              if (i[d] < 0 || i[d] >= x.sizes()[d]) return c.scalar(2).to_double();
            }
            return at(x, i);
          })};
        });
const Attached pad_op =
    attach("pad")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 3}), {1, 2}, "constant", 0.5}, "constant"},
              {{m.make({1, 2, 4}), {2, 3, 1, 0}, "reflect", std::nullopt}, "reflect"},
              {{m.make_strided({1, 2, 3}), {2, 3}, "replicate", std::nullopt}, "replicate"},
              {{m.make({1, 2, 3}), {3, 1, 0, 2}, "circular", std::nullopt}, "circular"},
              {{m.make({1, 5}), {-1, 2}, "circular", std::nullopt}, "cropped"},
              {{m.make({1, 3}), {0, 0}, "reflect", std::nullopt}, "nothing to do"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({1, 3}), {3, 0}, "reflect", std::nullopt},
                                           ErrorKind::value,
                                           "Padding size should be less than the corresponding "
                                           "input dimension, but got: padding "
                                           "(3, 0) at dimension 1 of input [1, 3]"},
                                          {{m.make({1, 3}), {4, 0}, "circular", std::nullopt},
                                           ErrorKind::value,
                                           "Padding value causes wrapping around more than once"},
                                          {{m.make({1, 3}), {1, 0}, "mirror", std::nullopt},
                                           ErrorKind::not_implemented,
                                           "Unrecognised padding mode mirror"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const IntList p = c.ints(1);
          const std::string_view mode = c[2].string();
          Shape sizes(x.sizes()), shift(sizes.size(), 0), crop_before(sizes.size(), 0),
              kept(x.sizes());
          for (size_t k = 0; k < p.size() / 2; ++k) {
            const size_t d = sizes.size() - 1 - k;
            sizes[d] += p[2 * k] + p[2 * k + 1];
            shift[d] = p[2 * k];
            crop_before[d] = std::max<int64_t>(-p[2 * k], 0);
            kept[d] -= crop_before[d] + std::max<int64_t>(-p[2 * k + 1], 0);
          }
          return {build_tensor(sizes, [&](Shape i) {
            for (size_t d = 0; d < i.size(); ++d) {
              int64_t j = i[d] - std::max<int64_t>(shift[d], 0);
              const int64_t n = kept[d];
              if (mode == "constant" && (j < 0 || j >= n)) return c.real(3);
              if (mode == "reflect") j = j < 0 ? -j : j >= n ? 2 * (n - 1) - j : j;
              if (mode == "replicate") j = std::clamp<int64_t>(j, 0, n - 1);
              if (mode == "circular") j = (j % n + n) % n;
              i[d] = j + crop_before[d];
            }
            return at(x, i);
          })};
        });
// Which element of the input an element of a padded one is: modes are numbered as in PadMode.
Shape pad_origin(Shape i, IntList sizes, IntList pad, int64_t mode) {
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const size_t d = sizes.size() - 1 - k;
    const int64_t n = sizes[d], j = i[d] - pad[2 * k];
    i[d] = mode == 0   ? (j < 0    ? -j
                          : j >= n ? 2 * (n - 1) - j
                                   : j)
           : mode == 1 ? std::clamp<int64_t>(j, 0, n - 1)
                       : (j + n) % n;
  }
  return i;
}
Shape pad_result(IntList sizes, IntList pad) {
  Shape out(sizes);
  for (size_t k = 0; k < pad.size() / 2; ++k)
    out[out.size() - 1 - k] += pad[2 * k] + pad[2 * k + 1];
  return out;
}

const Attached pad_by_op =
    attach("pad_by")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3, 4}), {3, 2, 1, 2}, 0}, "reflect"},
                                     {{m.make_strided({2, 2, 3}), {2, 4, 1, 0}, 1}, "replicate"},
                                     {{m.make({2, 1, 4}), {-2, 3}, 1}, "replicate, cropped"},
                                     {{m.make({1, 2}), {-3, 4}, 1}, "replicate, all cropped"},
                                     {{m.make({2, 1}), {40, 3}, 1}, "replicate often"},
                                     {{m.make({1, 3, 2}), {2, 1, 0, 3}, 2}, "circular"},
                                     {{m.make({2, 2, 3, 2}), {1, 0, 1, 2, 0, 1}, 0}, "volume"},
                                     {{m.make({0, 3}), {1, 1}, 0}, "empty"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          return {build_tensor(pad_result(x.sizes(), c.ints(1)), [&](const Shape& i) {
            return at(x, pad_origin(i, x.sizes(), c.ints(1), c.integer(2)));
          })};
        });
const Attached pad_by_backward_op =
    attach("pad_by_backward")
        .samples([](SampleMaker& m) {
          using L = std::initializer_list<int64_t>;
          return std::vector<Sample>{
              {{m.make({2, 6, 9}), L{2, 3, 4}, L{3, 2, 1, 2}, 0}, "reflect"},
              {{m.make_strided({2, 3, 9}), L{2, 2, 3}, L{2, 4, 1, 0}, 1}, "replicate"},
              {{m.make({1, 3}), L{1, 2}, L{-3, 4}, 1}, "replicate, all cropped"},
              {{m.make({2, 44}), L{2, 1}, L{40, 3}, 1}, "replicate often"},
              {{m.make({1, 6, 5}), L{1, 3, 2}, L{2, 1, 0, 3}, 2}, "circular"}};
        })
        .reference([](const Call& c) -> Refs {
          const IntList sizes = c.ints(1);
          std::vector<double> sums(size_t(numel_of(sizes)), 0.0);
          for_each_index(c.tensor(0).sizes(), [&](const Shape& i) {
            const Shape from = pad_origin(i, sizes, c.ints(2), c.integer(3));
            sums[size_t(flat_position(sizes, from))] += at(c.tensor(0), i);
          });
          return {from_values(sums, sizes)};
        });
const Attached meshgrid_op =
    attach("meshgrid")
        .samples([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<Sample>{{{List{m.make({2}), m.make({3})}, "ij"}, "ij"},
                                     {{List{m.make({2}), m.make({3}), m.make({2})}, "xy"}, "xy"},
                                     {{List{m.make({}), m.make({2})}, "ij"}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<ErrorSample>{
              {{List{m.make({2, 2})}, "ij"},
               ErrorKind::value,
               "meshgrid: Expected 0D or 1D tensor"},
              {{List{m.make({2})}, "yx"},
               ErrorKind::value,
               "meshgrid: indexing must be one of \"xy\" or \"ij\", but received: yx"}};
        })
        .reference([](const Call& c) -> Refs {
          const auto tensors = c.tensors(0);
          const bool xy = c[1].string() == "xy" && tensors.size() > 1;
          const auto place = [&](size_t k) { return xy && k < 2 ? 1 - k : k; };
          Shape sizes(tensors.size(), 0);
          for (size_t k = 0; k < tensors.size(); ++k) sizes[place(k)] = tensors[k].numel();
          Refs out;
          for (size_t k = 0; k < tensors.size(); ++k) {
            const std::vector<double> v = values_of(tensors[k]);
            out.push_back(
                build_tensor(sizes, [&](const Shape& i) { return v[size_t(i[place(k)])]; }));
          }
          return out;
        });

}  // namespace
}  // namespace arete::ops
