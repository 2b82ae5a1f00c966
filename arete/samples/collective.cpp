// Samples, references and errors of the records in ops/collective.cpp, for the group of this
// process alone; tests/distributed has groups.
#include "arete/ops/collective.h"

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Reference values_with_rank(int more) {
  return [more](const Call& c) {
    const Tensor& x = c.tensor(0);
    Shape sizes(x.sizes());
    if (more > 0) sizes.insert(sizes.begin(), 1);
    if (more < 0) sizes.erase(sizes.begin());
    return std::vector<Tensor>{from_values(values_of(x), sizes)};
  };
}

const int64_t kNobody = 1 << 30;

const Attached all_reduce_op =
    attach("collective_all_reduce")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), "SUM", 1.0, kAlone}, "sum"},
                                     {{m.make_strided({2, 3}), "AVG", 1.0, kAlone}, "strided"},
                                     {{m.make({}), "SUM", 1.0, kAlone}, "0-d"},
                                     {{m.make({0}), "SUM", 1.0, kAlone}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), "MAX", 1.0, kAlone}, ErrorKind::value, "gradients are those of sums"},
              {{m.make({3}), "SUM", 1.0, kNobody}, ErrorKind::value, "the group of processes"}};
        })
        .reference(values_with_rank(0));
const Attached all_gather_op =
    attach("collective_all_gather")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), kAlone}, "rows"},
                                     {{m.make_strided({2, 3}), kAlone}, "strided"}};
        })
        .reference(values_with_rank(0));
const Attached reduce_scatter_op =
    attach("collective_reduce_scatter")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), "SUM", 1.0, kAlone}, "rows"},
                                     {{m.make_strided({2, 3}), "AVG", 1.0, kAlone}, "strided"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({}), "SUM", 1.0, kAlone}, ErrorKind::value, "rows do not divide equally"}};
        })
        .reference(values_with_rank(0));
const Attached all_to_all_op =
    attach("collective_all_to_all")
        .samples([](SampleMaker& m) {
          using Ints = std::vector<int64_t>;
          return std::vector<Sample>{{{m.make({2, 3}), Ints{}, Ints{}, kAlone}, "equal"},
                                     {{m.make_strided({2, 3}), Ints{2}, Ints{2}, kAlone}, "lists"}};
        })
        .errors([](SampleMaker& m) {
          using Ints = std::vector<int64_t>;
          return std::vector<ErrorSample>{
              {{m.make({2}), Ints{2}, Ints{1}, kAlone}, ErrorKind::value, "Split sizes doesn't"},
              {{m.make({2}), Ints{2, 0}, Ints{2}, kAlone}, ErrorKind::value, "Number of tensor"}};
        })
        .reference(values_with_rank(0));
const Attached broadcast_op =
    attach("collective_broadcast")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 0, kAlone}, "whole"},
                                     {{m.make_strided({2, 3}), 0, kAlone}, "strided"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 1, kAlone}, ErrorKind::value, "there is no such rank"}};
        })
        .reference(values_with_rank(0));
const Attached reduce_op =
    attach("collective_reduce")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), "SUM", 1.0, 0, kAlone}, "whole"},
                                     {{m.make_strided({2, 3}), "AVG", 1.0, 0, kAlone}, "strided"}};
        })
        .reference(values_with_rank(0));
const Attached gather_op =
    attach("collective_gather")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 0, kAlone}, "whole"},
                                     {{m.make_strided({2, 3}), 0, kAlone}, "strided"},
                                     {{m.make({}), 0, kAlone}, "0-d"}};
        })
        .reference(values_with_rank(1));
const Attached scatter_op =
    attach("collective_scatter")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({1, 3}), 0, kAlone}, "whole"},
                                     {{m.make({1}), 0, kAlone}, "a number"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 0, kAlone}, ErrorKind::value, "there must be one row"}};
        })
        .reference(values_with_rank(-1));

}  // namespace
}  // namespace arete::ops
