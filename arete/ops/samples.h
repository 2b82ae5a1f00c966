// What tests and documentation know of a record: calls of it, calls that must fail, and a slow
// evaluation. The library itself has none: they are attached by the name of the record, those of
// its own records by the archive that arete/samples is made into, where that is linked or loaded.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "arete/ops/record.h"

namespace arete::ops {

/// One call.
struct Sample {
  std::vector<OwnedArg> args;
  std::string note{};
};
/// A call that must fail, and how the text of its error begins (or what it contains).
struct ErrorSample {
  std::vector<OwnedArg> args;
  ErrorKind kind;
  std::string text;
};

/// Makes the tensors of samples: seeded, of one dtype and device. Shapes may be empty or 0-d.
class SampleMaker {
 public:
  SampleMaker(DType dtype, Device device, bool requires_grad, uint64_t seed = 0);
  DType dtype;
  Device device;
  bool requires_grad;
  /// Uniform in [low, high) (integers: whole numbers), contiguous, requiring grad if asked.
  Tensor make(IntList sizes, double low = -2, double high = 2);
  /// The same with a transposed (non-contiguous) memory.
  Tensor make_strided(IntList sizes, double low = -2, double high = 2);
  /// All values distinct and at least `gap` apart: for sorts, maxima and kinks.
  Tensor make_distinct(IntList sizes, double gap = 0.1);
  Tensor make_mask(IntList sizes);
  /// i64 in [0, high).
  Tensor make_index(IntList sizes, int64_t high);

 private:
  Generator generator_;
};

/// A slow, obvious evaluation in f64: all floating tensors are given as f64 CPU tensors.
using Reference = std::function<std::vector<Tensor>(const Call&)>;

struct RecordSamples {
  std::function<std::vector<Sample>(SampleMaker&)> samples;
  std::function<std::vector<ErrorSample>(SampleMaker&)> errors;
  Reference reference;
  std::string no_reference_because;  ///< a record without a reference says why
  bool test_gradient = true;         ///< gradcheck and gradgradcheck over the samples
};

/// Those of a record; empty ones if none were attached.
const RecordSamples& samples_of(const OpRecord& op);

/// Chained construction of what is attached. Kept as a static:
///   const Attached relu_op = attach("relu").samples(...).reference(...);
class Attached {
 public:
  explicit Attached(RecordSamples& r) : r_(r) {}
  Attached& samples(std::function<std::vector<Sample>(SampleMaker&)> f);
  Attached& errors(std::function<std::vector<ErrorSample>(SampleMaker&)> f);
  Attached& reference(Reference f);
  Attached& no_reference(std::string_view because);
  Attached& no_gradient_test();

 private:
  RecordSamples& r_;
};

/// To the record of this full name, which may be defined later. BugError the second time.
Attached attach(std::string_view record);

}  // namespace arete::ops
