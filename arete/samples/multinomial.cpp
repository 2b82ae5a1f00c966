// Samples, references and errors of the records in ops/multinomial.cpp.
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached multinomial_op =
    attach("multinomial")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({4}, 0.5, 1), 2, false, std::nullopt}, "one row"},
              {{m.make_strided({2, 3}, 0.5, 1), 3, false, std::nullopt}, "all"},
              {{m.make({2, 3}, 0.5, 1), 5, true, std::nullopt}, "replaced"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}, 0.5, 1), 3, false, std::nullopt},
               ErrorKind::value,
               "cannot sample n_sample > prob_dist.size(-1) samples without replacement"},
              {{m.make({2}, 0.5, 1), 0, false, std::nullopt},
               ErrorKind::value,
               "cannot sample n_sample <= 0 samples"},
              {{m.make({}, 0.5, 1), 1, false, std::nullopt},
               ErrorKind::value,
               "prob_dist must be 1 or 2 dim"}};
        })
        .no_reference(kRandomReference);

}  // namespace
}  // namespace arete::ops
