// Sinks of gradients: what they hear of a pass, and when.
#include "arete/autograd/grad_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arete/arete.h"

namespace arete {
namespace {

using HeardLog = std::vector<std::string>;

Tensor leaf_of(double value) {
  Tensor t = full({2}, value, kFloat32);
  return t.requires_grad_();
}
std::vector<float> floats_of(const Tensor& t) { return t.to_vector<float>(); }

// Writes down what it hears, and what the leaf's gradient is then.
class NotingSink final : public autograd::GradSink {
 public:
  explicit NotingSink(std::vector<Tensor> leaves) : leaves_(std::move(leaves)) {}
  void begin(std::span<const size_t> places, bool create_graph) override {
    std::vector<size_t> sorted(places.begin(), places.end());
    std::sort(sorted.begin(), sorted.end());
    std::string text = create_graph ? "begin graph" : "begin";
    for (const size_t p : sorted) text += " " + std::to_string(p);
    log.push_back(text);
    autograd::at_end_of_pass([this] { log.push_back("end"); });
    if (fails) throw ValueError("begin", "no");
  }
  void ready(size_t place) override {
    const Tensor g = leaves_[place].grad();
    log.push_back("ready " + std::to_string(place) +
                  (g.defined() ? ": " + std::to_string(int(g[0].item<float>())) : ""));
  }
  void replaced(size_t place) override { log.push_back("replaced " + std::to_string(place)); }
  HeardLog heard() { return std::exchange(log, {}); }
  HeardLog log;
  bool fails = false;

 private:
  std::vector<Tensor> leaves_;
};

struct GradSinks : testing::Test {
  Tensor a = leaf_of(2), b = leaf_of(3), c = leaf_of(5), unused = leaf_of(7);
  std::shared_ptr<NotingSink> sink =
      std::make_shared<NotingSink>(std::vector<Tensor>{a, b, c, unused});
  void SetUp() override {
    size_t place = 0;
    for (const Tensor& t : {a, b, c, unused}) autograd::set_grad_sink(t, sink, place++);
  }
  // Products with a, b and c, one after the other; what runs in between is written down.
  Tensor product() {
    Tensor y = a * 1;
    y.register_hook([this](const Tensor&) {
      sink->log.push_back("hook");
      return Tensor();
    });
    return ((y * b) * c).sum();
  }
};

TEST_F(GradSinks, HearOfLeavesBeforeThePassAndWhenTheyAreReady) {
  const HeardLog expected{"begin 0 1 2", "ready 2: 6", "ready 1: 10", "hook", "ready 0: 15", "end"};
  const Tensor y = product();
  y.backward({}, true);
  EXPECT_EQ(sink->heard(), expected);
  for (Tensor t : {a, b, c}) t.set_grad(Tensor());
  y.backward();
  EXPECT_EQ(sink->heard(), expected) << "a second pass over a kept graph";
  product().backward();
  EXPECT_EQ(sink->heard()[1], "ready 2: 12") << "the sum of both passes";
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(GradSinks, AreNotToldOfGradientsThatAreResults) {
  const Tensor y = product();
  EXPECT_EQ(floats_of(autograd::grad(y, b, true)[0]), (std::vector<float>{10, 10}));
  EXPECT_EQ(sink->heard(), HeardLog{});
  // A penalty: the gradient of a gradient is accumulated by a pass of its own.
  const Tensor g = autograd::grad(product(), a, true)[0];
  sink->log.clear();
  g.sum().backward();
  EXPECT_EQ(sink->heard(), (HeardLog{"begin 1 2", "ready 1: 5", "ready 2: 3", "end"}));
}

TEST_F(GradSinks, HearOnlyOfInputsThatAreAskedFor) {
  const Tensor y = product();
  autograd::backward({&y, 1}, {}, false, false, {&b, 1});
  EXPECT_EQ(sink->heard(), (HeardLog{"begin 1", "ready 1: 10", "end"}));
}

TEST_F(GradSinks, WaitForAllUsesOfALeafAndForItsHooks) {
  autograd::register_post_accumulate_grad_hook(b, [&](const Tensor&) { b.set_grad(Tensor()); });
  c.register_hook([](const Tensor& g) { return g * 2; });
  ((a * b) * c * b).sum().backward();
  HeardLog heard = sink->heard();
  EXPECT_EQ(heard.front(), "begin 0 1 2");
  std::sort(heard.begin() + 1, heard.end());
  EXPECT_EQ(heard, (HeardLog{"begin 0 1 2", "end", "ready 0: 45", "ready 1", "ready 2: 36"}));
}

TEST_F(GradSinks, KnowAPassThatIsRecorded) {
  product().backward({}, false, true);
  EXPECT_EQ(sink->heard().front(), "begin graph 0 1 2");
}

TEST_F(GradSinks, HearOfCheckpointedCallsOnce) {
  const std::vector<Tensor> inside = autograd::checkpoint(
      [this](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * b}; }, {a});
  (inside[0] * c).sum().backward();
  HeardLog heard = sink->heard();
  std::sort(heard.begin(), heard.end());
  EXPECT_EQ(heard, (HeardLog{"begin 0 1 2", "end", "ready 0: 15", "ready 1: 10", "ready 2: 6"}));
}

TEST_F(GradSinks, AreNotCalledWhereNoGradientArrives) {
  autograd::FunctionDef none{
      "Nothing",
      [](autograd::Context&, const std::vector<Tensor>& in) { return std::vector{in[0] * 1}; },
      [](autograd::Context&, const std::vector<Tensor>&) { return std::vector<Tensor>(1); }};
  (autograd::apply(none, {a})[0] * b).sum().backward();
  EXPECT_EQ(sink->heard(), (HeardLog{"begin 0 1", "ready 1: 2", "end"}));
}

TEST_F(GradSinks, EndPassesByWhatTheyThrow) {
  sink->fails = true;
  EXPECT_THROW(product().backward(), ValueError);
  EXPECT_EQ(sink->heard(), HeardLog{"begin 0 1 2"});
  EXPECT_FALSE(c.grad().defined());
}

TEST_F(GradSinks, ComeAndGo) {
  const auto other = std::make_shared<NotingSink>(std::vector<Tensor>{b});
  autograd::set_grad_sink(b, other, 0);
  EXPECT_EQ(sink->heard(), HeardLog{"replaced 1"});
  autograd::remove_grad_sink(b, sink.get());  // it is not its sink any more
  autograd::remove_grad_sink(c, sink.get());
  product().backward();
  EXPECT_EQ(sink->heard(), (HeardLog{"begin 0", "hook", "ready 0: 15", "end"}));
  EXPECT_EQ(other->heard(), (HeardLog{"begin 0", "ready 0: 10", "end"}));
  sink.reset();
  product();  // its hook is not called
  (a * b * c).sum().backward();
  EXPECT_EQ(floats_of(a.grad()), (std::vector<float>{30, 30}));
  EXPECT_THROW(autograd::set_grad_sink(a * 2, other, 0), AutogradError);
  EXPECT_THROW(autograd::set_grad_sink(ones({2}), other, 0), AutogradError);
}

}  // namespace
}  // namespace arete
