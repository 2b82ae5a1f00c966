#include <cmath>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_tensors;
using test::has;

struct Net : nn::Module {
  nn::Linear fc1 = child("fc1", nn::Linear(3, 4));
  nn::BatchNorm1d bn = child("bn", nn::BatchNorm1d(4));
  nn::Sequential head = child("head", nn::Sequential(nn::ReLU(), nn::Linear(4, 2)));
  nn::Parameter scale = register_parameter("scale", ones({1}));
  Tensor forward(const Tensor& x) override { return head(bn(fc1(x))) * scale; }
};

// What a user might write by mistake: the parameter as a plain Tensor.
struct Careless : nn::Module {
  Tensor w = register_parameter("w", ones({2}));
  Tensor forward(const Tensor& x) override { return x * w; }
};

std::vector<std::string> keys(std::initializer_list<const char*> names) {
  return {names.begin(), names.end()};
}

TEST(NnModule, NamesFollowPyTorch) {
  Net net;
  EXPECT_EQ(net.named_parameters().keys(), keys({"scale", "fc1.weight", "fc1.bias", "bn.weight",
                                                 "bn.bias", "head.1.weight", "head.1.bias"}));
  EXPECT_EQ(net.named_buffers().keys(),
            keys({"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}));
  EXPECT_EQ(net.state_dict().keys(),
            keys({"scale", "fc1.weight", "fc1.bias", "bn.weight", "bn.bias", "bn.running_mean",
                  "bn.running_var", "bn.num_batches_tracked", "head.1.weight", "head.1.bias"}));
  std::vector<std::string> modules;
  for (const nn::NamedModule& m : net.named_modules()) modules.push_back(m.name);
  EXPECT_EQ(modules, keys({"", "fc1", "bn", "head", "head.0", "head.1"}));
  EXPECT_EQ(net.num_parameters(), 1 + 12 + 4 + 8 + 8 + 2);
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.requires_grad());
}

TEST(NnModule, PrintsATree) {
  Net net;
  EXPECT_EQ(
      net.to_string(),
      "Net(\n"
      "  (fc1): Linear(in_features=3, out_features=4, bias=True)\n"
      "  (bn): BatchNorm1d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
      "  (head): Sequential(\n"
      "    (0): ReLU()\n"
      "    (1): Linear(in_features=4, out_features=2, bias=True)\n"
      "  )\n"
      ")");
  EXPECT_EQ(nn::Conv2d(1, 32, 3, {.padding = 1}).to_string(),
            "Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))");
  EXPECT_EQ(nn::Conv1d(4, 8, 5, {.padding = "same", .groups = 2, .bias = false}).to_string(),
            "Conv1d(4, 8, kernel_size=(5,), stride=(1,), padding=same, groups=2, bias=False)");
  EXPECT_EQ(nn::MaxPool2d(2).to_string(),
            "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(nn::LSTM(3, 4, {.num_layers = 2, .bidirectional = true}).to_string(),
            "LSTM(3, 4, num_layers=2, bidirectional=True)");
}

TEST(NnModule, CopiesShareAndClonesDoNot) {
  Net net;
  Net copy = net, moved = std::move(copy);
  EXPECT_TRUE(moved.fc1.weight.is_same(net.fc1.weight));
  EXPECT_EQ(copy.num_parameters(), net.num_parameters()) << "moved-from handles stay usable";
  moved.eval();
  EXPECT_FALSE(net.is_training());
  net.train();

  Net twin = nn::clone(net);
  EXPECT_FALSE(twin.fc1.weight.is_same(net.fc1.weight));
  const nn::StateDict a = net.state_dict(), b = twin.state_dict();
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& [name, value] : a) {
    EXPECT_TRUE(equal(value, b.at(name))) << name;
    EXPECT_NE(value.data_ptr(), b.at(name).data_ptr()) << name;
  }
  // Members, children and registered tensors of the clone are the same objects.
  EXPECT_TRUE(twin.get_parameter("fc1.weight").is_same(twin.fc1.weight));
  EXPECT_TRUE(twin.get_parameter("scale").is_same(twin.scale));
  EXPECT_TRUE(twin.get_parameter("head.1.weight").is_same(twin.head[1].as<nn::Linear>()->weight));
  EXPECT_TRUE(twin.scale.requires_grad());
  const Tensor x = randn({5, 3});
  net.eval();
  twin.eval();
  const Tensor before = net(x);
  expect_tensors(twin(x), before);
  nn::init::zeros_(twin.scale);
  EXPECT_EQ(twin(x).abs().max().item<double>(), 0);
  EXPECT_TRUE(equal(net(x), before));
}

TEST(NnModule, CloneKeepsSharedWeightsShared) {
  nn::Linear tied(2, 2);
  nn::Sequential net(tied, nn::Tanh(), tied);
  EXPECT_EQ(net.parameters().size(), 2u);
  EXPECT_EQ(net.state_dict().size(), 4u);
  nn::Sequential twin = nn::clone(net);
  EXPECT_EQ(twin.parameters().size(), 2u);
  EXPECT_TRUE(twin[0].get_parameter("weight").is_same(twin[2].get_parameter("weight")));
}

TEST(NnModule, CloneRefusesPlainTensorMembers) {
  Careless net;
  EXPECT_TRUE(has(error_of([&] { nn::clone(net); }), "the original's 'w'"));
  Net fine;  // the failed clone has left the thread in order
  EXPECT_TRUE(nn::clone(fine).scale.requires_grad());
}

TEST(NnModule, StateDictGoesRoundTrip) {
  Net a, b;
  a(randn({8, 3}));  // moves the running statistics
  nn::LoadResult loaded = b.load_state_dict(a.state_dict());
  EXPECT_TRUE(loaded.missing_keys.empty() && loaded.unexpected_keys.empty());
  for (const auto& [name, value] : a.state_dict())
    EXPECT_TRUE(equal(value, b.state_dict().at(name))) << name;
  EXPECT_EQ(b.bn.num_batches_tracked.item<int64_t>(), 1);
  const nn::StateDict state = a.state_dict();
  const std::map<std::string, Tensor> as_map(state.begin(), state.end());
  EXPECT_NO_THROW(b.load_state_dict(as_map));
  EXPECT_FALSE(a.state_dict().at("scale").requires_grad());
}

TEST(NnModule, StrictLoadingNamesEverythingAtOnce) {
  Net net;
  nn::StateDict state = net.state_dict();
  EXPECT_TRUE(state.erase("fc1.bias"));
  state.insert("head.1.weight", zeros({3, 3}));
  state.insert("extra", zeros({1}));
  state.insert("scale", full({1}, 7.0));
  const std::string text = error_of([&] { net.load_state_dict(state); });
  EXPECT_TRUE(has(text, "Error(s) in loading state_dict for Net")) << text;
  EXPECT_TRUE(has(text, "Missing key(s) in state_dict: \"fc1.bias\"")) << text;
  EXPECT_TRUE(has(text, "Unexpected key(s) in state_dict: \"extra\"")) << text;
  EXPECT_TRUE(has(text,
                  "size mismatch for head.1.weight: copying a param with shape [3, 3] from "
                  "checkpoint, the shape in current model is [2, 4]"))
      << text;
  EXPECT_EQ(net.scale.item<double>(), 1) << "nothing changes on an error";
  state.insert("head.1.weight", zeros({2, 4}));
  const nn::LoadResult loose = net.load_state_dict(state, false);
  EXPECT_EQ(loose.missing_keys, keys({"fc1.bias"}));
  EXPECT_EQ(loose.unexpected_keys, keys({"extra"}));
  EXPECT_EQ(net.scale.item<double>(), 7);
}

TEST(NnModule, ConversionKeepsParameters) {
  Net net;
  const std::vector<Tensor> before = net.parameters();
  net(randn({4, 3})).sum().backward();
  net.to(kFloat64);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].is_same(net.parameters()[i]));
    EXPECT_EQ(before[i].dtype(), kFloat64);
    EXPECT_EQ(before[i].grad().dtype(), kFloat64);
  }
  EXPECT_EQ(net.bn.running_mean.dtype(), kFloat64);
  EXPECT_EQ(net.bn.num_batches_tracked.dtype(), kInt64);
  net.zero_grad();
  net(randn({4, 3}, kFloat64)).sum().backward();
  EXPECT_EQ(net.fc1.weight.grad().dtype(), kFloat64);
  EXPECT_TRUE(has(error_of([&] { net.to(kInt64); }), "only accepts floating"));
}

TEST(NnModule, TrainingFlagAndGradients) {
  Net net;
  net.eval();
  for (nn::Module* m : net.modules()) EXPECT_FALSE(m->is_training());
  net.train();
  net(randn({4, 3})).sum().backward();
  EXPECT_TRUE(net.scale.grad().defined());
  net.zero_grad(false);
  EXPECT_EQ(net.scale.grad().item<double>(), 0);
  net.zero_grad();
  EXPECT_FALSE(net.scale.grad().defined());
  net.requires_grad_(false);
  EXPECT_EQ(net.num_parameters(true), 0);
}

TEST(NnModule, ApplyVisitsChildrenFirst) {
  Net net;
  std::vector<std::string> order;
  net.apply([&](nn::Module& m) {
    order.push_back(m.name());
    if (auto* linear = m.as<nn::Linear>()) nn::init::constant_(linear->weight, 2);
  });
  EXPECT_EQ(order, keys({"Linear", "BatchNorm1d", "ReLU", "Linear", "Sequential", "Net"}));
  EXPECT_EQ(net.fc1.weight.sum().item<double>(), 24);
}

TEST(NnModule, HooksSeeAndReplace) {
  auto net = nn::Sequential(nn::Identity());
  int seen = 0;
  const uint64_t pre =
      net.register_forward_pre_hook([&](nn::Module&, const Tensor& x) { return ++seen, x * 2; });
  const uint64_t post =
      net[0].register_forward_hook([&](nn::Module& m, const Tensor& x, const Tensor& y) {
        EXPECT_EQ(m.name(), "Identity");
        EXPECT_TRUE(x.is_same(y));
        return y + 1;
      });
  const Tensor x = full({2}, 3.0);
  EXPECT_EQ(net(x).to_vector<double>(), (std::vector<double>{7, 7}));
  net.remove_hook(pre);
  EXPECT_EQ(net(x).to_vector<double>(), (std::vector<double>{4, 4}));
  net[0].remove_hook(post);
  EXPECT_TRUE(net(x).is_same(x));
  EXPECT_EQ(seen, 1);
  net.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor&) { return Tensor(); });
  EXPECT_TRUE(net(x).is_same(x)) << "an undefined result replaces nothing";
}

TEST(NnModule, MistakesAreNamed) {
  Net net;
  EXPECT_TRUE(has(error_of([&] { net.register_parameter("a.b", ones({1})); }), "dot"));
  EXPECT_TRUE(has(error_of([&] { net.register_buffer("scale", ones({1})); }), "already exists"));
  EXPECT_TRUE(has(error_of([&] { net.register_parameter("y", net.scale * 2); }), "non-leaf"));
  EXPECT_TRUE(has(error_of([&] { net.child("self", net); }), "cannot contain itself"));
  EXPECT_TRUE(has(error_of([&] { net.get_submodule("head.7"); }), "one of: 0, 1"));
  EXPECT_TRUE(has(error_of([&] { net.get_parameter("fc2.weight"); }), "fc1.weight"));
  EXPECT_TRUE(
      has(error_of([&] { nn::ModuleList()(ones({1})); }), "missing the required \"forward\""));
  EXPECT_TRUE(has(error_of([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }), "divisible by groups"));
  EXPECT_TRUE(has(error_of([] { nn::Linear(2, -1); }), "negative dimension"));
}

TEST(NnModule, ReplacingAChild) {
  Net net;
  net.fc1 = net.child("fc1", nn::Linear(3, 4, {.bias = false}));
  EXPECT_EQ(net.state_dict().contains("fc1.bias"), false);
  EXPECT_EQ(net(randn({2, 3})).size(1), 2);
}

TEST(NnContainer, ListsDictionariesAndFunctions) {
  struct Blocks : nn::Module {
    nn::ModuleList list = child("list", nn::ModuleList());
    nn::ModuleDict dict = child("dict", nn::ModuleDict());
    Blocks() {
      for (int i = 0; i < 3; ++i) list.append(nn::Linear(2, 2));
      dict.insert("act", nn::ReLU());
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (nn::Module& m : list) y = dict["act"](m(y));
      return y;
    }
  } net;
  EXPECT_EQ(net.named_parameters().keys()[4], "list.2.weight");
  EXPECT_EQ(net(randn({4, 2})).size(1), 2);
  EXPECT_EQ(net.list.at<nn::Linear>(1).weight.size(0), 2);
  EXPECT_TRUE(has(error_of([&] { net.list.at<nn::ReLU>(1); }), "another class"));
  EXPECT_TRUE(has(error_of([&] { net.list[3]; }), "out of range"));
  EXPECT_TRUE(has(error_of([&] { net.dict["x"]; }), "one of: act"));
  nn::Sequential seq(nn::Flatten(), [](const Tensor& x) { return x * 2; });
  seq.add("last", nn::Tanh());
  EXPECT_EQ(seq.named_children()[2].name, "last");
  expect_tensors(seq(ones({1, 2, 2})), full({1, 4}, std::tanh(2.0)));
}

TEST(NnModule, TrainsTheTwentyLineProgram) {
  manual_seed(3);
  Tensor x = randn({128, 8}), y = (x.sum(1) > 0).to(kInt64);
  auto net = nn::Sequential(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 2));
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  double first = 0, last = 0;
  for (int i = 0; i < 80; ++i) {
    Tensor loss = cross_entropy(net(x), y);
    opt.zero_grad();
    loss.backward();
    opt.step();
    (i ? last : first) = loss.item<double>();
  }
  EXPECT_LT(last, first / 4);
}

}  // namespace
}  // namespace arete
