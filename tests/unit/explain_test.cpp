// What compiled functions say of themselves.
#include <algorithm>

#include "arete/compile/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/core/tensor.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/prim/compiled_kernels.h"
#include "cli/commands.h"

namespace arete::compile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = ExplainedBuffer::Kind;

template <class F, class... Args>
Explanation explained(F f, const CompileOptions& options, const Args&... args) {
  auto compiled = compile(f, options);
  (compiled(args), ...);
  return explanation_of(compiled.program());
}

TEST(Explain, steps_with_their_calls_and_bytes) {
  const Explanation e = explained([](const Tensor& x) { return (x * 2 + 1).sqrt(); },
                                  {.exact = true, .name = "f"}, ones({100}), ones({100}));
  EXPECT_EQ(e.name, "f");
  EXPECT_EQ(e.stats.calls, 2);
  ASSERT_EQ(e.traces.size(), 1u);
  EXPECT_EQ(e.traces[0].runs, 2);
  ASSERT_EQ(e.traces[0].plans.size(), 1u);
  const ExplainedPlan& p = e.traces[0].plans[0];
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_THAT(p.steps[0].operators, ElementsAre("mul", "add", "sqrt"));
  EXPECT_THAT(p.steps[0].calls, ElementsAre(0, 1, 2));
  EXPECT_EQ(p.steps[0].bytes_read, 400u);
  EXPECT_EQ(p.steps[0].bytes_written, 400u);
  EXPECT_EQ(p.steps[0].bytes_before, 6 * 400u);
  EXPECT_EQ(p.steps[0].live_temporaries, 0u);
  EXPECT_EQ(p.steps[0].live_results, 400u);
  ASSERT_EQ(p.buffers.size(), 2u);
  EXPECT_EQ(p.given, 400u);
  EXPECT_TRUE(p.apart.empty());
  EXPECT_EQ(p.why_no_graph, "it does not run on a GPU");
  EXPECT_TRUE(e.breaks.empty());
}

TEST(Explain, temporaries_live_from_their_first_use_to_the_last) {
  const Tensor w = ones({8, 8});
  const Explanation e =
      explained([&](const Tensor& x) { return matmul(matmul(matmul(x, w), w), w); }, {},
                ones({4, 8}), ones({4, 8}));
  const ExplainedPlan& p = e.traces.at(0).plans.at(0);
  ASSERT_EQ(p.steps.size(), 3u);
  std::vector<size_t> live;
  for (const ExplainedStep& s : p.steps) live.push_back(s.live_temporaries);
  EXPECT_THAT(live, ElementsAre(128u, 256u, 128u));
  EXPECT_THAT(p.steps[2].live_results, 128u);
  EXPECT_EQ(p.given, 8 * 8 * 4 + 128u);
  const auto count = [&](Kind kind) {
    return std::ranges::count(p.buffers, kind, &ExplainedBuffer::kind);
  };
  EXPECT_EQ(count(Kind::temporary), 2);
  EXPECT_EQ(count(Kind::result), 1);
  // Products are not one kernel, and share what goes between them.
  ASSERT_EQ(p.apart.size(), 2u);
  EXPECT_EQ(p.apart[0].earlier, 0);
  EXPECT_EQ(p.apart[0].later, 1);
  EXPECT_EQ(p.apart[0].bytes, 128u);
  EXPECT_THAT(p.apart[0].reason, HasSubstr("gemm"));
  EXPECT_THAT(to_text(e), HasSubstr("apart: step"));
}

TEST(Explain, too_many_operands) {
  std::vector<Tensor> inputs;
  for (int k = 0; k < 40; ++k) inputs.push_back(full({16}, double(k)));
  const Explanation e = explained(
      [&](const Tensor& x) {
        Tensor sum = x;
        for (const Tensor& t : inputs) sum = sum + t;
        return sum;
      },
      {.exact = true}, ones({16}));
  const ExplainedPlan& p = e.traces.at(0).plans.at(0);
  ASSERT_GT(p.steps.size(), 1u);
  ASSERT_FALSE(p.apart.empty());
  EXPECT_THAT(p.apart[0].reason, HasSubstr("too many operands"));
}

TEST(Explain, what_changed_between_lists_of_calls) {
  const auto f = [](const Tensor& x) { return x.size(0) > 5 ? (x * 2).neg() : (x * 2).exp() + x; };
  Explanation e = explained(f, {}, ones({4, 3}), ones({5, 3}), ones({4, 3}));
  ASSERT_EQ(e.traces.size(), 2u);
  EXPECT_EQ(e.traces[0].changed, "");
  EXPECT_EQ(e.traces[0].runs, 2);
  EXPECT_EQ(e.traces[1].nearest, 1);
  EXPECT_EQ(e.traces[1].call, 0);
  EXPECT_EQ(e.traces[1].changed, "mul: input float32[4, 3] became float32[5, 3]");
  // The call that came instead, and where one list ends.
  const auto g = [n = 0](const Tensor& x) mutable {
    const Tensor y = x * 2;
    return ++n == 1 ? y.exp() : n == 2 ? y.neg() : y;
  };
  e = explained(g, {}, ones({3}), ones({3}), ones({3}));
  ASSERT_EQ(e.traces.size(), 3u);
  EXPECT_EQ(e.traces[1].changed, "neg came where exp was");
  EXPECT_EQ(e.traces[1].call, 1);
  EXPECT_EQ(e.traces[2].changed, "it ends where exp followed");
  // Memory: a tensor with itself is another list than two tensors.
  e = explained(
      [other = ones({3}), n = 0](const Tensor& x) mutable { return x + (n++ ? x : other); }, {},
      ones({3}), ones({3}));
  ASSERT_EQ(e.traces.size(), 2u);
  EXPECT_THAT(e.traces[1].changed, HasSubstr("input 2 float32[3] lies in other memory"));
  EXPECT_THAT(to_text(e), HasSubstr("another list: 2 is 1 up to call 0; add: input 2"));
}

TEST(Explain, breaks_name_the_operator_and_cost) {
  auto f = compile([](const Tensor& x) {
    const Tensor y = (x * 2).sum();
    return y.item<float>() > 0 ? y + 1 : y;
  });
  f(ones({3}));
  f(ones({3}));
  const Explanation e = explanation_of(f.program());
  ASSERT_EQ(e.breaks.size(), 1u);
  EXPECT_EQ(e.breaks[0].look.what, "sum");
  EXPECT_EQ(e.breaks[0].look.count, 2);
  EXPECT_GT(e.breaks[0].look.making, 0);
  EXPECT_THAT(e.breaks[0].advice, HasSubstr("arete.where"));
  ASSERT_EQ(e.traces.size(), 2u);
  EXPECT_EQ(e.traces[0].segment, 0);
  EXPECT_EQ(e.traces[1].segment, 1);
  // The second part is no change of the first one.
  EXPECT_EQ(e.traces[1].changed, "");
  EXPECT_THAT(to_text(e), HasSubstr("break: a value is looked at (sum), 2 times"));
}

TEST(Explain, passes_outside_of_the_function) {
  const Tensor w = ones({3}).requires_grad_();
  auto f = compile([&](const Tensor& x) { return (x * w).sum(); });
  f(ones({3})).backward();
  const Explanation e = explanation_of(f.program());
  ASSERT_EQ(e.traces.size(), 2u);
  EXPECT_EQ(e.traces[1].segment, -1);
}

TEST(Explain, calls_that_nobody_reads) {
  const Explanation e = explained(
      [](const Tensor& x) {
        matmul(x, x);
        return x * 2;
      },
      {}, ones({3, 3}));
  EXPECT_EQ(e.traces.at(0).plans.at(0).left_out, 1);
  EXPECT_THAT(to_text(e), HasSubstr("left out: 1 call"));
}

TEST(Explain, json_and_page) {
  const std::string name = "</script>\"<b>";
  auto f = compile([](const Tensor& x) { return matmul(x, x).exp().sum(); }, {.name = name});
  f(ones({4, 4}));
  const auto j = nlohmann::json::parse(explain_json(f.program()));
  ASSERT_EQ(j["functions"].size(), 1u);
  const auto& its = j["functions"][0];
  EXPECT_EQ(its["name"], name);
  EXPECT_EQ(its["stats"]["calls"], 1);
  const auto& plan = its["traces"][0]["plans"][0];
  EXPECT_EQ(plan["recorded"], 3);
  size_t moved = 0;
  for (const auto& s : plan["steps"])
    moved += s["bytes_read"].get<size_t>() + s["bytes_written"].get<size_t>();
  EXPECT_EQ(moved, plan["bytes_moved"].get<size_t>());
  for (const auto& a : plan["apart"]) EXPECT_LT(a["earlier"], a["later"]);
  const std::string page = explain_html(f.program());
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>"));
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(nlohmann::json::parse(to_json({})), nlohmann::json::parse("{\"functions\": []}"));
}

TEST(Explain, long_plans_are_short_texts) {
  const Tensor w = ones({4, 4});
  const Explanation e = explained(
      [&](Tensor x) {
        for (int k = 0; k < 200; ++k) x = matmul(x, w);
        return x;
      },
      {}, ones({4, 4}));
  EXPECT_EQ(e.traces.at(0).plans.at(0).steps.size(), 200u);
  const std::string text = to_text(e);
  EXPECT_LT(std::ranges::count(text, '\n'), 40);
  EXPECT_THAT(text, HasSubstr("(and 176 steps that move less)"));
}

TEST(Explain, kernels_are_those_of_the_thread) {
  const size_t before = prim::compiled_kernels().size();
  std::thread([] { prim::note_compiled_kernel("another's", 1); }).join();
  prim::note_compiled_kernel("a kernel", 0.25);
  ASSERT_EQ(prim::compiled_kernels().size(), before + 1);
  EXPECT_EQ(prim::compiled_kernels().back().name, "a kernel");
  EXPECT_EQ(prim::compiled_kernels().back().seconds, 0.25);
}

TEST(Explain, the_command_hands_over_to_python) {
  cli::ExplainOptions o;
  EXPECT_THROW(cli::explain(o), ValueError);
  o.program = {"prog.py", "--html", "x"};
  o.html = "page.html";
  EXPECT_THAT(cli::explain_command(o), ElementsAre("python3", "-m", "arete.explain", "--html",
                                                   "page.html", "prog.py", "--html", "x"));
  o.python = "/nowhere/python";
  EXPECT_THROW(cli::explain(o), IoError);
}

}  // namespace
}  // namespace arete::compile
