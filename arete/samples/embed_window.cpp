// Samples, references and errors of the records in ops/embed_window.cpp.
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;
const Attached embed_window_op =
    attach("embed_window")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 2}), {3, 4}, {4, 2}, 1}, "columns"},
                                     {{m.make_strided({3, 2}), {4}, {1, 1}, 0}, "overlapping"},
                                     {{m.make({}), {3}, std::vector<int64_t>{}, 2}, "0-d"},
                                     {{m.make({0, 2}), {3}, {1, 1}, 0}, "empty"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor out = build_tensor(c.ints(1), [](const Shape&) { return 0; });
          for_each_index(c.tensor(0).sizes(), [&](const Shape& i) {
            int64_t to = c.integer(3);
            for (size_t d = 0; d < i.size(); ++d) to += i[d] * c.ints(2)[d];
            static_cast<double*>(out.data_ptr())[to] += at(c.tensor(0), i);
          });
          return {out};
        });

}  // namespace
}  // namespace arete::ops
