// Samples, references and errors of the records in ops/attention.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/prim/philox.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached fused_attention_backward_op =
    attach("fused_attention_backward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({0, 1, 2, 2}), m.make({0, 1, 2, 2}), m.make({0, 1, 2, 2}),
                    m.make({0, 1, 2, 2}), std::nullopt, m.make({0, 1, 2, 2}), m.make({0, 1, 2}),
                    false, 0.5, false, 0.0, 0, 0, 0}}};
        })
        .no_gradient_test()
        .no_reference("the gradient test of fused_attention checks it");
const Attached fused_attention_op =
    attach("fused_attention")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          // Bands of a few rows, of one row, of several heads and of several batches.
          return {
              {{m.make({1, 2, 3, 2}), m.make({1, 2, 4, 2}), m.make({1, 2, 4, 3}), none, 0.7, false,
                0.0, 0, 0, 0}},
              {{m.make({2, 2, 3, 2}), m.make({2, 1, 3, 2}), m.make({2, 1, 3, 2}), none, 0.5, true,
                0.0, 0, 0, 0},
               "grouped heads, causal"},
              {{m.make({2, 1, 16, 8}), m.make({2, 1, 16, 8}), m.make({2, 1, 16, 8}), none, 0.3,
                true, 0.0, 0, 0, 0},
               "causal"},
              {{m.make({2, 2, 5, 2}), m.make({2, 2, 3, 2}), m.make({2, 2, 3, 1}),
                m.make_mask({1, 2, 5, 3}), 0.5, false, 0.25, 5, 7, 6},
               "mask, dropout, bands of two rows"},
              {{m.make({2, 4, 3, 2}), m.make({2, 2, 5, 2}), m.make({2, 2, 5, 2}),
                m.make({2, 4, 3, 5}), 0.5, false, 0.5, 3, 1, 4},
               "additive mask of its own for each head, grouped heads, dropout, bands of one row"},
              {{m.make({3, 2, 3, 2}), m.make({3, 2, 4, 2}), m.make({3, 2, 4, 2}),
                m.make({1, 1, 3, 4}), 0.5, false, 0.5, 9, 0, 24},
               "additive mask for all heads, dropout, bands of one batch"},
              {{m.make({2, 3, 4, 2}), m.make({2, 3, 3, 2}), m.make({2, 3, 3, 2}),
                m.make({2, 1, 1, 3}), 1.0, true, 0.5, 2, 3, 24},
               "additive mask for all rows, causal, dropout, bands of two heads"},
              {{m.make({1, 2, 3, 2}), m.make({1, 2, 6, 2}), m.make({1, 2, 6, 2}),
                m.make({1, 2, 3, 6}), 0.5, true, 0.0, 0, 0, 12},
               "additive mask, causal, keys that nobody sees"},
              {{m.make_strided({2, 6, 4, 3}), m.make_strided({2, 2, 4, 3}),
                m.make_strided({2, 2, 4, 2}), none, 0.5, true, 0.5, 4, 4, 8},
               "groups of three, causal, dropout, bands of two rows"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          const auto with_mask = [&](const Tensor& mask) {
            return ErrorSample{{m.make({1, 2, 3, 2}), m.make({1, 2, 4, 2}), m.make({1, 2, 4, 2}),
                                mask, 1.0, false, 0.0, 0, 0, 0},
                               ErrorKind::value,
                               "the mask does not fit the scores"};
          };
          return {{{m.make({1, 3, 2, 2}), m.make({1, 2, 2, 2}), m.make({1, 2, 2, 2}), none, 1.0,
                    false, 0.0, 0, 0, 0},
                   ErrorKind::value,
                   "query, key and value do not fit together"},
                  with_mask(m.make({3, 4})),
                  with_mask(m.make({1, 1, 3, 5})),
                  with_mask(m.make_index({1, 1, 3, 4}, 2))};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
          const int64_t group = q.size(1) / k.size(1), keys = k.size(2);
          const double keep = 1 - c.real(6);
          const auto score = [&](const Shape& i, int64_t s) {
            double dot = 0;
            for (int64_t e = 0; e < q.size(3); ++e)
              dot += at(q, {i[0], i[1], i[2], e}) * at(k, {i[0], i[1] / group, s, e});
            dot *= c.real(4);
            if (c.has(3)) {
              const Tensor& mask = c.tensor(3);
              Shape im{i[0], i[1], i[2], s};
              for (size_t d = 0; d < 4; ++d)
                if (mask.size(int64_t(d)) == 1) im[d] = 0;
              const double m = at(mask, im);
              dot = mask.dtype() != kBool ? dot + m : m != 0 ? dot : -INFINITY;
            }
            return c.boolean(5) && s > i[2] ? -INFINITY : dot;
          };
          const auto factor = [&](const Shape& i, int64_t s) {
            const uint64_t n = uint64_t(((i[0] * q.size(1) + i[1]) * q.size(2) + i[2]) * keys + s);
            const prim::PhiloxBlock b =
                prim::philox_block(uint64_t(c.integer(7)), uint64_t(c.integer(8)) + n / 4);
            return b.lane[n % 4] * 0x1p-32 < keep ? 1 / keep : 0.0;
          };
          const auto sum = [&](const Shape& i, int64_t column) {
            double r = 0;
            for (int64_t s = 0; s < keys; ++s)
              r += std::exp(score(i, s)) *
                   (column < 0 ? 1.0 : factor(i, s) * at(v, {i[0], i[1] / group, s, column}));
            return r;
          };
          Shape sizes(q.sizes());
          sizes[3] = v.size(3);
          const Tensor out = build_tensor(sizes, [&](const Shape& i) {
            const double all = sum(i, -1);
            return all == 0 ? 0 : sum(i, i[3]) / all;
          });
          sizes.pop_back();
          return {out, build_tensor(sizes, [&](const Shape& i) { return std::log(sum(i, -1)); })};
        });
const Attached attention_op =
    attach("scaled_dot_product_attention")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make({2, 2, 3}), m.make({2, 3, 3}), m.make({2, 3, 2}), none, 0.0, false, none,
                    false}},
                  {{m.make({1, 2, 3, 2}), m.make({1, 2, 3, 2}), m.make({1, 2, 3, 2}), none, 0.0,
                    true, none, false},
                   "causal"},
                  {{m.make({2, 2, 16, 8}), m.make({2, 2, 16, 8}), m.make({2, 2, 16, 8}), none, 0.0,
                    true, none, false},
                   "causal, of a size that kernels like"},
                  {{m.make({2, 3}), m.make({3, 3}), m.make({3, 2}), m.make_mask({2, 3}), 0.0, false,
                    0.5, false},
                   "mask"},
                  {{m.make({2, 2, 3}), m.make({2, 3, 3}), m.make({2, 3, 2}), m.make({2, 3}), 0.0,
                    false, none, false},
                   "additive mask"},
                  {{m.make({4, 2, 2}), m.make({2, 3, 2}), m.make({2, 3, 2}), none, 0.0, false, none,
                    true},
                   "grouped heads"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          return {{{m.make({2, 3}), m.make({3, 3}), m.make({3, 2}), m.make_mask({2, 3}), 0.0, true,
                    none, false},
                   ErrorKind::value,
                   "scaled_dot_product_attention: Explicit attn_mask should not be set when "
                   "is_causal=True"},
                  {{m.make({2, 3}), m.make({3, 4}), m.make({3, 2}), none, 0.0, false, none, false},
                   ErrorKind::value,
                   "scaled_dot_product_attention: query and key must have one last size"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
          const int64_t width = q.size(-1), length = k.size(-2);
          const double scale = c.has(6) ? c.real(6) : 1 / std::sqrt(double(width));
          Shape out(q.sizes());
          const size_t n = out.size();
          out[n - 1] = v.size(-1);
          return {build_tensor(out, [&](const Shape& i) {
            Shape batch = i;  // of key and value
            if (c.boolean(7)) batch[n - 3] = i[n - 3] / (q.size(-3) / k.size(-3));
            std::vector<double> scores;
            double top = -INFINITY, sum = 0, result = 0;
            for (int64_t s = 0; s < length; ++s) {
              double dot = 0;
              for (int64_t e = 0; e < width; ++e) {
                Shape iq = i, ik = batch;
                iq[n - 1] = ik[n - 1] = e;
                ik[n - 2] = s;
                dot += at(q, iq) * at(k, ik);
              }
              dot *= scale;
              if (c.boolean(5) && s > i[n - 2]) dot = -INFINITY;
              if (c.has(3)) {
                Shape im = i;
                im[n - 1] = s;
                const double mask = at(c.tensor(3), im);
                dot = c.tensor(3).dtype() == kBool ? (mask != 0 ? dot : -INFINITY) : dot + mask;
              }
              scores.push_back(dot);
              top = std::max(top, dot);
            }
            for (int64_t s = 0; s < length && top > -INFINITY; ++s) {
              Shape iv = batch;
              iv[n - 2] = s;
              const double e = std::exp(scores[size_t(s)] - top);
              sum += e;
              result += e * at(v, iv);
            }
            return sum == 0 ? 0 : result / sum;
          })};
        });

}  // namespace
}  // namespace arete::ops
