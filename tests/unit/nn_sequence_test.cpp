// Recurrent layers, attention and transformers against plain loops over f64 numbers.
#include <algorithm>
#include <cmath>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_tensors;
using test::expect_values;
using test::has;
using test::logistic;

using Vec = std::vector<double>;
using Mat = std::vector<Vec>;

Vec vec(const Tensor& t) { return t.to_vector<double>(); }
Mat mat(const Tensor& t) {
  Mat m;
  for (int64_t i = 0; i < t.size(0); ++i) m.push_back(vec(t.select(0, i)));
  return m;
}
// W x + b, b may be empty.
Vec affine(const Mat& w, const Vec& x, const Vec& b) {
  Vec y(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    y[i] = b.empty() ? 0 : b[i];
    for (size_t j = 0; j < x.size(); ++j) y[i] += w[i][j] * x[j];
  }
  return y;
}

struct Reference {
  nn::StateDict weights;
  std::string suffix;
  Mat w(const char* name) const { return mat(weights.at(name + suffix)); }
  Vec b(const char* name) const {
    const Tensor* t = weights.find(name + suffix);
    return t ? vec(*t) : Vec();
  }
};

void lstm_by_hand(const Reference& r, const Vec& x, Vec& h, Vec& c) {
  const Vec gi = affine(r.w("weight_ih"), x, r.b("bias_ih")),
            gh = affine(r.w("weight_hh"), h, r.b("bias_hh"));
  const size_t n = c.size();
  Vec full(n);
  for (size_t k = 0; k < n; ++k) {
    const auto gate = [&](size_t g) { return gi[g * n + k] + gh[g * n + k]; };
    c[k] = logistic(gate(1)) * c[k] + logistic(gate(0)) * std::tanh(gate(2));
    full[k] = logistic(gate(3)) * std::tanh(c[k]);
  }
  h = r.weights.contains("weight_hr" + r.suffix) ? affine(r.w("weight_hr"), full, {}) : full;
}

void gru_by_hand(const Reference& r, const Vec& x, Vec& h) {
  const Vec gi = affine(r.w("weight_ih"), x, r.b("bias_ih")),
            gh = affine(r.w("weight_hh"), h, r.b("bias_hh"));
  const size_t n = h.size();
  for (size_t k = 0; k < n; ++k) {
    const double reset = logistic(gi[k] + gh[k]), update = logistic(gi[n + k] + gh[n + k]);
    const double fresh = std::tanh(gi[2 * n + k] + reset * gh[2 * n + k]);
    h[k] = (1 - update) * fresh + update * h[k];
  }
}

void rnn_by_hand(const Reference& r, const Vec& x, Vec& h) {
  const Vec gi = affine(r.w("weight_ih"), x, r.b("bias_ih")),
            gh = affine(r.w("weight_hh"), h, r.b("bias_hh"));
  for (size_t k = 0; k < h.size(); ++k) h[k] = std::max(gi[k] + gh[k], 0.0);
}

TEST(NnRnn, LstmOfTwoLayersBothWays) {
  for (int64_t proj : {0, 2})
    for (bool bias : {true, false}) {
      nn::LSTM lstm(3, 4,
                    {.num_layers = 2, .bias = bias, .bidirectional = true, .proj_size = proj});
      lstm.to(kFloat64);
      const size_t out = size_t(proj ? proj : 4);
      const int64_t T = 5, N = 2;
      const Tensor x = randn({T, N, 3}, kFloat64), h0 = randn({4, N, int64_t(out)}, kFloat64),
                   c0 = randn({4, N, 4}, kFloat64);
      const auto [y, state] = lstm(x, {h0, c0});
      ASSERT_EQ(to_string(y.sizes()), to_string({T, N, int64_t(2 * out)}));
      for (int64_t n = 0; n < N; ++n) {
        Mat input = mat(x.select(1, n));
        for (int64_t layer = 0; layer < 2; ++layer) {
          Mat output(size_t(T), Vec(2 * out));
          for (int64_t d = 0; d < 2; ++d) {
            const Reference r{lstm.state_dict(),
                              "_l" + std::to_string(layer) + (d ? "_reverse" : "")};
            Vec h = vec(h0.select(0, 2 * layer + d).select(0, n)),
                c = vec(c0.select(0, 2 * layer + d).select(0, n));
            for (int64_t i = 0; i < T; ++i) {
              const size_t t = size_t(d ? T - 1 - i : i);
              lstm_by_hand(r, input[t], h, c);
              std::copy(h.begin(), h.end(), output[t].begin() + int64_t(d) * int64_t(out));
            }
            expect_values(state.h.select(0, 2 * layer + d).select(0, n), h, 100);
            expect_values(state.c.select(0, 2 * layer + d).select(0, n), c, 100);
          }
          input = output;
        }
        for (int64_t t = 0; t < T; ++t)
          expect_values(y.select(0, t).select(0, n), input[size_t(t)], 100);
      }
    }
}

TEST(NnRnn, GruAndReluStepByStep) {
  nn::GRU gru(3, 4);
  nn::RNN rnn(3, 4, {.nonlinearity = "relu"});
  gru.to(kFloat64);
  rnn.to(kFloat64);
  const Tensor x = randn({6, 1, 3}, kFloat64);
  const auto [y, h] = gru(x);
  const auto [z, g] = rnn(x);
  const Reference rg{gru.state_dict(), "_l0"}, rr{rnn.state_dict(), "_l0"};
  Vec a(4), b(4);
  for (int64_t t = 0; t < 6; ++t) {
    gru_by_hand(rg, vec(x.select(0, t)), a);
    rnn_by_hand(rr, vec(x.select(0, t)), b);
    expect_values(y.select(0, t), a, 50);
    expect_values(z.select(0, t), b, 50);
  }
  expect_values(h, a, 50);
  expect_values(g, b, 50);
}

TEST(NnRnn, NamesFormsAndGradients) {
  nn::LSTM lstm(2, 3, {.num_layers = 2, .batch_first = true});
  EXPECT_EQ(lstm.state_dict().keys(),
            (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                      "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"}));
  lstm.to(kFloat64);
  const Tensor x = randn({4, 5, 2}, kFloat64).requires_grad_();
  const Tensor y = lstm(x).output;
  EXPECT_EQ(to_string(y.sizes()), "[4, 5, 3]");
  expect_tensors(lstm(x.select(0, 1)).output, y.select(0, 1), 10);  // without a batch
  nn::LSTM late(2, 3, {.num_layers = 2});
  late.to(kFloat64).load_state_dict(lstm.state_dict());
  expect_tensors(late(x.transpose(0, 1)).output.transpose(0, 1), y, 10);
  nn::Sequential seq(lstm, nn::Linear(3, 1));
  seq.to(kFloat64);
  EXPECT_EQ(to_string(seq(x).sizes()), "[4, 5, 1]");

  // The gradient of every weight against a difference quotient in a random direction.
  const auto loss = [&] { return lstm(x).output.square().sum(); };
  loss().backward();
  const double step = std::cbrt(epsilon_of(kFloat64));
  for (const auto& [name, p] : lstm.named_parameters()) {
    const Tensor direction = randn(p.sizes(), kFloat64);
    const double slope = (p.grad() * direction).sum().item<double>();
    EXPECT_GT(std::fabs(slope), step) << name;
    const NoGradGuard no_grad;
    Tensor w = p;
    const auto at = [&](double distance) {
      w.add_(direction, distance);
      const double f = loss().item<double>();
      w.sub_(direction, distance);
      return f;
    };
    // At this step the quotient's truncation and rounding errors are of one size.
    const double scale = loss().item<double>() + direction.abs().sum().item<double>();
    EXPECT_NEAR((at(step) - at(-step)) / (2 * step), slope,
                test::tolerance(kFloat64, 60, scale) / step)
        << name;
  }
  // The steps' fused programs are differentiable twice.
  const std::vector<Tensor> inputs{randn({2, 1, 2}, kFloat64).requires_grad_()};
  const auto outputs = [&](const std::vector<Tensor>& in) {
    const auto [out, state] = late(in[0]);
    return std::vector<Tensor>{out, state.h, state.c};
  };
  EXPECT_EQ(autograd::gradcheck(outputs, inputs), "");
  nn::GRU gru(2, 2);
  gru.to(kFloat64);
  const auto gru_output = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{gru(in[0]).output};
  };
  EXPECT_EQ(autograd::gradcheck(gru_output, inputs), "");
  EXPECT_EQ(autograd::gradgradcheck(gru_output, inputs), "");
  EXPECT_TRUE(has(error_of([&] { lstm(randn({4, 5, 7}, kFloat64)); }), "Expected 2, got 7"));
  EXPECT_TRUE(has(error_of([&] {
                    lstm(x, {zeros({1, 4, 3}, kFloat64), zeros({2, 4, 3}, kFloat64)});
                  }),
                  "Expected hidden[0] size (2, 4, 3), got [1, 4, 3]"));
  EXPECT_TRUE(has(error_of([] { nn::GRU(2, 3, {.proj_size = 1}); }), "only supported for LSTM"));
}

TEST(NnRnn, CellsAreOneStep) {
  nn::LSTMCell lstm(3, 4);
  nn::GRUCell gru(3, 4);
  nn::RNNCell rnn(3, 4, {.nonlinearity = "relu"});
  lstm.to(kFloat64), gru.to(kFloat64), rnn.to(kFloat64);
  const Tensor x = randn({1, 3}, kFloat64), h0 = randn({1, 4}, kFloat64),
               c0 = randn({1, 4}, kFloat64);
  Vec h = vec(h0), c = vec(c0);
  lstm_by_hand({lstm.state_dict(), ""}, vec(x), h, c);
  const auto [h1, c1] = lstm(x, {h0, c0});
  expect_values(h1, h, 10);
  expect_values(c1, c, 10);
  Vec g = vec(h0), r(4);
  gru_by_hand({gru.state_dict(), ""}, vec(x), g);
  expect_values(gru(x, h0), g, 10);
  rnn_by_hand({rnn.state_dict(), ""}, vec(x), r);
  expect_values(rnn(x), r, 10);
}

// Attention by its definition; allowed(n, head, i, j) and bias are what masks say. Inputs are
// batch first, (N, L, E); returns output (N, L, E) and weights (N, heads, L, S).
template <class Allowed>
std::pair<Mat, Vec> attend_by_hand(const nn::MultiheadAttention& m, int64_t heads, const Tensor& q,
                                   const Tensor& k, const Tensor& v, Allowed&& allowed) {
  const nn::StateDict s = m.state_dict();
  const size_t E = size_t(q.size(2)), D = E / size_t(heads);
  Mat w[3];
  if (s.contains("in_proj_weight")) {
    const Mat all = mat(s.at("in_proj_weight"));
    for (size_t i = 0; i < 3; ++i)
      w[i] = Mat(all.begin() + int64_t(i * E), all.begin() + int64_t((i + 1) * E));
  } else {
    w[0] = mat(s.at("q_proj_weight")), w[1] = mat(s.at("k_proj_weight")),
    w[2] = mat(s.at("v_proj_weight"));
  }
  const Vec b = vec(s.at("in_proj_bias"));
  const auto part = [&](size_t i) {
    return Vec(b.begin() + int64_t(i * E), b.begin() + int64_t((i + 1) * E));
  };
  Mat rows;
  Vec weights;
  for (int64_t n = 0; n < q.size(0); ++n) {
    Mat Q, K, V;
    for (const Vec& x : mat(q.select(0, n))) Q.push_back(affine(w[0], x, part(0)));
    for (const Vec& x : mat(k.select(0, n))) K.push_back(affine(w[1], x, part(1)));
    for (const Vec& x : mat(v.select(0, n))) V.push_back(affine(w[2], x, part(2)));
    Mat mixed(Q.size(), Vec(E));
    for (size_t h = 0; h < size_t(heads); ++h)
      for (size_t i = 0; i < Q.size(); ++i) {
        Vec p(K.size());
        double sum = 0;
        for (size_t j = 0; j < K.size(); ++j) {
          double score = 0;
          for (size_t d = h * D; d < (h + 1) * D; ++d) score += Q[i][d] * K[j][d];
          p[j] = std::exp(score / std::sqrt(double(D)) + allowed(n, int64_t(i), int64_t(j)));
          sum += p[j];
        }
        for (size_t j = 0; j < K.size(); ++j) {
          p[j] /= sum;
          for (size_t d = h * D; d < (h + 1) * D; ++d) mixed[i][d] += p[j] * V[j][d];
        }
        weights.insert(weights.end(), p.begin(), p.end());
      }
    for (const Vec& x : mixed)
      rows.push_back(affine(mat(s.at("out_proj.weight")), x, vec(s.at("out_proj.bias"))));
  }
  return {rows, weights};
}

Vec flat(const Mat& m) {
  Vec all;
  for (const Vec& r : m) all.insert(all.end(), r.begin(), r.end());
  return all;
}

TEST(NnAttention, AgainstTheDefinition) {
  const int64_t N = 2, L = 3, S = 4, E = 6, H = 2;
  nn::MultiheadAttention same(E, H, {.batch_first = true});
  nn::MultiheadAttention other(E, H, {.kdim = 5, .vdim = 3, .batch_first = true});
  same.to(kFloat64), other.to(kFloat64);
  nn::init::normal_(same.in_proj_bias), nn::init::normal_(other.in_proj_bias);
  EXPECT_EQ(same.state_dict().keys(),
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight",
                                      "out_proj.bias"}));
  EXPECT_EQ(other.state_dict().keys(),
            (std::vector<std::string>{"q_proj_weight", "k_proj_weight", "v_proj_weight",
                                      "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  const Tensor q = randn({N, L, E}, kFloat64);
  const Tensor padding = tensor({{false, false, true, false}, {false, true, true, false}});
  const Tensor banned = tensor(
      {{false, true, false, false}, {false, false, false, true}, {false, false, false, false}});
  const Tensor added = randn({L, S}, kFloat64);
  const Mat added_rows = mat(added);
  for (bool equal_dims : {true, false}) {
    nn::MultiheadAttention& m = equal_dims ? same : other;
    const Tensor k = randn({N, S, equal_dims ? E : 5}, kFloat64),
                 v = randn({N, S, equal_dims ? E : 3}, kFloat64);
    for (int mask = 0; mask < 4; ++mask)
      for (bool pad : {false, true}) {
        const auto allowed = [&](int64_t n, int64_t i, int64_t j) -> double {
          if (pad && padding.select(0, n).select(0, j).item<bool>()) return -INFINITY;
          if (mask == 1 && banned.select(0, i).select(0, j).item<bool>()) return -INFINITY;
          if (mask == 2) return added_rows[size_t(i)][size_t(j)];
          if (mask == 3 && j > i) return -INFINITY;
          return 0;
        };
        const auto [want, weights] = attend_by_hand(m, H, q, k, v, allowed);
        nn::AttentionCall call;
        if (pad) call.key_padding_mask = padding;
        if (mask == 1) call.attn_mask = banned;
        if (mask == 2) call.attn_mask = added;
        call.is_causal = mask == 3;
        for (bool need : {true, false}) {
          call.need_weights = need;
          call.average_attn_weights = false;
          const auto [y, p] = m(q, k, v, call);
          SCOPED_TRACE(testing::Message()
                       << "mask " << mask << " pad " << pad << " weights " << need);
          expect_values(y, flat(want), 200);
          EXPECT_EQ(p.defined(), need);
          if (need) expect_values(p, weights, 50);
        }
        call.need_weights = call.average_attn_weights = true;
        const Tensor averaged = m(q, k, v, call).weights;
        expect_tensors(averaged, tensor(weights, kFloat64).view({N, H, L, S}).mean(1), 50);
      }
  }
}

TEST(NnAttention, LayoutsSelfAttentionAndExtraKeys) {
  nn::MultiheadAttention first(4, 2, {.batch_first = true}), late(4, 2);
  first.to(kFloat64);
  late.to(kFloat64).load_state_dict(first.state_dict());
  const Tensor x = randn({3, 5, 4}, kFloat64);
  const Tensor y = first(x, x, x).output;
  expect_tensors(first(x), y, 50);
  expect_tensors(late(x.transpose(0, 1)).transpose(0, 1), y, 50);
  expect_tensors(first(x.select(0, 2)), y.select(0, 2), 50);
  expect_tensors(first(x, x.clone(), x.clone()).output, y, 50);
  // One mask for each batch and head.
  const Tensor mask = randn({6, 5, 5}, kFloat64);
  const Tensor p = first(x, x, x, {.attn_mask = mask, .average_attn_weights = false}).weights;
  EXPECT_EQ(to_string(p.sizes()), "[3, 2, 5, 5]");
  expect_tensors(first(x, x, x, {.need_weights = false, .attn_mask = mask}).output,
                 first(x, x, x, {.attn_mask = mask}).output, 50);
  nn::MultiheadAttention extra(4, 2, {.add_bias_kv = true, .add_zero_attn = true});
  EXPECT_EQ(extra(randn({5, 2, 4}), randn({3, 2, 4}), randn({3, 2, 4}),
                  {.key_padding_mask = zeros({2, 3}, kBool)})
                .weights.size(2),
            5);
  EXPECT_TRUE(has(error_of([] { nn::MultiheadAttention(5, 2); }), "divisible by num_heads"));
  EXPECT_TRUE(has(error_of([&] { first(x, x, x, {.attn_mask = zeros({4, 5})}); }), "attn_mask"));
  EXPECT_TRUE(has(error_of([&] {
                    first(randn({3, 5, 6}));
                  }),
                  "embedding dimension of 4, but got 6"));
}

TEST(NnTransformer, EncoderLayerByItsParts) {
  for (bool norm_first : {false, true}) {
    nn::TransformerEncoderLayer layer(4, 2,
                                      {.dim_feedforward = 7,
                                       .dropout = 0,
                                       .activation = "gelu",
                                       .layer_norm_eps = 1e-3,
                                       .batch_first = true,
                                       .norm_first = norm_first});
    layer.to(kFloat64);
    EXPECT_EQ(layer.state_dict().keys(),
              (std::vector<std::string>{
                  "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
                  "self_attn.out_proj.bias", "linear1.weight", "linear1.bias", "linear2.weight",
                  "linear2.bias", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}));
    const Tensor x = randn({2, 3, 4}, kFloat64);
    const auto normalize = [](const Tensor& t) {
      const Tensor centered = t - t.mean(2, true);
      return centered / (centered.square().mean(2, true) + 1e-3).sqrt();
    };
    const auto attend = [&](const Tensor& t) {
      return layer.self_attn(t, t, t, {.is_causal = true}).output;
    };
    const auto feed = [&](const Tensor& t) {
      const Tensor a = t.matmul(layer.linear1.weight.t()) + layer.linear1.bias;
      return (a * (1 - (a / std::sqrt(2.0)).erf().neg()) / 2).matmul(layer.linear2.weight.t()) +
             layer.linear2.bias;
    };
    Tensor want;
    if (norm_first) {
      want = x + attend(normalize(x));
      want = want + feed(normalize(want));
    } else {
      want = normalize(x + attend(x));
      want = normalize(want + feed(want));
    }
    expect_tensors(layer(x, {.is_causal = true}), want, 500);
    expect_tensors(layer(x, {.mask = nn::generate_square_subsequent_mask(3, kFloat64)}), want, 500);
  }
}

TEST(NnTransformer, StacksAreIndependentCopies) {
  nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 5, .dropout = 0});
  nn::TransformerEncoder encoder(layer, 2, nn::LayerNorm(4));
  EXPECT_EQ(encoder.state_dict().size(), 2u * 12 + 2);
  EXPECT_TRUE(encoder.state_dict().contains("layers.1.self_attn.in_proj_weight"));
  EXPECT_TRUE(encoder.state_dict().contains("norm.weight"));
  nn::init::zeros_(encoder.get_parameter("layers.0.linear1.weight"));
  EXPECT_GT(encoder.get_parameter("layers.1.linear1.weight").abs().max().item<double>(), 0);
  const Tensor src = randn({6, 2, 4});
  nn::LayerNorm norm(4);
  const Tensor by_layers =
      norm(encoder.get_submodule("layers.1")(encoder.get_submodule("layers.0")(src)));
  expect_tensors(encoder(src), by_layers, 100);

  nn::TransformerDecoderLayer dec_layer(4, 2, {.dim_feedforward = 5, .dropout = 0});
  nn::TransformerDecoder decoder(dec_layer, 2);
  EXPECT_TRUE(decoder.state_dict().contains("layers.0.multihead_attn.out_proj.bias"));
  EXPECT_TRUE(decoder.state_dict().contains("layers.1.norm3.weight"));
  const Tensor tgt = randn({5, 2, 4}).requires_grad_();
  const Tensor out = decoder(tgt, encoder(src), {.tgt_is_causal = true});
  // Causal: the first positions do not depend on the last one.
  out.narrow(0, 0, 4).sum().backward();
  EXPECT_EQ(tgt.grad().select(0, 4).abs().max().item<double>(), 0);
  for (const auto& [name, p] : encoder.named_parameters()) EXPECT_TRUE(p.grad().defined()) << name;
}

}  // namespace
}  // namespace arete
