// Samples, references and errors of the records in ops/dropout.cpp.
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/prim/philox.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

constexpr const char* kRandom = "draws random numbers";
const Attached masked_scale_op =
    attach("masked_scale")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3}), 2.0}},
                  {{m.make_strided({2, 3}), m.make_mask({3}), 1.25}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return at(c.tensor(1), i) != 0 ? at(c.tensor(0), i) * c.real(2) : 0.0;
          })};
        });
const Attached seeded_dropout_op =
    attach("seeded_dropout")
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
const Attached dropout_op =
    attach("dropout")
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
const Attached feature_dropout_op =
    attach("feature_dropout")
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

template <int spatial>
void attach_channel_dropout(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        Shape sizes{2, 3};
        for (int d = 0; d < spatial; ++d) sizes.push_back(2);
        return {{{m.make(sizes), 0.5, true, std::nullopt}},
                {{m.make(IntList(sizes).subspan(1)), 0.25, true, std::nullopt}, "one less"},
                {{m.make(sizes), 1.0, true, std::nullopt}}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        return {{{m.make({2}), 0.5, true, std::nullopt},
                 ErrorKind::value,
                 spatial == 2 ? "Feature dropout requires" : "D input, but received a 1D input."},
                {{m.make({2, 2, 2, 2}), 2.0, true, std::nullopt},
                 ErrorKind::value,
                 spatial == 1 ? "received a 4D input" : "dropout probability has to be between"}};
      })
      .no_gradient_test()
      .no_reference(kRandom);
}

std::vector<Sample> limit_samples(SampleMaker& m) {
  return {{{m.make({2, 3}), 0.5, true, std::nullopt}},
          {{m.make({2, 3}), 0.5, false, std::nullopt}}};
}

const Attached alpha_dropout_op =
    attach("alpha_dropout").samples(limit_samples).no_gradient_test().no_reference(kRandom);
const Attached feature_alpha_dropout_op =
    attach("feature_alpha_dropout")
        .samples(limit_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 0.5, true, std::nullopt},
                   ErrorKind::value,
                   "Feature dropout requires at least 2 dimensions"}};
        })
        .no_gradient_test()
        .no_reference(kRandom);
const Attached leak_op = attach("leak")
                             .samples([](SampleMaker& m) -> std::vector<Sample> {
                               return {{{m.make({2, 3}), m.make({2, 3}, 0.1, 0.5).detach()}},
                                       {{m.make_strided({2, 3}), m.make({3}, 0.1, 0.5).detach()}}};
                             })
                             .reference([](const Call& c) -> std::vector<Tensor> {
                               return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
                                 const double v = at(c.tensor(0), i);
                                 return v > 0 ? v : v * at(c.tensor(1), i);
                               })};
                             });
const Attached rrelu_op =
    attach("rrelu")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 0.125, 0.375, false, std::nullopt}},
                  {{m.make_strided({2, 3}), 0.25, 0.25, true, std::nullopt}, "one slope"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 0.5, 0.25, true, std::nullopt},
                   ErrorKind::value,
                   "Lower bound should be less than or equal to the upper bound"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            const double v = at(c.tensor(0), i);
            return v > 0 ? v : v * (c.real(1) + c.real(2)) / 2;
          })};
        });
const Attached gumbel_softmax_op =
    attach("gumbel_softmax")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 1.0, false, 1e-10, -1, std::nullopt}},
                  {{m.make({2, 3}), 0.5, true, 1e-10, 0, std::nullopt}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 1.0, false, 1e-10, 2, std::nullopt},
                   ErrorKind::index,
                   "Dimension out of range"}};
        })
        .no_gradient_test()
        .no_reference(kRandom);

const bool dropout_attached = [] {
  attach_channel_dropout<1>("dropout1d");
  attach_channel_dropout<2>("dropout2d");
  attach_channel_dropout<3>("dropout3d");
  return true;
}();

}  // namespace
}  // namespace arete::ops
