// Counts and lists in the documentation are made here. They stand between `<!-- made: NAME -->` and
// `<!-- end -->`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "arete/core/dtype.h"
#include "arete/ops/record.h"
#include "arete/prim/backend.h"

namespace arete {
namespace {

namespace fs = std::filesystem;

std::string names(int from, int to) {
  std::string s;
  for (int i = from; i < to; ++i)
    s += (i == from ? "" : ", ") + std::string(name_of(prim::Primitive(i)));
  return s;
}

std::map<std::string, std::string> all_facts() {
  const int all = prim::kNumPrimitives, mandatory = prim::kNumMandatory;
  const std::string first = std::to_string(mandatory), others = std::to_string(all - mandatory);
  return {
      {"mandatory primitives", first + " are mandatory: " + names(0, mandatory)},
      {"optional primitives", others + " are optional: " + names(mandatory, all)},
      {"numbers of primitives", first + " mandatory primitives, " + others + " optional ones"},
      {"number of dtypes", std::to_string(kNumDTypes) + " dtypes"},
      {"number of records", std::to_string(ops::all_records().size()) + " records"},
  };
}

const std::map<std::string, std::string>& facts() {
  static const auto* const made = new std::map(all_facts());
  return *made;
}

std::vector<fs::path> pages(const fs::path& root) {
  std::vector<fs::path> found{root / "README.md", root / "CHANGELOG.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The page as it should be. `used` gets the names of its made parts, `rest` what stands outside.
std::string written(const std::string& page, std::set<std::string>& used, std::string& rest) {
  static const std::regex part("<!-- made: ([^>]*) -->([^<]*)<!-- end -->");
  std::string result;
  auto at = page.begin();
  for (std::sregex_iterator m(page.begin(), page.end(), part), end; m != end; ++m) {
    const std::string name = (*m)[1];
    const auto fact = facts().find(name);
    EXPECT_NE(fact, facts().end()) << name;
    used.insert(name);
    const std::string before(at, (*m)[0].first);
    rest += before + " ";
    result += before + "<!-- made: " + name + " -->" +
              (fact == facts().end() ? "?" : fact->second) + "<!-- end -->";
    at = (*m)[0].second;
  }
  rest += std::string(at, page.end());
  return result + std::string(at, page.end());
}

const fs::path root = fs::path(ARETE_TEST_DIR) / "..";

TEST(DocsFacts, AreUpToDate) {
  if (!fs::exists(root / "docs")) GTEST_SKIP() << "the source tree is not here";
  const char* update = std::getenv("ARETE_UPDATE");
  // "The thirteen" says how many there are, too.
  const std::regex count(
      "\\b([0-9]+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|"
      "fifteen) (are )?(mandatory|optional|primitives|dtypes|records|optimizers)\\b|"
      "\\bthirteen\\b",
      std::regex::icase);
  std::set<std::string> used;
  for (const fs::path& path : pages(root)) {
    const std::string have = read(path);
    std::string rest;
    const std::string want = written(have, used, rest);
    if (update && *update && have != want) std::ofstream(path, std::ios::binary) << want;
    EXPECT_TRUE(read(path) == want)
        << path << " states what is no longer so. Write it anew with\n"
        << "  ARETE_UPDATE=1 build/release/bin/test_unit --gtest_filter=DocsFacts.*";
    std::smatch found;
    EXPECT_FALSE(std::regex_search(rest, found, count))
        << path << ": \"" << found.str() << "\" is a count that nobody keeps: let the test make it";
  }
  for (const auto& [name, text] : facts()) EXPECT_TRUE(used.contains(name)) << name;
}

TEST(DocsFacts, StaleAndUnknownPartsAreSeen) {
  std::set<std::string> used;
  std::string rest;
  EXPECT_EQ(
      written("a <!-- made: number of dtypes -->9 dtypes<!-- end --> b", used, rest),
      "a <!-- made: number of dtypes -->" + facts().at("number of dtypes") + "<!-- end --> b");
  EXPECT_EQ(used, std::set<std::string>{"number of dtypes"});
  EXPECT_EQ(rest, "a   b");
}

}  // namespace
}  // namespace arete
