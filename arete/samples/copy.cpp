// Samples, references and errors of the records in ops/copy.cpp.
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Reference same_values() {
  return [](const Call& c) {
    return std::vector<Tensor>{from_values(values_of(c.tensor(0)), c.tensor(0).sizes())};
  };
}

const Attached to_copy_op =
    attach("to_copy")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 3}), m.dtype, m.device, int(MemoryFormat::preserve)}, "same dtype"},
              {{m.make_strided({2, 3}), m.dtype, m.device, int(MemoryFormat::contiguous)}, "order"},
              {{m.make({}), m.dtype, m.device, int(MemoryFormat::preserve)}, "0-d"},
              {{m.make({2, 3, 2, 2}), m.dtype, m.device, int(MemoryFormat::channels_last)},
               "nhwc"}};
        })
        .reference(same_values());
const Attached contiguous_op =
    attach("contiguous")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 3}), int(MemoryFormat::contiguous)}, "as it is"},
              {{m.make_strided({2, 3}), int(MemoryFormat::contiguous)}, "strided"},
              {{m.make({2, 3, 2, 2}), int(MemoryFormat::channels_last)}, "nhwc"}};
        })
        .reference(same_values());
const Attached to_op =
    attach("to")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make_strided({2, 3}), m.dtype, int(MemoryFormat::preserve)}, "as it is"},
              {{m.make_strided({2, 3}), m.dtype, int(MemoryFormat::contiguous)}, "order"},
              {{m.make({2}), kFloat64, int(MemoryFormat::preserve)}, "another dtype"}};
        })
        .reference(same_values());
const Attached copy_op =
    attach("copy")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), m.make({3})}, "broadcast"},
                                     {{m.make_strided({2, 3}), m.make({2, 3})}, "strided"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), m.make({2, 3})}, ErrorKind::value, "The expanded size of the tensor"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape& i) { return at(c.tensor(1), i); })};
        });
const Attached fill_op =
    attach("fill")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), Scalar(2)}, "whole"},
                                     {{m.make_strided({2, 3}), Scalar(0.5)}, "strided"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape&) { return c.scalar(1).to_double(); })};
        });

}  // namespace
}  // namespace arete::ops
