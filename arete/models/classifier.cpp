#include "arete/models/classifier.h"

#include "arete/nn/activation.h"
#include "arete/nn/conv.h"
#include "arete/nn/linear.h"
#include "arete/nn/norm.h"
#include "arete/nn/pooling.h"
#include "arete/nn/reshape.h"

namespace arete::models {

nn::Sequential mlp() {
  return nn::Sequential(nn::Flatten(), nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 10));
}

nn::Sequential cnn() {
  return nn::Sequential(nn::Conv2d(1, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Conv2d(32, 64, 3, {.padding = 1}),
                        nn::BatchNorm2d(64), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(3136, 10));
}

nn::Sequential classifier(const std::string& name) {
  if (name == "mlp") return mlp();
  if (name == "cnn") return cnn();
  throw ValueError("classifier", "there is no model called '" + name + "'").expected("mlp or cnn");
}

}  // namespace arete::models
