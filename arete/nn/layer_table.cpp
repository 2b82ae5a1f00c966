// The layers of both languages: see layer_record_internal.h.
#include <algorithm>
#include <variant>

#include "arete/base/warn.h"
#include "arete/nn/layer_internal.h"
#include "arete/nn/layer_record_internal.h"

namespace arete::nn {

namespace {

// ---- what users can get wrong

void check_probability(const LayerOptions& o) {
  const double p = o.real("p");
  ARETE_CHECK(p >= 0 && p <= 1,
              ValueError(o.layer().name,
                         "dropout probability has to be between 0 and 1, but got " + text_of(p)));
}

void check_bounds(const LayerOptions& o) {
  const double low = o.real("min_val"), high = o.real("max_val");
  ARETE_CHECK(high > low, ValueError(o.layer().name, "max_val (" + text_of(high) +
                                                         ") must be greater than min_val (" +
                                                         text_of(low) + ")"));
}

void check_bilinear(const LayerOptions& o) {
  const int64_t n = o.integer("in1_features");
  ARETE_CHECK(n > 0, ValueError(o.layer().name, "in1_features must be > 0, but got " + text_of(n)));
}

void check_groups(const LayerOptions& o) {
  const std::string& layer = o.layer().name;
  const int64_t groups = o.integer("groups");
  ARETE_CHECK(groups > 0, ValueError(layer, "groups must be a positive integer"));
  for (const char* channels : {"in_channels", "out_channels"})
    ARETE_CHECK(o.integer(channels) % groups == 0,
                ValueError(layer, std::string(channels) + " must be divisible by groups")
                    .got(text_of(o.integer(channels)) + " and " + text_of(groups)));
  const size_t numbers = o.layer().numbers(o.layer().option("kernel_size"));
  for (const char* name : {"kernel_size", "stride", "dilation"})
    ARETE_CHECK(o.ints(name).size() == numbers,
                ValueError(layer, "there must be one number, or one for each spatial dimension")
                    .argument(name)
                    .expected(text_of(int64_t(numbers)) + " numbers")
                    .got(tuple_text(o.ints(name))));
}

void check_conv(const LayerOptions& o) {
  check_groups(o);
  const std::string& layer = o.layer().name;
  if (const auto* const padding = std::get_if<std::string>(&*o["padding"])) {
    ARETE_CHECK(*padding == "same" || *padding == "valid",
                ValueError(layer, "Invalid padding string '" + *padding +
                                      "', should be one of {'same', 'valid'}"));
    ARETE_CHECK(*padding == "valid" ||
                    std::ranges::all_of(o.ints("stride"), [](int64_t s) { return s == 1; }),
                ValueError(layer, "padding='same' is not supported for strided convolutions"));
  }
  const std::string& mode = o.text("padding_mode");
  ARETE_CHECK(mode == "zeros" || mode == "reflect" || mode == "replicate" || mode == "circular",
              ValueError(layer,
                         "padding_mode must be one of {'zeros', 'reflect', 'replicate', "
                         "'circular'}, but got padding_mode='" +
                             mode + "'"));
}

void check_conv_transpose(const LayerOptions& o) {
  ARETE_CHECK(
      o.text("padding_mode") == "zeros",
      ValueError(o.layer().name, "Only \"zeros\" padding mode is supported for " + o.layer().name));
  check_groups(o);
}

void check_embedding(const LayerOptions& o) {
  if (!o.has("padding_idx")) return;
  const int64_t row = o.integer("padding_idx"), rows = o.integer("num_embeddings");
  ARETE_CHECK(row >= -rows && row < rows,
              ValueError(o.layer().name, "Padding_idx must be within num_embeddings")
                  .argument("padding_idx")
                  .got(text_of(row)));
}

void check_group_norm(const LayerOptions& o) {
  const int64_t groups = o.integer("num_groups"), channels = o.integer("num_channels");
  ARETE_CHECK(groups > 0, ValueError(o.layer().name, "num_groups must be greater than zero"));
  ARETE_CHECK(channels % groups == 0,
              ValueError(o.layer().name, "num_channels (" + text_of(channels) +
                                             ") must be divisible by num_groups (" +
                                             text_of(groups) + ")"));
}

void check_recurrent(const LayerOptions& o) {
  const std::string& layer = o.layer().name;
  const int64_t layers = o.integer("num_layers"), hidden = o.integer("hidden_size"),
                projected = o.integer("proj_size");
  const double dropout = o.real("dropout");
  ARETE_CHECK(dropout >= 0 && dropout <= 1,
              ValueError(layer,
                         "dropout should be a number in range [0, 1] representing the probability "
                         "of an element being zeroed"));
  ARETE_CHECK(o.integer("input_size") > 0,
              ValueError(layer, "input_size must be greater than zero"));
  ARETE_CHECK(hidden > 0, ValueError(layer, "hidden_size must be greater than zero"));
  ARETE_CHECK(layers > 0, ValueError(layer, "num_layers must be greater than zero"));
  ARETE_CHECK(projected == 0 || layer == "LSTM",
              ValueError(layer, "proj_size argument is only supported for LSTM, not RNN or GRU"));
  ARETE_CHECK(projected >= 0, ValueError(layer,
                                         "proj_size should be a positive integer or zero to "
                                         "disable projections"));
  ARETE_CHECK(projected < hidden,
              ValueError(layer, "proj_size has to be smaller than hidden_size"));
  if (layer == "RNN") {
    const std::string& f = o.text("nonlinearity");
    ARETE_CHECK(
        f == "tanh" || f == "relu",
        ValueError(layer, "Unknown nonlinearity '" + f + "'. Select from 'tanh' or 'relu'."));
  }
  if (dropout > 0 && layers == 1)
    warn(
        "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
        "expects num_layers greater than 1, but got dropout=" +
        text_of(dropout) + " and num_layers=1");
}

void check_attention(const LayerOptions& o) {
  const int64_t embed = o.integer("embed_dim"), heads = o.integer("num_heads");
  ARETE_CHECK(embed > 0 && heads > 0,
              ValueError(o.layer().name,
                         "embed_dim and num_heads must be greater than 0, got embed_dim=" +
                             text_of(embed) + " and num_heads=" + text_of(heads) + " instead"));
  ARETE_CHECK(embed % heads == 0,
              ValueError(o.layer().name, "embed_dim must be divisible by num_heads"));
}

void check_multi_margin(const LayerOptions& o) {
  ARETE_CHECK(o.integer("p") == 1 || o.integer("p") == 2,
              ValueError(o.layer().name, "only p == 1 and p == 2 supported"));
  if (!o.has("weight")) return;
  const int64_t rank = o.get<Tensor>("weight").dim();
  ARETE_CHECK(rank == 1, ValueError(o.layer().name,
                                    "MultiMarginLoss: expected weight to be None or 1D tensor, "
                                    "got " +
                                        text_of(rank) + "D instead"));
}

void check_margin(const LayerOptions& o) {
  ARETE_CHECK(
      o.real("margin") > 0,
      ValueError(o.layer().name, o.layer().name + ": expected margin to be greater than 0, got " +
                                     text_of(o.real("margin")) + " instead"));
}

void check_fractional(const LayerOptions& o) {
  const std::string& layer = o.layer().name;
  ARETE_CHECK(o.has("output_size") || o.has("output_ratio"),
              ValueError(layer, layer + " requires specifying either an output size, or a pooling "
                                        "ratio"));
  ARETE_CHECK(!o.has("output_size") || !o.has("output_ratio"),
              ValueError(layer, "only one of output_size and output_ratio may be specified"));
  if (!o.has("output_ratio")) return;
  for (double r : o.get<std::vector<double>>("output_ratio"))
    ARETE_CHECK(r > 0 && r < 1,
                ValueError(layer, "output_ratio must be between 0 and 1 (got " + text_of(r) + ")"));
}

// ---- the layers

#define ARETE_REDUCTION "bool? size_average=None, bool? reduce=None, str reduction='mean'"
#define ARETE_POOL "int[] kernel_size, int[]? stride=kernel_size, int[] padding=0, "
#define ARETE_CHANNELS "int in_channels, int out_channels, int[#] kernel_size, int[#] stride=1, "
#define ARETE_RECURRENT                                                                       \
  "bool bias=True, bool batch_first=False, float dropout=0.0, bool bidirectional=False, int " \
  "proj_size=0"
#define ARETE_TRANSFORMER                                                                        \
  "int d_model, int nhead, int dim_feedforward=2048, float dropout=0.1, str activation='relu', " \
  "float layer_norm_eps=1e-05, bool batch_first=False, bool norm_first=False, bool bias=True"
constexpr const char* kRecurrentText =
    "=input_size, =hidden_size, proj_size?, num_layers?, bias?, batch_first?, dropout?, "
    "bidirectional?";

struct Line {
  const char *schema, *call, *shown;
  void (*check)(const LayerOptions&) = nullptr;
  int first = 1;  // "#" stands for the numbers from here to 3, "@" for twice as much
};

const Line kLines[] = {
    // activations
    {"Threshold(float threshold, float value, bool inplace=False)", "threshold",
     "threshold, value, inplace?"},
    {"ReLU(bool inplace=False)", "relu", "inplace?"},
    {"RReLU(float lower=0.125, float upper=0.3333333333333333, bool inplace=False)", "rrelu",
     "lower, upper, inplace?"},
    {"Hardtanh(float min_val=-1.0, float max_val=1.0, bool inplace=False)", "hardtanh",
     "min_val, max_val, inplace?", check_bounds},
    {"ReLU6(bool inplace=False)", "relu6", "inplace?"},
    {"Sigmoid()", "sigmoid", ""},
    {"Hardsigmoid(bool inplace=False)", "hardsigmoid", ""},
    {"Tanh()", "tanh", ""},
    {"SiLU(bool inplace=False)", "silu", "inplace?"},
    {"Mish(bool inplace=False)", "mish", "inplace?"},
    {"Hardswish(bool inplace=False)", "hardswish", ""},
    {"ELU(float alpha=1.0, bool inplace=False)", "elu", "alpha, inplace?"},
    {"CELU(float alpha=1.0, bool inplace=False)", "celu", "alpha, inplace?"},
    {"SELU(bool inplace=False)", "selu", "inplace?"},
    {"GLU(int dim=-1)", "glu", "dim"},
    {"GELU(str approximate='none')", "gelu", "'approximate'"},
    {"Hardshrink(float lambd=0.5)", "hardshrink", "=lambd"},
    {"LeakyReLU(float negative_slope=0.01, bool inplace=False)", "leaky_relu",
     "negative_slope, inplace?"},
    {"LogSigmoid()", "logsigmoid", ""},
    {"Softplus(float beta=1.0, float threshold=20.0)", "softplus", "beta, threshold"},
    {"Softshrink(float lambd=0.5)", "softshrink", "=lambd"},
    {"PReLU(int num_parameters=1, float init=0.25)", "prelu", "num_parameters"},
    {"Softsign()", "softsign", ""},
    {"Tanhshrink()", "tanhshrink", ""},
    {"Softmin(int? dim=None)", "softmin", "dim"},
    {"Softmax(int? dim=None)", "softmax", "dim"},
    {"Softmax2d()", "softmax(dim=-3)", ""},
    {"LogSoftmax(int? dim=None)", "log_softmax", "dim"},
    // dropout
    {"Dropout(float p=0.5, bool inplace=False)", "dropout", "p, inplace", check_probability},
    {"Dropout#d(float p=0.5, bool inplace=False)", "dropout#d", "p, inplace", check_probability},
    {"AlphaDropout(float p=0.5, bool inplace=False)", "alpha_dropout", "p, inplace",
     check_probability},
    {"FeatureAlphaDropout(float p=0.5, bool inplace=False)", "feature_alpha_dropout", "p, inplace",
     check_probability},
    // products and tables
    {"Identity()", "", ""},
    {"Linear(int in_features, int out_features, bool bias=True)", "",
     "in_features, out_features, bias"},
    {"Bilinear(int in1_features, int in2_features, int out_features, bool bias=True)", "",
     "in1_features, in2_features, out_features, bias", check_bilinear},
    {"Embedding(int num_embeddings, int embedding_dim, int? padding_idx=None, float? "
     "max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False)",
     "embedding",
     "=num_embeddings, =embedding_dim, padding_idx?, max_norm?, norm_type?, scale_grad_by_freq?, "
     "sparse?",
     check_embedding},
    {"EmbeddingBag(int num_embeddings, int embedding_dim, float? max_norm=None, float "
     "norm_type=2.0, bool scale_grad_by_freq=False, str mode='mean', bool sparse=False, bool "
     "include_last_offset=False, int? padding_idx=None)",
     "embedding_bag",
     "=num_embeddings, =embedding_dim, max_norm?, norm_type?, scale_grad_by_freq?, 'mode', "
     "padding_idx?",
     check_embedding},
    // convolutions
    {"Conv#d(" ARETE_CHANNELS
     "int[#] padding=0, int[#] dilation=1, int groups=1, bool bias=True, str "
     "padding_mode='zeros')",
     "",
     "=in_channels, =out_channels, kernel_size, stride, padding?, dilation?, groups?, bias?, "
     "padding_mode?",
     check_conv},
    {"ConvTranspose#d(" ARETE_CHANNELS
     "int[#] padding=0, int[#] output_padding=0, int groups=1, bool bias=True, int[#] dilation=1, "
     "str padding_mode='zeros')",
     "",
     "=in_channels, =out_channels, kernel_size, stride, padding?, dilation?, output_padding?, "
     "groups?, bias?, padding_mode?",
     check_conv_transpose},
    // pooling
    {"MaxPool#d(" ARETE_POOL "int[] dilation=1, bool return_indices=False, bool ceil_mode=False)",
     "max_pool#d", "kernel_size, stride, padding, dilation, ceil_mode"},
    {"MaxUnpool#d(int[#] kernel_size, int[#]? stride=kernel_size, int[#] padding=0)",
     "max_unpool#d", "kernel_size, stride, padding"},
    {"AvgPool1d(int[1] kernel_size, int[1]? stride=kernel_size, int[1] padding=0, bool "
     "ceil_mode=False, bool count_include_pad=True)",
     "avg_pool1d", "kernel_size, stride, padding"},
    {"AvgPool#d(" ARETE_POOL
     "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)",
     "avg_pool#d", "kernel_size, stride, padding", nullptr, 2},
    {"FractionalMaxPool#d(int[#] kernel_size, int[#]? output_size=None, float[#]? "
     "output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
     "fractional_max_pool#d", "", check_fractional, 2},
    {"LPPool#d(float norm_type, int[] kernel_size, int[]? stride=None, bool ceil_mode=False)",
     "lp_pool#d", "norm_type, kernel_size, stride, ceil_mode"},
    {"AdaptiveMaxPool#d(int[] output_size, bool return_indices=False)", "adaptive_max_pool#d",
     "output_size"},
    {"AdaptiveAvgPool#d(int[] output_size)", "adaptive_avg_pool#d", "output_size"},
    // padding
    {"CircularPad#d(int[@] padding)", "pad(pad=padding, mode='circular')", "=padding"},
    {"ConstantPad#d(int[@] padding, float value)", "pad(pad=padding)", "padding, value"},
    {"ReflectionPad#d(int[@] padding)", "pad(pad=padding, mode='reflect')", "=padding"},
    {"ReplicationPad#d(int[@] padding)", "pad(pad=padding, mode='replicate')", "=padding"},
    {"ZeroPad#d(int[@] padding)", "pad(pad=padding)", "=padding"},
    // shapes
    {"Flatten(int start_dim=1, int end_dim=-1)", "flatten", "start_dim, end_dim"},
    {"Unflatten(int dim, int[] unflattened_size)", "unflatten(sizes=unflattened_size)",
     "dim, unflattened_size"},
    {"Fold(int[] output_size, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] "
     "stride=1)",
     "fold", "output_size, kernel_size, dilation, padding, stride"},
    {"Unfold(int[] kernel_size, int[] dilation=1, int[] padding=0, int[] stride=1)",
     "unfold_im2col", "kernel_size, dilation, padding, stride"},
    {"Upsample(int[]? size=None, float[]? scale_factor=None, str mode='nearest', bool? "
     "align_corners=None, bool? recompute_scale_factor=None)",
     "interpolate", "scale_factor?, size?, 'mode'"},
    {"PixelShuffle(int upscale_factor)", "pixel_shuffle", "upscale_factor"},
    {"PixelUnshuffle(int downscale_factor)", "pixel_unshuffle", "downscale_factor"},
    {"ChannelShuffle(int groups)", "channel_shuffle", "groups"},
    // norms and distances
    {"BatchNorm#d(int num_features, float eps=1e-5, float? momentum=0.1, bool affine=True, bool "
     "track_running_stats=True)",
     "", "=num_features, eps, momentum, affine, track_running_stats"},
    {"InstanceNorm#d(int num_features, float eps=1e-5, float? momentum=0.1, bool affine=False, "
     "bool track_running_stats=False)",
     "", "=num_features, eps, momentum, affine, track_running_stats"},
    {"LayerNorm(int[1] normalized_shape, float eps=1e-5, bool elementwise_affine=True, bool "
     "bias=True)",
     "", "=normalized_shape, eps, elementwise_affine"},
    {"RMSNorm(int[1] normalized_shape, float? eps=None, bool elementwise_affine=True)", "",
     "=normalized_shape, eps, elementwise_affine"},
    {"GroupNorm(int num_groups, int num_channels, float eps=1e-5, bool affine=True)", "",
     "=num_groups, =num_channels, eps, affine", check_group_norm},
    {"LocalResponseNorm(int size, float alpha=0.0001, float beta=0.75, float k=1.0)",
     "local_response_norm", "=size, alpha, beta, k"},
    {"CrossMapLRN2d(int size, float alpha=0.0001, float beta=0.75, float k=1)",
     "local_response_norm", "=size, alpha, beta, k"},
    {"CosineSimilarity(int dim=1, float eps=1e-8)", "cosine_similarity", ""},
    {"PairwiseDistance(float p=2.0, float eps=1e-6, bool keepdim=False)", "pairwise_distance", ""},
    // sequences
    {"RNN(int input_size, int hidden_size, int num_layers=1, str "
     "nonlinearity='tanh', " ARETE_RECURRENT ")",
     "", kRecurrentText, check_recurrent},
    {"GRU(int input_size, int hidden_size, int num_layers=1, " ARETE_RECURRENT ")", "",
     kRecurrentText, check_recurrent},
    {"LSTM(int input_size, int hidden_size, int num_layers=1, " ARETE_RECURRENT ")", "",
     kRecurrentText, check_recurrent},
    {"RNNCell(int input_size, int hidden_size, bool bias=True, str nonlinearity='tanh')", "",
     "=input_size, =hidden_size, bias?, nonlinearity?"},
    {"GRUCell(int input_size, int hidden_size, bool bias=True)", "",
     "=input_size, =hidden_size, bias?"},
    {"LSTMCell(int input_size, int hidden_size, bool bias=True)", "",
     "=input_size, =hidden_size, bias?"},
    {"MultiheadAttention(int embed_dim, int num_heads, float dropout=0.0, bool bias=True, bool "
     "add_bias_kv=False, bool add_zero_attn=False, int? kdim=embed_dim, int? vdim=embed_dim, bool "
     "batch_first=False)",
     "", "", check_attention},
    {"TransformerEncoderLayer(" ARETE_TRANSFORMER ")", "", ""},
    {"TransformerDecoderLayer(" ARETE_TRANSFORMER ")", "", ""},
    // losses
    {"L1Loss(" ARETE_REDUCTION ")", "l1_loss", ""},
    {"MSELoss(" ARETE_REDUCTION ")", "mse_loss", ""},
    {"SmoothL1Loss(" ARETE_REDUCTION ", float beta=1.0)", "smooth_l1_loss", ""},
    {"HuberLoss(str reduction='mean', float delta=1.0)", "huber_loss", ""},
    {"NLLLoss(Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? "
     "reduce=None, str reduction='mean')",
     "nll_loss", ""},
    {"CrossEntropyLoss(Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? "
     "reduce=None, str reduction='mean', float label_smoothing=0.0)",
     "cross_entropy", ""},
    {"PoissonNLLLoss(bool log_input=True, bool full=False, bool? size_average=None, float "
     "eps=1e-8, bool? reduce=None, str reduction='mean')",
     "poisson_nll_loss", ""},
    {"GaussianNLLLoss(*, bool full=False, float eps=1e-6, str reduction='mean')",
     "gaussian_nll_loss", ""},
    {"KLDivLoss(" ARETE_REDUCTION ", bool log_target=False)", "kl_div", ""},
    {"BCELoss(Tensor? weight=None, " ARETE_REDUCTION ")", "binary_cross_entropy", ""},
    {"BCEWithLogitsLoss(Tensor? weight=None, " ARETE_REDUCTION ", Tensor? pos_weight=None)",
     "binary_cross_entropy_with_logits", ""},
    {"HingeEmbeddingLoss(float margin=1.0, " ARETE_REDUCTION ")", "hinge_embedding_loss", ""},
    {"MultiLabelMarginLoss(" ARETE_REDUCTION ")", "multilabel_margin_loss", ""},
    {"SoftMarginLoss(" ARETE_REDUCTION ")", "soft_margin_loss", ""},
    {"MultiLabelSoftMarginLoss(Tensor? weight=None, " ARETE_REDUCTION ")",
     "multilabel_soft_margin_loss", ""},
    {"CosineEmbeddingLoss(float margin=0.0, " ARETE_REDUCTION ")", "cosine_embedding_loss", ""},
    {"MarginRankingLoss(float margin=0.0, " ARETE_REDUCTION ")", "margin_ranking_loss", ""},
    {"MultiMarginLoss(int p=1, float margin=1.0, Tensor? weight=None, " ARETE_REDUCTION ")",
     "multi_margin_loss", "", check_multi_margin},
    {"TripletMarginLoss(float margin=1.0, float p=2.0, float eps=1e-6, bool "
     "swap=False, " ARETE_REDUCTION ")",
     "triplet_margin_loss", "", check_margin},
    {"CTCLoss(int blank=0, str reduction='mean', bool zero_infinity=False)", "ctc_loss", ""},
};

std::vector<LayerRecord> read_table() {
  std::vector<LayerRecord> all;
  const auto filled = [](std::string text, int n) {
    for (size_t i; (i = text.find('#')) != std::string::npos;)
      text.replace(i, 1, std::to_string(n));
    for (size_t i; (i = text.find('@')) != std::string::npos;)
      text.replace(i, 1, std::to_string(2 * n));
    return text;
  };
  for (const Line& line : kLines) {
    const int last =
        std::string_view(line.schema).find('#') != std::string_view::npos ? 3 : line.first;
    for (int n = line.first; n <= last; ++n) {
      LayerRecord& r = all.emplace_back();
      r.schema = filled(line.schema, n);
      r.call = filled(line.call, n);
      r.shown = line.shown;
      r.check = line.check;
      r.read();
    }
  }
  std::ranges::sort(all, {}, &LayerRecord::name);
  return all;
}

}  // namespace

std::span<const LayerRecord> all_layers() {
  static const std::vector<LayerRecord> all = read_table();
  return all;
}

const LayerRecord* find_layer(std::string_view name) {
  const auto all = all_layers();
  const auto found = std::ranges::lower_bound(all, name, {}, &LayerRecord::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

const LayerRecord& layer_record(std::string_view name) {
  const LayerRecord* const r = find_layer(name);
  if (!r) ARETE_BUG(("there is no layer " + std::string(name)).c_str());
  return *r;
}

}  // namespace arete::nn
