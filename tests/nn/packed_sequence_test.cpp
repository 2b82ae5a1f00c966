// Packed sequences, recurrent layers on them, and the whole transformer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arete/core/generator.h"
#include "arete/nn/packed_sequence.h"
#include "arete/nn/rnn.h"
#include "arete/nn/transformer.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "tests/support/errors.h"

namespace arete::nn {
namespace {

using testing::ElementsAre;
using namespace utils::rnn;

TEST(PackedSequence, GoesThereAndBack) {
  const std::vector<Tensor> rows{tensor(std::vector<float>{4, 5}),
                                 tensor(std::vector<float>{1, 2, 3}),
                                 tensor(std::vector<float>{6})};
  const PackedSequence p = pack_sequence(rows, false);
  EXPECT_THAT(p.data.to_vector<float>(), ElementsAre(1, 4, 6, 2, 5, 3));
  EXPECT_THAT(p.batch_sizes, ElementsAre(3, 2, 1));
  const Padded padded = pad_packed_sequence(p, true, -1, 4);
  EXPECT_THAT(padded.sequences.to_vector<float>(),
              ElementsAre(4, 5, -1, -1, 1, 2, 3, -1, 6, -1, -1, -1));
  EXPECT_THAT(padded.lengths, ElementsAre(2, 3, 1));
  const auto back = unpack_sequence(p);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(equal(back[i], rows[i]));
  EXPECT_THROW(pack_sequence(rows), ValueError);  // not sorted
  const std::vector<int64_t> none{0, 1}, many{9, 1};
  EXPECT_THROW(pack_padded_sequence(zeros({3, 2, 1}), none), ValueError);
  EXPECT_THROW(pack_padded_sequence(zeros({3, 2, 1}), many), ValueError);
  EXPECT_THROW(pack_padded_sequence(zeros({3, 3, 1}), many), ValueError);
  EXPECT_THROW(pad_packed_sequence(p, false, 0, 2), ValueError);
  EXPECT_THROW(pad_packed_sequence({}), ValueError);
  EXPECT_THROW(pad_sequence({}), ValueError);
}

// Each sequence of a batch is as it would be alone: outputs, states and gradients.
template <class Layer, class State>
void expect_as_alone(Layer layer, State h0_of, auto h_of) {
  manual_seed(4);
  const std::vector<Tensor> rows{randn({2, 3}), randn({5, 3}), randn({4, 3})};
  const Tensor state = randn({4, 3, 6});
  std::vector<Tensor> inputs;
  for (const Tensor& r : rows) inputs.push_back(r.clone().requires_grad_());
  const auto [output, last] = layer(pack_sequence(inputs, false), h0_of(state));
  const auto outputs = unpack_sequence(output);
  Tensor sum = zeros({});
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t n = int64_t(i);
    const Tensor x = rows[i].clone().requires_grad_();
    const auto [alone, end] = layer(x.unsqueeze(1), h0_of(state.narrow(1, n, 1)));
    EXPECT_TRUE(allclose(outputs[i], alone.squeeze(1), 1e-5, 1e-6)) << i;
    EXPECT_TRUE(allclose(h_of(last).narrow(1, n, 1), h_of(end), 1e-5, 1e-6)) << i;
    alone.sum().backward();
    outputs[i].sum().backward({}, true);
    EXPECT_TRUE(allclose(inputs[i].grad(), x.grad(), 1e-5, 1e-6)) << i;
  }
}

TEST(PackedSequence, RecurrentLayersTakeThem) {
  const RNNOptions o{.num_layers = 2, .bidirectional = true};
  const auto same = [](const Tensor& t) { return t; };
  expect_as_alone(RNN(3, 6, o), same, same);
  expect_as_alone(GRU(3, 6, o), same, same);
  expect_as_alone(
      LSTM(3, 6, o),
      [](const Tensor& t) {
        return LSTMState{t, t * 0.5};
      },
      [](const LSTMState& s) { return s.h + s.c; });
  EXPECT_THROW(GRU(3, 6)(PackedSequence{zeros({3, 3}), {}}), ValueError);
}

TEST(Transformer, EncodesAndDecodes) {
  manual_seed(0);
  Transformer model({.d_model = 8,
                     .nhead = 2,
                     .num_encoder_layers = 1,
                     .num_decoder_layers = 2,
                     .layer = {.dim_feedforward = 16, .dropout = 0.0, .batch_first = true}});
  const Tensor src = randn({3, 5, 8}), tgt = randn({3, 4, 8});
  const Tensor mask = generate_square_subsequent_mask(4);
  const Tensor y = model(src, tgt, {.tgt_mask = mask});
  EXPECT_TRUE(allclose(y, model.decoder(tgt, model.encoder(src), {.tgt_mask = mask}), 1e-5, 1e-6));
  // No position sees those after it.
  const Tensor changed = cat({tgt.narrow(1, 0, 3), randn({3, 1, 8})}, 1);
  const Tensor z = model(src, changed, {.tgt_mask = mask});
  EXPECT_TRUE(allclose(y.narrow(1, 0, 3), z.narrow(1, 0, 3), 1e-5, 1e-6));
  EXPECT_FALSE(allclose(y.narrow(1, 3, 1), z.narrow(1, 3, 1), 1e-3, 1e-3));
  EXPECT_TRUE(model.state_dict().contains("decoder.layers.1.multihead_attn.in_proj_weight"));
  EXPECT_TRUE(model.state_dict().contains("encoder.norm.weight"));
  EXPECT_THROW(model(src, randn({2, 4, 8})), ValueError);
  EXPECT_THROW(model(src, randn({3, 4, 6})), ValueError);
}

}  // namespace
}  // namespace arete::nn
