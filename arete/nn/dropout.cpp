#include "arete/nn/dropout.h"

#include "arete/nn/layer_internal.h"
#include "arete/ops/nn.h"

namespace arete::nn {

namespace {
double checked(double p, const char* layer) {
  ARETE_CHECK(p >= 0 && p <= 1, ValueError(layer,
                                           "dropout probability has to be between 0 and 1, "
                                           "but got " +
                                               text_of(p)));
  return p;
}
}  // namespace

Dropout::Dropout(double p) : p_(checked(p, "Dropout")) {}
Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training()); }
std::string Dropout::extra_repr() const { return "p=" + text_of(p_); }

template <int N>
DropoutNd<N>::DropoutNd(double p) : p_(checked(p, "Dropout")) {}
template <int N>
Tensor DropoutNd<N>::forward(const Tensor& x) {
  ARETE_CHECK(x.dim() == N + 1 || x.dim() == N + 2,
              ValueError(name(), "expected " + text_of(int64_t{N + 1}) + "D or " +
                                     text_of(int64_t{N + 2}) + "D input")
                  .got(text_of(x.sizes())));
  if (x.dim() == N + 2) return feature_dropout(x, p_, is_training());
  return feature_dropout(x.unsqueeze(0), p_, is_training()).squeeze(0);
}
template <int N>
std::string DropoutNd<N>::name() const {
  return "Dropout" + std::to_string(N) + "d";
}
template <int N>
std::string DropoutNd<N>::extra_repr() const {
  return "p=" + text_of(p_);
}
template class DropoutNd<1>;
template class DropoutNd<2>;
template class DropoutNd<3>;

AlphaDropout::AlphaDropout(double p) : p_(checked(p, "AlphaDropout")) {}
Tensor AlphaDropout::forward(const Tensor& x) { return alpha_dropout(x, p_, is_training()); }
std::string AlphaDropout::extra_repr() const { return "p=" + text_of(p_); }

}  // namespace arete::nn
