// Trains a small convolutional network on Fashion-MNIST.
//
//   image_classifier [EPOCHS [FOLDER]]
//
// FOLDER holds the four files of the data set; by default they are looked for where `./dev demo`
// puts them.
#include <arete/arete.h>

#include <cstdio>
#include <cstdlib>

using namespace arete;

struct Net : nn::Module {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(1, 16, 3, {.padding = 1}));
  nn::BatchNorm2d norm1 = child("norm1", nn::BatchNorm2d(16));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(16, 32, 3, {.padding = 1}));
  nn::BatchNorm2d norm2 = child("norm2", nn::BatchNorm2d(32));
  nn::Linear head = child("head", nn::Linear(32 * 7 * 7, 10));

  Tensor forward(const Tensor& images) override {
    Tensor x = max_pool2d(relu(norm1(conv1(images))), 2);
    x = max_pool2d(relu(norm2(conv2(x))), 2);
    return head(x.flatten(1));
  }
};

double accuracy(Net& net, data::DataLoader& loader) {
  InferenceModeGuard inference;
  net.eval();
  int64_t correct = 0, seen = 0;
  for (const data::Batch& batch : loader) {
    correct += (net(batch.input()).argmax(1) == batch.target()).sum().item<int64_t>();
    seen += batch.target().numel();
  }
  net.train();
  return double(correct) / double(seen);
}

int main(int argc, char** argv) try {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string folder = data::FashionMNIST::find_folder(argc > 2 ? argv[2] : "");
  auto train_set = std::make_shared<data::FashionMNIST>(folder, true, 0.286, 0.353);
  auto test_set = std::make_shared<data::FashionMNIST>(folder, false, 0.286, 0.353);
  data::DataLoader train(train_set, {.batch_size = 128, .shuffle = true, .num_workers = 1});
  data::DataLoader test(test_set, {.batch_size = 500, .num_workers = 1});

  manual_seed(0);
  Net net;
  optim::AdamW optimizer(net.parameters(), {.lr = 2e-3});
  std::printf("untrained  test accuracy %.2f %%\n", 100 * accuracy(net, test));
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double loss_sum = 0;
    for (const data::Batch& batch : train) {
      optimizer.zero_grad();
      Tensor loss = cross_entropy(net(batch.input()), batch.target());
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
    }
    std::printf("epoch %d  loss %.4f  test accuracy %.2f %%\n", epoch,
                loss_sum / double(train.size()), 100 * accuracy(net, test));
  }
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
