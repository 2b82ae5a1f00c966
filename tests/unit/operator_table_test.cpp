// docs/operator_table.md is made from the records.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "arete/core/history.h"
#include "arete/ops/aliases.h"
#include "arete/ops/creation.h"
#include "arete/ops/record.h"
#include "arete/ops/reduce.h"
#include "arete/ops/samples.h"

namespace arete {
namespace {

using ops::OpRecord;

std::string kind_of(const OpRecord& op) {
  if (op.pointwise) return "pointwise";
  if (op.view || op.views) return "view";
  return op.compose ? "composition" : "primitives";
}

std::string gradient_of(const OpRecord& op) {
  bool differentiable = false;
  for (const DType t : op.dtypes) differentiable = differentiable || is_differentiable(t);
  if (!differentiable) return "";
  if (op.pointwise) {
    const ops::PointwiseDef& p = *op.pointwise;
    const uint32_t all = (1u << p.n_inputs) - 1;
    if (p.result == ops::PointwiseDef::Result::boolean || (p.non_differentiable & all) == all)
      return "";
    return p.gradient ? "own program" : "symbolic";
  }
  if (op.compose) return "of its parts";
  return op.grad ? "formula" : "";
}

std::string dtypes_of(const OpRecord& op) {
  std::string s;
  for (const DType t : op.dtypes) s += (s.empty() ? "" : ", ") + std::string(name_of(t));
  if (op.compose_complex || (op.pointwise && op.pointwise->complex)) s += ", complex";
  return s;
}

// A text inside a cell.
std::string cell(std::string text) {
  for (size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2))
    text.insert(i, "\\");
  return text;
}

// Where Python shows an operator; python/arete/_operators adds a few by hand.
std::string shown_in(const OpRecord& op) {
  for (const std::string family : {"fft", "linalg", "special"})
    if (op.name.starts_with(family + "_")) return family;
  if (op.surface == ops::Surface::functional) return "nn.functional";
  if (op.surface == ops::Surface::function) return "function";
  const ops::Schema& schema = ops::schema_of(op);
  const bool takes_self = !schema.args.empty() && schema.args[0].type == "Tensor" &&
                          (schema.args[0].name == "self" || schema.args[0].name == "input");
  return takes_self ? "function, method" : "function";
}

// The rows of internal records, or of all others.
std::string rows(bool internal) {
  std::string s = std::string("| operator |") + (internal ? "" : " shown as |") +
                  " kind | tested in | gradient | in place | reference |\n|---|" +
                  (internal ? "" : "---|") + "---|---|---|---|---|\n";
  for (const OpRecord* op : ops::all_records()) {
    if ((op->surface == ops::Surface::internal) != internal) continue;
    s += "| `" + op->full_name() + "` | " + (internal ? "" : shown_in(*op) + " | ") + kind_of(*op) +
         " | " + dtypes_of(*op) + " | " + gradient_of(*op) + " | " +
         (op->has_in_place ? "yes" : "") + " | " +
         (samples_of(*op).reference ? "yes" : cell(samples_of(*op).no_reference_because)) + " |\n";
  }
  return s;
}

std::string table() {
  std::string s =
      "# All operators\n\n"
      "Made from the records by the test `OperatorTable.IsUpToDate` (`ARETE_UPDATE=1` writes it "
      "anew); [operators.md](operators.md) says what the columns mean.\n\n";
  s += rows(false);
  s += "\n## Building blocks\n\n"
       "Records of which the operators above are made; language bindings do not show them.\n\n";
  s += rows(true);
  s += "\n## Second names\n\n"
       "Found like the records they stand for (`arete/ops/aliases.h`).\n\n"
       "| name | operator |\n"
       "|---|---|\n";
  for (const ops::Alias& a : ops::all_aliases())
    s += "| `" + std::string(a.name) + "` | `" + std::string(a.record) + "` |\n";
  return s;
}

TEST(OperatorTable, SecondNamesAreFound) {
  for (const ops::Alias& a : ops::all_aliases()) {
    const OpRecord* op = ops::find_record(a.name);
    ASSERT_NE(op, nullptr) << a.name;
    EXPECT_EQ(op->name, a.record) << a.name << " is a record itself";
    EXPECT_NE(op->surface, ops::Surface::internal) << a.name << " names a building block";
  }
  EXPECT_EQ(ops::find_record("no_such_operator"), nullptr);
  const Tensor x = tensor({0.5, -0.25});
  EXPECT_TRUE(equal(arccos(x), acos(x)));
  EXPECT_TRUE(equal(clip(x, Scalar(0)), clamp(x, Scalar(0))));
}

TEST(OperatorTable, OverloadsHaveOneName) {
  const OpRecord* along = ops::find_record("max.dim");
  ASSERT_NE(along, nullptr);
  EXPECT_EQ(along->name, "max");
  EXPECT_EQ(along->overload, "dim");
  EXPECT_EQ(along->full_name(), "max.dim");
  ASSERT_NE(ops::find_record("max"), nullptr);
  EXPECT_EQ(ops::find_record("max")->overload, "");
  EXPECT_EQ(ops::find_record("max_dim"), nullptr);
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  EXPECT_EQ(std::get<0>(max(x, 0)).grad_fn()->name(), "max");
}

TEST(OperatorTable, IsUpToDate) {
  const std::filesystem::path path =
      std::filesystem::path(ARETE_TEST_DIR) / ".." / "docs" / "operator_table.md";
  if (!std::filesystem::exists(path.parent_path())) GTEST_SKIP() << "the source tree is not here";
  const std::string want = table();
  if (const char* update = std::getenv("ARETE_UPDATE"); update && *update)
    std::ofstream(path, std::ios::binary) << want;
  std::ifstream file(path, std::ios::binary);
  const std::string have(std::istreambuf_iterator<char>(file), {});
  // Not EXPECT_EQ: the difference of two long tables helps nobody.
  EXPECT_TRUE(have == want)
      << "The operators' records have changed. Write docs/operator_table.md anew with\n"
         "  ARETE_UPDATE=1 build/release/bin/test_unit --gtest_filter=OperatorTable.*\n"
         "look at the difference, and commit it.";
}

}  // namespace
}  // namespace arete
