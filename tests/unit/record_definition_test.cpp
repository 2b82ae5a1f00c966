// Records that say what operators of their kind ignore are errors where they are defined.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "arete/ops/record.h"
#include "tests/support/errors.h"

namespace arete::ops {
namespace {

Results no_results(const Call&) { return {}; }
void nothing(const Call&, OutputSpecs&) {}
TensorList no_gradients(const GradCall&) { return {}; }
expr::Value same(expr::Value v) { return v; }

// Defines a record in a process of its own, where nobody finds it later, which succeeds if that is
// an error with this text.
template <class F>
void define_wrongly(F&& f, std::string_view text) {
  const std::string said = test::error_of([&] { [[maybe_unused]] const OpRecord& r = f(); });
  if (!test::has(said, text)) std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(test::has(said, text) ? 0 : 1);
}
#define EXPECT_REFUSED(definition, text)                                                      \
  EXPECT_EXIT(                                                                                \
      define_wrongly(                                                                         \
          []() -> const OpRecord& { return define("wrong(Tensor x) -> Tensor") definition; }, \
          text),                                                                              \
      testing::ExitedWithCode(0), "")

TEST(RecordDefinition, RefusesWhatItsKindIgnores) {
  EXPECT_REFUSED(.unary(same).complex(no_results), "complex(function) is for records with infer()");
  EXPECT_REFUSED(.compose(no_results).complex(no_results), "complex(function)");
  EXPECT_REFUSED(.infer(nothing).complex(ComplexForm{}), "complex(form) is for pointwise records");
  EXPECT_REFUSED(.infer(nothing).gradient({}), "gradient() is for pointwise records");
  EXPECT_REFUSED(.unary(same).grad(no_gradients), "grad() is for views and with infer()");
  EXPECT_REFUSED(.unary(same).infer(nothing), "it is one of");
  EXPECT_REFUSED(.doc("nothing"), "it is one of");
}

}  // namespace
}  // namespace arete::ops
