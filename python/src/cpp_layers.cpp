// The layers of C++ for Python, by name: the tests hold Python's layers to them.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <variant>

#include "arete/arete.h"
#include "bindings.h"
#include "caster.h"
#include "layers.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

using namespace nn;
using Tensors = std::vector<Tensor>;

// A layer and its call with any number of tensors.
struct Made {
  std::shared_ptr<Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

Tensors results(const Tensor& t) { return {t}; }
Tensors results(const RNNResult& r) { return {r.output, r.h}; }
Tensors results(const LSTMResult& r) { return {r.output, r.state.h, r.state.c}; }
Tensors results(const LSTMState& s) { return {s.h, s.c}; }
Tensors results(const AttentionResult& r) { return {r.output, r.weights}; }

template <class L>
Tensors call(L& layer, const Tensors& x) {
  constexpr bool is_lstm = requires { layer.forward(x[0], LSTMState{}); };
  constexpr bool is_rnn = requires { RNNResult(layer.forward(x[0], x[1])); };
  if constexpr (is_lstm)
    return results(layer(x[0], x.size() > 1 ? LSTMState{x[1], x[2]} : LSTMState{}));
  if constexpr (is_rnn) return results(layer(x[0], x.size() > 1 ? x[1] : Tensor()));
  if constexpr (requires { layer(x[0]); })
    if (x.size() == 1) return results(layer(x[0]));
  if constexpr (requires { layer(x[0], x[1]); })
    if (x.size() == 2) return results(layer(x[0], x[1]));
  if constexpr (requires { layer(x[0], x[1], x[2]); })
    if (x.size() == 3) return results(layer(x[0], x[1], x[2]));
  if constexpr (requires { layer(x[0], x[1], x[2], x[3]); })
    if (x.size() == 4) return results(layer(x[0], x[1], x[2], x[3]));
  throw TypeError(layer.name(), "cannot be called with these tensors");
}

template <class L>
Made made(L layer) {
  const auto shared = std::make_shared<L>(std::move(layer));
  return {shared, [shared](const Tensors& x) { return call(*shared, x); }};
}

// The options that were given. The others keep what C++ says, but where they stand before one that
// was given: then they are the table's.
class Given {
 public:
  Given(const LayerRecord& layer, nb::dict options) : layer_(layer), options_(options) {}

  bool has(const char* name) const { return options_.contains(name); }
  bool empty() const { return options_.size() == 0; }
  template <class T>
  T get(const char* name) {
    T value{};
    set(name, value);
    return value;
  }
  int64_t integer(const char* name) { return get<int64_t>(name); }
  double real(const char* name) { return get<double>(name); }
  Extent extent(const char* name) {
    Extent value = 0;
    set(name, value);
    return value;
  }

  template <class T>
  Given& operator()(const char* name, T& field) {
    if (has(name)) set(name, field);
    return *this;
  }

 private:
  Option value(const char* name) {
    const size_t i = layer_.option(name);
    return has(name) ? layer_option(nb::object(options_[name]), layer_, i) : layer_.defaults[i];
  }
  template <class T>
  void set(const char* name, T& field) {
    field = std::get<T>(*value(name));
  }
  template <class T>
  void set(const char* name, std::optional<T>& field) {
    if (!value(name).has_value())
      field.reset();
    else
      set(name, field.emplace(T{}));
  }
  void set(const char* name, Extent& field) {
    field = Extent(IntList(std::get<std::vector<int64_t>>(*value(name))));
  }
  void set(const char* name, std::optional<Extent>& field) {
    if (value(name).has_value()) set(name, field.emplace(0));
  }
  void set(const char* name, Padding& field) {
    const Option v = value(name);
    if (const auto* const mode = std::get_if<std::string>(&*v))
      field = Padding(std::string_view(texts_.emplace_back(*mode)));
    else
      field = Padding(IntList(std::get<std::vector<int64_t>>(*v)));
  }
  void set(const char* name, std::string_view& field) {
    field = texts_.emplace_back(std::get<std::string>(*value(name)));
  }
  void set(const char* name, TransformerActivation& field) {
    field = TransformerActivation(std::get<std::string>(*value(name)));
  }
  void set(const char* name, Tensor& field) {
    const Option v = value(name);
    if (v.has_value()) field = std::get<Tensor>(*v);
  }

  const LayerRecord& layer_;
  nb::dict options_;
  std::deque<std::string> texts_;
};

using LayerMaker = std::function<Made(Given&)>;
using LayerMakers = std::map<std::string, LayerMaker, std::less<>>;

InplaceOptions inplace(Given& g) {
  InplaceOptions o;
  g("inplace", o.inplace);
  return o;
}

// A layer of one number and `inplace`.
template <class L>
LayerMaker with_number(const char* name) {
  return [name](Given& g) { return made(g.empty() ? L() : L(g.real(name), inplace(g))); };
}
template <class L>
LayerMaker of_number(const char* name) {
  return [name](Given& g) { return made(g.empty() ? L() : L(g.real(name))); };
}
template <class L>
LayerMaker of_integer(const char* name) {
  return [name](Given& g) { return made(L(g.integer(name))); };
}
template <class L>
LayerMaker of_extent(const char* name) {
  return [name](Given& g) { return made(L(g.extent(name))); };
}
template <class L>
LayerMaker plain() {
  return [](Given&) { return made(L()); };
}

void add_activations(LayerMakers& m) {
#define ARETE_LAYER(Name) m[#Name] = [](Given& g) { return made(Name(inplace(g))); };
  ARETE_LAYER(ReLU)
  ARETE_LAYER(ReLU6)
  ARETE_LAYER(SiLU)
  ARETE_LAYER(Mish)
  ARETE_LAYER(SELU)
  ARETE_LAYER(Hardswish)
  ARETE_LAYER(Hardsigmoid)
#undef ARETE_LAYER
  m["Tanh"] = plain<Tanh>();
  m["Sigmoid"] = plain<Sigmoid>();
  m["LogSigmoid"] = plain<LogSigmoid>();
  m["Softsign"] = plain<Softsign>();
  m["Tanhshrink"] = plain<Tanhshrink>();
  m["Identity"] = plain<Identity>();
  m["Softmax2d"] = plain<Softmax2d>();
  m["GELU"] = [](Given& g) {
    GELUOptions o;
    g("approximate", o.approximate);
    return made(GELU(o));
  };
  m["LeakyReLU"] = with_number<LeakyReLU>("negative_slope");
  m["ELU"] = with_number<ELU>("alpha");
  m["CELU"] = with_number<CELU>("alpha");
  m["RReLU"] = [](Given& g) {
    return made(g.empty() ? RReLU() : RReLU(g.real("lower"), g.real("upper"), inplace(g)));
  };
  m["Hardtanh"] = [](Given& g) {
    return made(g.empty() ? Hardtanh()
                          : Hardtanh(g.real("min_val"), g.real("max_val"), inplace(g)));
  };
  m["Threshold"] = [](Given& g) {
    return made(Threshold(g.real("threshold"), g.real("value"), inplace(g)));
  };
  m["Softplus"] = [](Given& g) {
    return made(g.empty() ? Softplus() : Softplus(g.real("beta"), g.real("threshold")));
  };
  m["Softshrink"] = of_number<Softshrink>("lambd");
  m["Hardshrink"] = of_number<Hardshrink>("lambd");
  m["PReLU"] = [](Given& g) {
    return made(g.empty() ? PReLU() : PReLU(g.integer("num_parameters"), g.real("init")));
  };
  m["GLU"] = [](Given& g) { return made(g.empty() ? GLU() : GLU(g.integer("dim"))); };
  m["Softmax"] = of_integer<Softmax>("dim");
  m["Softmin"] = of_integer<Softmin>("dim");
  m["LogSoftmax"] = of_integer<LogSoftmax>("dim");
  m["Dropout"] = with_number<Dropout>("p");
  m["Dropout1d"] = with_number<Dropout1d>("p");
  m["Dropout2d"] = with_number<Dropout2d>("p");
  m["Dropout3d"] = with_number<Dropout3d>("p");
  m["AlphaDropout"] = with_number<AlphaDropout>("p");
  m["FeatureAlphaDropout"] = with_number<FeatureAlphaDropout>("p");
}

template <int N>
void add_spatial(LayerMakers& m) {
  const auto named = [](const char* base) { return numbered(base, N); };
  m[named("Conv")] = [](Given& g) {
    ConvOptions o;
    g("stride", o.stride)("padding", o.padding)("dilation", o.dilation)("groups", o.groups)(
        "bias", o.bias)("padding_mode", o.padding_mode);
    return made(
        ConvNd<N>(g.integer("in_channels"), g.integer("out_channels"), g.extent("kernel_size"), o));
  };
  m[named("ConvTranspose")] = [](Given& g) {
    ConvTransposeOptions o;
    g("stride", o.stride)("padding", o.padding)("output_padding", o.output_padding)(
        "groups", o.groups)("bias", o.bias)("dilation", o.dilation)("padding_mode", o.padding_mode);
    return made(ConvTransposeNd<N>(g.integer("in_channels"), g.integer("out_channels"),
                                   g.extent("kernel_size"), o));
  };
  m[named("MaxPool")] = [](Given& g) {
    MaxPoolOptions o;
    g("stride", o.stride)("padding", o.padding)("dilation", o.dilation)("ceil_mode", o.ceil_mode);
    return made(MaxPoolNd<N>(g.extent("kernel_size"), o));
  };
  m[named("MaxUnpool")] = [](Given& g) {
    MaxUnpoolOptions o;
    g("stride", o.stride)("padding", o.padding);
    return made(MaxUnpoolNd<N>(g.extent("kernel_size"), o));
  };
  m[named("AvgPool")] = [](Given& g) {
    if constexpr (N == 1) {
      AvgPool1dOptions o;
      g("stride", o.stride)("padding", o.padding)("ceil_mode", o.ceil_mode)("count_include_pad",
                                                                            o.count_include_pad);
      return made(AvgPool1d(g.extent("kernel_size"), o));
    } else {
      AvgPoolOptions o;
      g("stride", o.stride)("padding", o.padding)("ceil_mode", o.ceil_mode)(
          "count_include_pad", o.count_include_pad)("divisor_override", o.divisor_override);
      return made(AvgPoolNd<N>(g.extent("kernel_size"), o));
    }
  };
  m[named("LPPool")] = [](Given& g) {
    LPPoolOptions o;
    g("stride", o.stride)("ceil_mode", o.ceil_mode);
    return made(LPPoolNd<N>(g.real("norm_type"), g.extent("kernel_size"), o));
  };
  if constexpr (N > 1)
    m[named("FractionalMaxPool")] = [](Given& g) {
      FractionalMaxPoolOptions o;
      g("output_size", o.output_size)("output_ratio", o.output_ratio)("_random_samples",
                                                                      o.random_samples);
      return made(FractionalMaxPoolNd<N>(g.extent("kernel_size"), o));
    };
  m[named("AdaptiveAvgPool")] = of_extent<AdaptiveAvgPoolNd<N>>("output_size");
  m[named("AdaptiveMaxPool")] = of_extent<AdaptiveMaxPoolNd<N>>("output_size");
  m[named("ZeroPad")] = of_extent<ZeroPadNd<N>>("padding");
  m[named("ReflectionPad")] = of_extent<ReflectionPadNd<N>>("padding");
  m[named("ReplicationPad")] = of_extent<ReplicationPadNd<N>>("padding");
  m[named("CircularPad")] = of_extent<CircularPadNd<N>>("padding");
  m[named("ConstantPad")] = [](Given& g) {
    return made(ConstantPadNd<N>(g.extent("padding"), g.real("value")));
  };
  m[named("BatchNorm")] = [](Given& g) {
    BatchNormOptions o;
    g("eps", o.eps)("momentum", o.momentum)("affine", o.affine)("track_running_stats",
                                                                o.track_running_stats);
    using L = std::conditional_t<N == 1, BatchNorm1d,
                                 std::conditional_t<N == 2, BatchNorm2d, BatchNorm3d>>;
    return made(L(g.integer("num_features"), o));
  };
  m[named("InstanceNorm")] = [](Given& g) {
    InstanceNormOptions o;
    g("eps", o.eps)("momentum", o.momentum)("affine", o.affine)("track_running_stats",
                                                                o.track_running_stats);
    return made(InstanceNormNd<N>(g.integer("num_features"), o));
  };
}

void add_shapes(LayerMakers& m) {
  m["Flatten"] = [](Given& g) {
    return made(g.empty() ? Flatten() : Flatten(g.integer("start_dim"), g.integer("end_dim")));
  };
  m["Unflatten"] = [](Given& g) {
    return made(Unflatten(g.integer("dim"), g.get<std::vector<int64_t>>("unflattened_size")));
  };
  m["Upsample"] = [](Given& g) {
    UpsampleOptions o;
    g("size", o.size)("scale_factor", o.scale_factor)("mode", o.mode)(
        "align_corners", o.align_corners)("recompute_scale_factor", o.recompute_scale_factor);
    return made(Upsample(o));
  };
  m["PixelShuffle"] = of_integer<PixelShuffle>("upscale_factor");
  m["PixelUnshuffle"] = of_integer<PixelUnshuffle>("downscale_factor");
  m["ChannelShuffle"] = of_integer<ChannelShuffle>("groups");
  const auto windows = [](Given& g) {
    FoldOptions o;
    g("dilation", o.dilation)("padding", o.padding)("stride", o.stride);
    return o;
  };
  m["Fold"] = [windows](Given& g) {
    return made(Fold(g.extent("output_size"), g.extent("kernel_size"), windows(g)));
  };
  m["Unfold"] = [windows](Given& g) { return made(Unfold(g.extent("kernel_size"), windows(g))); };
}

void add_weighted(LayerMakers& m) {
  m["Linear"] = [](Given& g) {
    LinearOptions o;
    g("bias", o.bias);
    return made(Linear(g.integer("in_features"), g.integer("out_features"), o));
  };
  m["Bilinear"] = [](Given& g) {
    LinearOptions o;
    g("bias", o.bias);
    return made(Bilinear(g.integer("in1_features"), g.integer("in2_features"),
                         g.integer("out_features"), o));
  };
  m["Embedding"] = [](Given& g) {
    EmbeddingOptions o;
    g("padding_idx", o.padding_idx)("max_norm", o.max_norm)("norm_type", o.norm_type)(
        "scale_grad_by_freq", o.scale_grad_by_freq)("sparse", o.sparse);
    return made(Embedding(g.integer("num_embeddings"), g.integer("embedding_dim"), o));
  };
  m["EmbeddingBag"] = [](Given& g) {
    EmbeddingBagOptions o;
    g("max_norm", o.max_norm)("norm_type", o.norm_type)("scale_grad_by_freq", o.scale_grad_by_freq)(
        "mode", o.mode)("sparse", o.sparse)("include_last_offset", o.include_last_offset)(
        "padding_idx", o.padding_idx);
    return made(EmbeddingBag(g.integer("num_embeddings"), g.integer("embedding_dim"), o));
  };
  m["LayerNorm"] = [](Given& g) {
    LayerNormOptions o;
    g("eps", o.eps)("elementwise_affine", o.elementwise_affine)("bias", o.bias);
    return made(LayerNorm(IntList(g.get<std::vector<int64_t>>("normalized_shape")), o));
  };
  m["RMSNorm"] = [](Given& g) {
    RMSNormOptions o;
    g("eps", o.eps)("elementwise_affine", o.elementwise_affine);
    return made(RMSNorm(IntList(g.get<std::vector<int64_t>>("normalized_shape")), o));
  };
  m["LocalResponseNorm"] = [](Given& g) {
    LocalResponseNormOptions o;
    g("alpha", o.alpha)("beta", o.beta)("k", o.k);
    return made(LocalResponseNorm(g.integer("size"), o));
  };
  m["CosineSimilarity"] = [](Given& g) {
    CosineSimilarityOptions o;
    g("dim", o.dim)("eps", o.eps);
    return made(CosineSimilarity(o));
  };
  m["PairwiseDistance"] = [](Given& g) {
    PairwiseDistanceOptions o;
    g("p", o.p)("eps", o.eps)("keepdim", o.keepdim);
    return made(PairwiseDistance(o));
  };
  m["GroupNorm"] = [](Given& g) {
    GroupNormOptions o;
    g("eps", o.eps)("affine", o.affine);
    return made(GroupNorm(g.integer("num_groups"), g.integer("num_channels"), o));
  };
}

template <class L>
LayerMaker recurrent() {
  return [](Given& g) {
    RNNOptions o;
    g("num_layers", o.num_layers)("nonlinearity", o.nonlinearity)("bias", o.bias)(
        "batch_first", o.batch_first)("dropout", o.dropout)("bidirectional", o.bidirectional)(
        "proj_size", o.proj_size);
    return made(L(g.integer("input_size"), g.integer("hidden_size"), o));
  };
}

template <class L>
LayerMaker cell() {
  return [](Given& g) {
    CellOptions o;
    g("bias", o.bias)("nonlinearity", o.nonlinearity);
    return made(L(g.integer("input_size"), g.integer("hidden_size"), o));
  };
}

template <class L>
LayerMaker transformer_layer() {
  return [](Given& g) {
    TransformerLayerOptions o;
    g("dim_feedforward", o.dim_feedforward)("dropout", o.dropout)("activation", o.activation)(
        "layer_norm_eps", o.layer_norm_eps)("batch_first", o.batch_first)(
        "norm_first", o.norm_first)("bias", o.bias);
    return made(L(g.integer("d_model"), g.integer("nhead"), o));
  };
}

void add_sequences(LayerMakers& m) {
  m["RNN"] = recurrent<RNN>();
  m["GRU"] = recurrent<GRU>();
  m["LSTM"] = recurrent<LSTM>();
  m["RNNCell"] = cell<RNNCell>();
  m["GRUCell"] = cell<GRUCell>();
  m["LSTMCell"] = cell<LSTMCell>();
  m["MultiheadAttention"] = [](Given& g) {
    MultiheadAttentionOptions o;
    g("dropout", o.dropout)("bias", o.bias)("add_bias_kv", o.add_bias_kv)(
        "add_zero_attn", o.add_zero_attn)("kdim", o.kdim)("vdim", o.vdim)("batch_first",
                                                                          o.batch_first);
    return made(MultiheadAttention(g.integer("embed_dim"), g.integer("num_heads"), o));
  };
  m["TransformerEncoderLayer"] = transformer_layer<TransformerEncoderLayer>();
  m["TransformerDecoderLayer"] = transformer_layer<TransformerDecoderLayer>();
}

// What losses have among their options.
template <class O>
void loss_options(Given& g, O& o) {
#define ARETE_FIELD(field) \
  if constexpr (requires { o.field; }) g(#field, o.field);
  ARETE_FIELD(weight)
  ARETE_FIELD(ignore_index)
  ARETE_FIELD(reduction)
  ARETE_FIELD(label_smoothing)
  ARETE_FIELD(beta)
  ARETE_FIELD(delta)
  ARETE_FIELD(pos_weight)
  ARETE_FIELD(p)
  ARETE_FIELD(margin)
  ARETE_FIELD(log_target)
  ARETE_FIELD(log_input)
  ARETE_FIELD(full)
  ARETE_FIELD(eps)
  ARETE_FIELD(swap)
  ARETE_FIELD(blank)
  ARETE_FIELD(zero_infinity)
#undef ARETE_FIELD
}
template <class L, class O>
LayerMaker loss() {
  return [](Given& g) {
    O o;
    loss_options(g, o);
    return made(L(o));
  };
}

void add_losses(LayerMakers& m) {
  m["L1Loss"] = loss<L1Loss, LossOptions>();
  m["MSELoss"] = loss<MSELoss, LossOptions>();
  m["SoftMarginLoss"] = loss<SoftMarginLoss, LossOptions>();
  m["MultiLabelMarginLoss"] = loss<MultiLabelMarginLoss, LossOptions>();
  m["CrossEntropyLoss"] = loss<CrossEntropyLoss, CrossEntropyLossOptions>();
  m["NLLLoss"] = loss<NLLLoss, NLLLossOptions>();
  m["SmoothL1Loss"] = loss<SmoothL1Loss, SmoothL1LossOptions>();
  m["HuberLoss"] = loss<HuberLoss, HuberLossOptions>();
  m["BCELoss"] = loss<BCELoss, WeightedLossOptions>();
  m["MultiLabelSoftMarginLoss"] = loss<MultiLabelSoftMarginLoss, WeightedLossOptions>();
  m["BCEWithLogitsLoss"] = loss<BCEWithLogitsLoss, BCEWithLogitsLossOptions>();
  m["MultiMarginLoss"] = loss<MultiMarginLoss, MultiMarginLossOptions>();
  m["KLDivLoss"] = loss<KLDivLoss, KLDivLossOptions>();
  m["PoissonNLLLoss"] = loss<PoissonNLLLoss, PoissonNLLLossOptions>();
  m["HingeEmbeddingLoss"] = loss<HingeEmbeddingLoss, HingeEmbeddingLossOptions>();
  m["GaussianNLLLoss"] = loss<GaussianNLLLoss, GaussianNLLLossOptions>();
  m["CosineEmbeddingLoss"] = loss<CosineEmbeddingLoss, MarginLossOptions>();
  m["MarginRankingLoss"] = loss<MarginRankingLoss, MarginLossOptions>();
  m["TripletMarginLoss"] = loss<TripletMarginLoss, TripletMarginLossOptions>();
  m["CTCLoss"] = loss<CTCLoss, CTCLossOptions>();
}

const LayerMakers& makers() {
  static const LayerMakers all = [] {
    LayerMakers m;
    add_activations(m);
    add_spatial<1>(m);
    add_spatial<2>(m);
    add_spatial<3>(m);
    add_shapes(m);
    add_weighted(m);
    add_sequences(m);
    add_losses(m);
    return m;
  }();
  return all;
}

nb::dict tensors(const StateDict& named) {
  nb::dict all;
  for (const auto& [name, tensor] : named)
    if (tensor.defined()) all[name.c_str()] = tensor;
  return all;
}

}  // namespace

void bind_cpp_layers(nb::module_& m) {
  nb::class_<Made>(m, "_CppLayer")
      .def("__repr__", [](const Made& l) { return l.module->to_string(); })
      .def("__call__",
           [](Made& l, const nb::args& inputs) {
             Tensors x;
             for (nb::handle h : inputs) x.push_back(nb::cast<Tensor>(h));
             const WithoutGil free;
             return l.forward(x);
           })
      .def("train", [](Made& l, bool on) { l.module->train(on); })
      .def("double", [](Made& l) { l.module->to(kFloat64); })
      .def("state_dict", [](const Made& l) { return tensors(l.module->state_dict()); })
      .def("parameters", [](const Made& l) { return tensors(l.module->named_parameters()); });
  m.def("_cpp_layers", [] {
    nb::list names;
    for (const auto& [name, make] : makers()) names.append(name);
    return names;
  });
  m.def("_cpp_layer", [](const std::string& name, const nb::kwargs& options) {
    for (const auto& option : options)
      layer_record(name).option(nb::cast<std::string>(option.first));
    Given given(layer_record(name), options);
    return makers().at(name)(given);
  });
}

}  // namespace arete::python
