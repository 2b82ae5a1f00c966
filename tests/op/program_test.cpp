// Saved programs against eager code: every record's samples, recorded, written down, read and run.
#include "arete/program/program.h"

#include "arete/core/generator.h"
#include "arete/program/body_internal.h"
#include "tests/op/recording.h"

namespace arete::test {
namespace {

using ops::OpRecord;
using program::Program;

class ProgramRecords : public testing::TestWithParam<const OpRecord*> {};

std::vector<Tensor> tensors_of(const std::vector<ops::OwnedArg>& args) {
  std::vector<Tensor> all;
  map_tensors(args, [&](const Tensor& t) {
    all.push_back(t);
    return t;
  });
  return all;
}

TEST_P(ProgramRecords, RunAsTheyWereCalled) {
  const OpRecord& op = *GetParam();
  for_each_sample(op, [&](const ops::Sample& s) {
    const std::vector<Tensor> inputs = tensors_of(s.args);
    const auto call = [&](const std::vector<Tensor>& given) {
      size_t next = 0;
      const ops::Results r =
          run(op, map_tensors(s.args, [&](const Tensor&) { return given[next++]; }));
      return std::vector<Tensor>(r.begin(), r.end());
    };
    manual_seed(7);
    const std::vector<Tensor> eager = call(inputs);
    manual_seed(7);
    const Program p = Program::record(call, inputs);
    ASSERT_EQ(p.body().calls.size(), 1u) << p.to_string();
    const auto expect_same = [&](const std::vector<Tensor>& got) {
      ASSERT_EQ(got.size(), eager.size());
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(got[k].layout().sizes, eager[k].layout().sizes);
        EXPECT_EQ(got[k].requires_grad(), eager[k].requires_grad());
        EXPECT_EQ(bits(got[k]), bits(eager[k])) << p.to_string();
      }
    };
    expect_same(p(inputs));
    if (!program::is_for_files(op)) {
      EXPECT_THROW(program::write_json(p.body()), NotImplementedError);
      return;
    }
    const std::string text = program::write_json(p.body());
    const program::Body read = program::read_json(text, "test");
    EXPECT_EQ(program::write_json(read), text);
    manual_seed(7);
    expect_same(program::run(read, inputs));
  });
}

INSTANTIATE_TEST_SUITE_P(All, ProgramRecords, testing::ValuesIn(ops::all_records()), record_name);

}  // namespace
}  // namespace arete::test
