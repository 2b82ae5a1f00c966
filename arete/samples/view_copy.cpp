// Samples, references and errors of the records in ops/view_copy.cpp.
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Copies and the views that they are of, whose samples and references are theirs: looked up when
// wanted, since other files may not have attached theirs yet.
constexpr const char* kCopies[][2] = {{"as_strided_copy", "as_strided"},
                                      {"diagonal_copy", "diagonal"},
                                      {"expand_copy", "expand"},
                                      {"narrow_copy", "narrow"},
                                      {"permute_copy", "permute"},
                                      {"select_copy", "select"},
                                      {"slice_copy", "slice"},
                                      {"split_copy", "split"},
                                      {"split_with_sizes_copy", "split_with_sizes"},
                                      {"squeeze_copy", "squeeze"},
                                      {"t_copy", "t"},
                                      {"transpose_copy", "transpose"},
                                      {"unbind_copy", "unbind"},
                                      {"unfold_copy", "unfold"},
                                      {"unsqueeze_copy", "unsqueeze"},
                                      {"view_copy", "reshape"},
                                      {"unsafe_chunk", "chunk"},
                                      {"unsafe_split", "split"},
                                      {"unsafe_split_with_sizes", "split_with_sizes"}};
bool attach_copies() {
  for (const auto& [copy, view] : kCopies) {
    const auto of_view = [view = view]() -> const OpRecord& { return *find_record(view); };
    attach(copy)
        .samples([=](SampleMaker& m) { return samples_of(of_view()).samples(m); })
        .errors([=](SampleMaker& m) {
          const auto& errors = samples_of(of_view()).errors;
          return errors ? errors(m) : std::vector<ErrorSample>();
        })
        .reference([=](const Call& c) {
          return samples_of(of_view()).reference(Call(of_view(), c.args()));
        });
  }
  return true;
}
const bool copies = attach_copies();

std::vector<Sample> whole_samples(SampleMaker& m) {
  return {{{m.make({2, 3})}, "usual"},
          {{m.make_strided({2, 3})}, "strided"},
          {{m.make({})}, "0-d"},
          {{m.make({0, 2})}, "empty"}};
}

std::vector<Tensor> whole_reference(const Call& c) {
  return {from_values(values_of(c.tensor(0)), c.tensor(0).sizes())};
}

const Attached alias_copy_op =
    attach("alias_copy").samples(whole_samples).reference(whole_reference);
const Attached detach_copy_op =
    attach("detach_copy").no_gradient_test().samples(whole_samples).reference(whole_reference);

}  // namespace
}  // namespace arete::ops
