#include "arete/ops/nn.h"

#include <algorithm>
#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reference_util.h"
#include "arete/prim/philox.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using L = std::initializer_list<int64_t>;
constexpr const char* kRandom = "draws random numbers";

// ---- dropout ----

// where(mask, x * scale, 0): the mask stays boolean.
PointwiseDef masked_scale_def() {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 1;
  d.definition = [](std::span<const Value> v) {
    return std::vector{where(v[1], to_float(v[0]) * v[2], 0.0)};
  };
  d.result = PointwiseDef::Result::floating;
  d.compute_promoted = false;
  d.non_differentiable = 0b10;
  return d;
}

const OpRecord& masked_scale_op =
    define("masked_scale(Tensor self, Tensor mask, float scale) -> Tensor")
        .doc("self * scale where mask holds, else 0.")
        .pointwise(masked_scale_def())
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), 2.0}},
                  {{m.make_strided({2, 3}), m.make_mask({3}), 1.25}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? at(c.tensor(0), i) * c.real(2) : 0.0;
          })};
        });

void check_probability(const char* op, double p) {
  ARETE_CHECK(p >= 0 && p <= 1,
              ValueError(op, "dropout probability has to be between 0 and 1, but got " +
                                 Scalar(p).to_string())
                  .argument("p"));
}

Generator* generator_of(const Call& c, size_t i) { return c.has(i) ? c[i].generator() : nullptr; }

Tensor draw_mask(const Tensor& like, double keep, Generator* generator) {
  Tensor mask = empty_like(like.detach(), kBool);
  bernoulli_(mask, keep, generator);
  return mask;
}

// The same numbers again are the mask: none is kept.
const OpRecord& seeded_dropout_op =
    define("seeded_dropout(Tensor input, float p, int seed, int offset) -> Tensor")
        .doc("dropout by the random numbers of a given seed and offset.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(c.name(), "dropout needs a floating dtype").got(describe(x)));
          out.push_back({Shape(x.sizes()), x.dtype(), x.device(), {}});
          if (x.layout().is_dense()) out[0].strides = Shape(x.strides());
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const double keep = 1 - c.real(1);
          p.dropout({view_of(c.tensor(0)), view_of(out[0]), uint64_t(c.integer(2)),
                     uint64_t(c.integer(3)), keep, 1 / keep});
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(seeded_dropout_op, {g.grad(), g.real(1), g.integer(2), g.integer(3)})};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 0.5, 7, 3}},
                  {{m.make_strided({5, 3}), 0.25, 8, 0}},
                  {{m.make({0, 3}), 0.5, 1, 0}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({2}, 3), 0.5, 1, 0}, ErrorKind::type, "dropout needs a floating"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const double keep = 1 - c.real(1);
          std::vector<double> values = values_of(x);
          for (size_t i = 0; i < values.size(); ++i) {
            const prim::PhiloxBlock b =
                prim::philox_block(uint64_t(c.integer(2)), uint64_t(c.integer(3)) + i / 4);
            values[i] = b.lane[i % 4] * 0x1p-32 < keep ? values[i] / keep : 0;
          }
          return {from_values(values, x.sizes())};
        });

const OpRecord& dropout_op =
    define(
        "dropout(Tensor input, float p=0.5, bool training=True, *, Generator? generator=None) -> "
        "Tensor")
        .doc("Sets elements to 0 with probability p and scales the others.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1);
          check_probability(c.name(), p);
          if (!c.boolean(2) || p == 0) return {x};
          if (p == 1) return {x.mul(Scalar(0.0))};
          Generator* g = generator_of(c, 3);
          const Generator::State s =
              (g ? *g : default_generator()).reserve(uint64_t(x.numel() + 3) / 4);
          return {call(seeded_dropout_op, {x, p, int64_t(s.seed), int64_t(s.offset)})};
        })
        .random()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 0.5, true, std::nullopt}},
                  {{m.make({2, 3}), 0.5, false, std::nullopt}},
                  {{m.make({2, 3}), 1.0, true, std::nullopt}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 1.5, true, std::nullopt},
                   ErrorKind::value,
                   "dropout probability has to be between 0 and 1, but got 1.5"}};
        })
        .no_gradient_test()
        .no_reference(kRandom);

const OpRecord& feature_dropout_op =
    define(
        "feature_dropout(Tensor input, float p=0.5, bool training=True, *, Generator? "
        "generator=None) -> Tensor")
        .doc("Dropout of whole channels of (N, C, ...).")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1);
          check_probability(c.name(), p);
          ARETE_CHECK(
              x.dim() >= 2,
              ValueError(c.name(), "Feature dropout requires at least 2 dimensions in the input"));
          if (!c.boolean(2) || p == 0) return {x};
          if (p == 1) return {x.mul(Scalar(0.0))};
          Shape sizes(x.sizes());
          for (size_t d = 2; d < sizes.size(); ++d) sizes[d] = 1;
          const Tensor mask =
              draw_mask(empty(sizes, TensorOptions(kBool, x.device())), 1 - p, generator_of(c, 3));
          return {call(masked_scale_op, {x, mask, 1 / (1 - p)})};
        })
        .random()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 2}), 0.5, true, std::nullopt}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 0.5, true, std::nullopt},
                   ErrorKind::value,
                   "Feature dropout requires at least 2 dimensions"}};
        })
        .no_gradient_test()
        .no_reference(kRandom);

const OpRecord& alpha_dropout_op =
    define(
        "alpha_dropout(Tensor input, float p=0.5, bool training=True, *, Generator? "
        "generator=None) -> Tensor")
        .doc("Dropout to selu's negative limit, rescaled to mean 0 and variance 1.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1);
          check_probability(c.name(), p);
          if (!c.boolean(2) || p == 0) return {x};
          if (p == 1) return {x.mul(Scalar(0.0))};
          constexpr double kLimit = -1.7580993408473766;  // selu(-inf)
          const double a = 1 / std::sqrt((1 - p) * (1 + p * kLimit * kLimit)), b = -a * kLimit * p;
          const Tensor mask = draw_mask(x, 1 - p, generator_of(c, 3));
          return {where(mask, x, Scalar(kLimit)).mul(Scalar(a)).add(Scalar(b))};
        })
        .random()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 0.5, true, std::nullopt}}};
        })
        .no_gradient_test()
        .no_reference(kRandom);

// ---- embedding ----

// input, weight, padding_idx (-1: none)
Tensor embedding_rows(const Tensor& index, const Tensor& weight, int64_t padding);
Tensor embedding_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding);

void check_index(const char* op, const Tensor& index) {
  ARETE_CHECK(
      index.dtype() == kInt64 || index.dtype() == kInt32,
      TypeError(
          op,
          "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
          "Long, Int; but got " +
              std::string(name_of(index.dtype())) + " instead"));
}

const OpRecord& embedding_op =
    define("embedding(Tensor input, Tensor weight, int padding_idx=-1) -> Tensor")
        .doc("Rows of weight at the given indices.")
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &index = call.tensor(0), &w = call.tensor(1);
          ARETE_CHECK(w.dim() == 2,
                      ValueError(call.name(), "'weight' must be 2-D").got(describe(w)));
          check_index(call.name(), index);
          const Device device = common_device(call);
          Shape sizes(index.sizes());
          sizes.push_back(w.sizes()[1]);
          out.push_back({std::move(sizes), w.dtype(), device, {}});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &index = call.tensor(0), &w = call.tensor(1);
          const Tensor i = plain(index, kInt64);
          const Layout flat(IntList{i.numel()}, IntList{1}, i.storage_offset());
          Layout rows(IntList{i.numel(), w.sizes()[1]});
          rows.offset = out[0].storage_offset();
          if (out[0].numel() == 0) return;
          p.take_rows({view_of(w), view_of(i, flat), view_of(out[0], rows), "embedding"});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(2);
              if (g.needs(1))
                out[1] =
                    embedding_backward(g.grad(), g.input(0), g.input_sizes(1)[0], g.integer(2));
              return out;
            },
            1)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_index({4}, 3), m.make({3, 2}), -1}},
                  {{m.make_index({2, 3}, 4), m.make_strided({4, 3}).detach(), 1}, "padding"},
                  {{m.make_index({}, 4), m.make({4, 3}), -1}},
                  {{m.make_index({0}, 4), m.make({4, 3}), -1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make_index({2}, 3), m.make({3}), -1}, ErrorKind::value, "'weight' must be 2-D"},
              {{m.make({2}), m.make({3, 2}), -1},
               ErrorKind::type,
               "Expected tensor for argument #1 'indices'"},
              {{m.make_index({2}, 1).add(Scalar(7)), m.make({3, 2}), -1}, ErrorKind::index, "7"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &index = c.tensor(0), &w = c.tensor(1);
          Shape sizes(index.sizes());
          sizes.push_back(w.size(1));
          return {build_tensor(sizes, [&](const Shape& i) {
            const Shape row(i.begin(), i.end() - 1);
            return at(w, {int64_t(at(index, row)), i.back()});
          })};
        });

const OpRecord& embedding_backward_op =
    define(
        "embedding_backward(Tensor grad, Tensor indices, int num_weights, int padding_idx) -> "
        "Tensor")
        .doc("Adds each gradient to the row it came from; the padding row stays 0.")
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &g = call.tensor(0), &index = call.tensor(1);
          check_index(call.name(), index);
          ARETE_CHECK(g.dim() == index.dim() + 1,
                      ValueError(call.name(), "grad must have one dimension more than indices")
                          .got(describe(g) + ", " + describe(index)));
          out.push_back(
              {Shape{call.integer(2), g.sizes().back()}, g.dtype(), common_device(call), {}});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor i = plain(call.tensor(1), kInt64);
          const Tensor g = plain(call.tensor(0), out[0].dtype());
          expr::Literal zero;
          zero.f = 0;
          p.fill({view_of(out[0]), zero});
          if (g.numel() == 0) return;
          const Layout flat(IntList{i.numel()}, IntList{1}, i.storage_offset());
          const Layout rows(IntList{i.numel(), out[0].sizes()[1]}, IntList{out[0].sizes()[1], 1},
                            g.storage_offset());
          p.add_rows({view_of(out[0]), view_of(i, flat), view_of(g, rows), "embedding"});
          const int64_t padding = call.integer(3);
          if (padding < 0) return;
          const Layout row = narrow(out[0].layout(), 0, padding, 1);
          p.fill({view_of(out[0], row), zero});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor index = g.input(1);
              Tensor h = embedding_rows(index, g.grad(), -1);
              if (g.integer(3) >= 0)
                h = where(ne(index, Scalar(g.integer(3))).unsqueeze(-1), h, Scalar(0.0));
              return {h, Tensor()};
            },
            0b10)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2}), m.make_index({4}, 3), 3, -1}},
                  {{m.make_strided({2, 3, 2}), m.make_index({2, 3}, 3), 4, 1}},
                  {{m.make({0, 2}), m.make_index({0}, 3), 3, -1}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &g = c.tensor(0), &index = c.tensor(1);
          const int64_t width = g.size(-1);
          std::vector<double> out(size_t(c.integer(2) * width), 0.0);
          for_each_index(g.sizes(), [&](const Shape& i) {
            const int64_t row = int64_t(at(index, Shape(i.begin(), i.end() - 1)));
            if (row != c.integer(3)) out[size_t(row * width + i.back())] += at(g, i);
          });
          return {from_values(out, {c.integer(2), width})};
        });

Tensor embedding_rows(const Tensor& index, const Tensor& weight, int64_t padding) {
  return call(embedding_op, {index, weight, padding});
}
Tensor embedding_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding) {
  return call(embedding_backward_op, {grad, index, rows, padding});
}

const OpRecord& one_hot_op =
    define("one_hot(Tensor input, int num_classes=-1) -> Tensor")
        .doc("int64 rows with a 1 at the class.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          int64_t classes = c.integer(1);
          ARETE_CHECK(
              is_integer(x.dtype()),
              TypeError(c.name(), "one_hot is only applicable to index tensor of type LongTensor.")
                  .got(describe(x)));
          ARETE_CHECK(classes > 0 || (classes == -1 && x.numel() > 0) || x.numel() == 0,
                      ValueError(c.name(), "num_classes should be positive")
                          .argument("num_classes")
                          .got(std::to_string(classes)));
          if (x.numel() > 0 && (classes == -1 || x.device().is_cpu())) {
            ARETE_CHECK(x.min().item<int64_t>() >= 0,
                        ValueError(c.name(), "Class values must be non-negative."));
            const int64_t largest = x.max().item<int64_t>();
            if (classes == -1) classes = largest + 1;
            ARETE_CHECK(
                largest < classes,
                ValueError(c.name(), "Class values must be smaller than num_classes.")
                    .got("class " + std::to_string(largest) + " of " + std::to_string(classes)));
          }
          ARETE_CHECK(
              classes > 0,
              ValueError(c.name(), "Can not infer total number of classes from empty tensor."));
          const Tensor columns = arange(Scalar(classes), TensorOptions(kInt64, x.device()));
          const Tensor index = x.unsqueeze(-1);
          if (x.device().is_cpu() || x.is_meta()) return {eq(index, columns).to(kInt64)};
          // Elsewhere nobody has looked at the values yet: writing with them finds those that are
          // out of range (negative ones are moved there).
          Shape sizes(x.sizes());
          sizes.push_back(classes);
          const Tensor classes_of = index.to(kInt64);
          return {zeros(sizes, TensorOptions(kInt64, x.device()))
                      .scatter(-1,
                               where(lt(classes_of, Scalar(0)), classes_of.sub(Scalar(classes)),
                                     classes_of),
                               Scalar(1))};
        })
        .dtypes({kInt64})
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_index({4}, 3), -1}},
                  {{m.make_index({2, 2}, 3), 5}},
                  {{m.make_index({}, 3), 3}},
                  {{m.make_index({0}, 3), 3}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({3}, 1).add(Scalar(4)), 3},
                   ErrorKind::value,
                   "Class values must be smaller than num_classes."},
                  {{m.make_index({3}, 1).sub(Scalar(1)), 3},
                   ErrorKind::value,
                   "Class values must be non-negative."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          int64_t classes = c.integer(1);
          if (classes == -1)
            for (double v : values_of(x)) classes = std::max(classes, int64_t(v) + 1);
          Shape sizes(x.sizes());
          sizes.push_back(classes);
          return {build_tensor(
              sizes,
              [&](const Shape& i) {
                return at(x, Shape(i.begin(), i.end() - 1)) == double(i.back());
              },
              kInt64)};
        });

// ---- rearrangements ----

Shape shuffled(const Call& c, bool up, Shape* parts) {
  const Tensor& x = c.tensor(0);
  const int64_t r = c.integer(1);
  const char* op = c.name();
  ARETE_CHECK(
      x.dim() >= 3,
      ValueError(op, std::string(op) +
                         " expects input to have at least 3 dimensions, but got input with " +
                         std::to_string(x.dim()) + " dimension(s)"));
  ARETE_CHECK(r > 0, ValueError(op, std::string(op) + " expects a positive " +
                                        (up ? "upscale_factor" : "downscale_factor") +
                                        ", but got " + std::to_string(r)));
  const int64_t ch = x.size(-3), h = x.size(-2), w = x.size(-1);
  Shape out(x.sizes().first(x.sizes().size() - 3));
  *parts = out;
  if (up) {
    ARETE_CHECK(ch % (r * r) == 0, ValueError(op,
                                              "pixel_shuffle expects its input's 'channel' "
                                              "dimension to be divisible by the square of "
                                              "upscale_factor, but input.size(-3)=" +
                                                  std::to_string(ch) + " is not divisible by " +
                                                  std::to_string(r * r)));
    for (int64_t v : {ch / (r * r), r, r, h, w}) parts->push_back(v);
    for (int64_t v : {ch / (r * r), h * r, w * r}) out.push_back(v);
  } else {
    ARETE_CHECK(h % r == 0 && w % r == 0,
                ValueError(op,
                           "pixel_unshuffle expects height and width to be divisible by "
                           "downscale_factor, but got " +
                               to_string(x.sizes()) + " and " + std::to_string(r)));
    for (int64_t v : {ch, h / r, r, w / r, r}) parts->push_back(v);
    for (int64_t v : {ch * r * r, h / r, w / r}) out.push_back(v);
  }
  return out;
}
Results rearrange(const Call& c, bool up) {
  Shape parts;
  const Shape out = shuffled(c, up, &parts);
  Shape order;
  const int64_t lead = int64_t(parts.size()) - 5;
  for (int64_t d = 0; d < lead; ++d) order.push_back(d);
  // up: (C, r, r, H, W) -> (C, H, r, W, r); down: (C, H, r, W, r) -> (C, r, r, H, W)
  if (up)
    for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(lead + d);
  else
    for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(lead + d);
  return {c.tensor(0).reshape(parts).permute(order).reshape(out)};
}

const OpRecord& pixel_shuffle_op =
    define("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")
        .doc("(*, C r^2, H, W) to (*, C, H r, W r).")
        .compose([](const Call& c) { return rearrange(c, true); })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({1, 8, 2, 1}), 2}}, {{m.make_strided({4, 2, 3}), 2}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 3, 2, 2}), 2},
                   ErrorKind::value,
                   "pixel_shuffle expects its input's 'channel' dimension"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t r = c.integer(1);
          Shape parts;
          const Shape out = shuffled(c, true, &parts);
          const size_t n = out.size();
          return {build_tensor(out, [&](Shape i) {
            i[n - 3] = i[n - 3] * r * r + i[n - 2] % r * r + i[n - 1] % r;
            i[n - 2] /= r;
            i[n - 1] /= r;
            return at(x, i);
          })};
        });

const OpRecord& pixel_unshuffle_op =
    define("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor")
        .doc("(*, C, H r, W r) to (*, C r^2, H, W).")
        .compose([](const Call& c) { return rearrange(c, false); })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({1, 2, 2, 4}), 2}}, {{m.make_strided({2, 2, 2}), 2}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 3, 3, 2}), 2},
                   ErrorKind::value,
                   "pixel_unshuffle expects height and width"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t r = c.integer(1);
          Shape parts;
          const Shape out = shuffled(c, false, &parts);
          const size_t n = out.size();
          return {build_tensor(out, [&](Shape i) {
            const int64_t k = i[n - 3] % (r * r);
            i[n - 3] /= r * r;
            i[n - 2] = i[n - 2] * r + k / r;
            i[n - 1] = i[n - 1] * r + k % r;
            return at(x, i);
          })};
        });

const OpRecord& normalize_op =
    define("normalize(Tensor input, float p=2.0, int dim=1, float eps=1e-12) -> Tensor")
        .doc("x / max(|x|_p, eps) along a dimension.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return {x.div(x.norm(c.real(1), {c.integer(2)}, true).clamp(Scalar(c.real(3))))};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0.5, 2), 2.0, 1, 1e-12}},
                  {{m.make_strided({2, 3}, 0.5, 2), 1.0, 0, 1e-12}},
                  {{m.make({4}, 0.5, 2), 3.0, 0, 1e-6}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 2.0, 2, 1e-12}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(c.integer(2));
          return {build_tensor(x.sizes(), [&](Shape i) {
            const double v = at(x, i);
            double sum = 0;
            for (i[d] = 0; i[d] < x.size(int64_t(d)); ++i[d])
              sum += std::pow(std::fabs(at(x, i)), c.real(1));
            return v / std::max(std::pow(sum, 1 / c.real(1)), c.real(3));
          })};
        });

}  // namespace
}  // namespace ops

Tensor dropout(const Tensor& input, double p, bool training, Generator* generator) {
  if (!training && p >= 0 && p <= 1) return input;
  return ops::call(ops::dropout_op, {input, p, training, generator});
}
Tensor feature_dropout(const Tensor& input, double p, bool training, Generator* generator) {
  return ops::call(ops::feature_dropout_op, {input, p, training, generator});
}
Tensor alpha_dropout(const Tensor& input, double p, bool training, Generator* generator) {
  return ops::call(ops::alpha_dropout_op, {input, p, training, generator});
}
Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx) {
  int64_t padding = -1;
  if (padding_idx) {
    const int64_t rows = weight.dim() ? weight.size(0) : 0;
    ARETE_CHECK(*padding_idx >= -rows && *padding_idx < rows,
                ValueError("embedding", "Padding_idx must be within num_embeddings")
                    .argument("padding_idx")
                    .expected("[-" + std::to_string(rows) + ", " + std::to_string(rows) + ")")
                    .got(std::to_string(*padding_idx)));
    padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
  }
  return ops::embedding_rows(input, weight, padding);
}
Tensor one_hot(const Tensor& input, int64_t num_classes) {
  return ops::call(ops::one_hot_op, {input, num_classes});
}
Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor) {
  return ops::call(ops::pixel_shuffle_op, {self, upscale_factor});
}
Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor) {
  return ops::call(ops::pixel_unshuffle_op, {self, downscale_factor});
}
Tensor normalize(const Tensor& input, double p, int64_t dim, double eps) {
  return ops::call(ops::normalize_op, {input, p, dim, eps});
}

}  // namespace arete

ARETE_FAMILY(nn)
