#include "arete/io/metrics_log.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io_test_support.h"

namespace arete::io {
namespace {

using test::expect_error;
using test::read_text;
using test::TempDir;
using test::write_text;

TEST(MetricsLog, WritesOneJsonObjectPerLine) {
  TempDir dir;
  MetricsLog log(dir / "m.jsonl");
  log.write({{"step", int64_t{1}}, {"loss", 0.1}, {"note", std::string("a \"b\"\n")}});
  // Each line is in the file at once.
  EXPECT_EQ(read_text(dir / "m.jsonl"),
            "{\"step\": 1, \"loss\": 0.1, \"note\": \"a \\\"b\\\"\\n\"}\n");
  log.write({{"nan", std::nan("")},
             {"inf", -std::numeric_limits<double>::infinity()},
             {"big", std::numeric_limits<int64_t>::min()}});
  const std::string text = read_text(dir / "m.jsonl");
  const auto second = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  EXPECT_TRUE(second.at("nan").is_null());
  EXPECT_TRUE(second.at("inf").is_null());
  EXPECT_EQ(second.at("big").get<int64_t>(), std::numeric_limits<int64_t>::min());
  expect_error(ErrorKind::value, {"'a' twice"}, [&] { log.write({{"a", 1.0}, {"a", 2.0}}); });
}

TEST(MetricsLog, AppendsAndResumes) {
  TempDir dir;
  const std::string path = dir / "m.jsonl";
  {
    MetricsLog log(path);
    log.write({{"model", std::string("mlp")}});
    for (int64_t s = 1; s <= 5; ++s) log.write({{"step", s}});
  }
  { MetricsLog(path).write({{"step", int64_t{6}}}); }
  EXPECT_EQ(read_text(path).find("\"step\": 5"), read_text(path).rfind("\"step\": 5"));
  MetricsLog log(path, 3);
  log.write({{"step", int64_t{4}}});
  EXPECT_EQ(read_text(path),
            "{\"model\": \"mlp\"}\n{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n{\"step\": 4}\n");
}

TEST(MetricsLog, RepairsATornLastLine) {
  TempDir dir;
  const std::string path = dir / "m.jsonl";
  write_text(path, "{\"step\": 1}\n{\"step\": 2, \"lo");
  { MetricsLog(path).write({{"step", int64_t{2}}}); }
  EXPECT_EQ(read_text(path), "{\"step\": 1}\n{\"step\": 2}\n");
  // A last line that lacks only its end is whole.
  write_text(path, "{\"step\": 1}\n{\"step\": 2}");
  { MetricsLog(path).write({{"step", int64_t{3}}}); }
  EXPECT_EQ(read_text(path), "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n");
}

TEST(MetricsLog, LeavesForeignFilesAlone) {
  TempDir dir;
  const std::string path = dir / "m.jsonl";
  write_text(path, "{\"step\": 1}\nnot json\n{}\n");
  expect_error(ErrorKind::io, {"line 2 of", "m.jsonl'", "not a JSON object"},
               [&] { MetricsLog log(path); });
  EXPECT_EQ(read_text(path), "{\"step\": 1}\nnot json\n{}\n");
  expect_error(ErrorKind::io, {"cannot open", "No such file"},
               [&] { MetricsLog log(dir / "none/m.jsonl"); });
}

TEST(MetricsLog, FullDiskIsAnIoError) {
  MetricsLog log("/dev/full");
  expect_error(ErrorKind::io, {"cannot write '/dev/full'", "No space left", "free some space"},
               [&] {
                 log.write({{"step", int64_t{1}}});
               });
}

}  // namespace
}  // namespace arete::io
