// Samples, references and errors of the records in ops/shape_compose.cpp.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

constexpr const char* kViews = "made of views that have references of their own";
const Attached t_op = attach("t")
                          .samples([](SampleMaker& m) {
                            return std::vector<Sample>{
                                {{m.make({2, 3})}, ""}, {{m.make({2})}, ""}, {{m.make({})}, ""}};
                          })
                          .errors([](SampleMaker& m) {
                            return std::vector<ErrorSample>{
                                {{m.make({1, 2, 3})},
                                 ErrorKind::value,
                                 "t() expects a tensor with <= 2 dimensions, but self is 3D"}};
                          })
                          .reference([](const Call& c) -> Refs {
                            const Tensor& x = c.tensor(0);
                            if (x.dim() < 2) return {from_values(values_of(x), x.sizes())};
                            return {build_tensor({x.size(1), x.size(0)}, [&](const Shape& i) {
                              return at(x, {i[1], i[0]});
                            })};
                          });
const Attached mT_op =
    attach("mT")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3})}, ""},
                                     {{m.make_strided({2, 3, 2})}, "batch"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({3})},
                                           ErrorKind::value,
                                           "tensor.mT is only supported on matrices or batches of "
                                           "matrices. Got 1-D tensor."}};
        })
        .no_reference(kViews);
const Attached movedim_op =
    attach("movedim")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3, 1}), {0}, {2}}, "one"},
                                     {{m.make({2, 1, 3}), {-1, 0}, {0, 1}}, "two"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), {0, 1}, {0}},
                                           ErrorKind::value,
                                           "movedim: Invalid source or destination dims"},
                                          {{m.make({2, 3}), {0, 0}, {0, 1}},
                                           ErrorKind::value,
                                           "dim 0 appears multiple times in the list of dims"}};
        })
        .reference([](const Call& c) -> Refs {
          // Take the sources out, then put them in by rising destination.
          const Tensor& x = c.tensor(0);
          const int64_t rank = x.dim();
          std::vector<int64_t> order;
          std::vector<std::pair<int64_t, int64_t>> moves;
          for (size_t k = 0; k < c.ints(1).size(); ++k)
            moves.push_back({(c.ints(2)[k] + rank) % rank, (c.ints(1)[k] + rank) % rank});
          for (int64_t d = 0; d < rank; ++d)
            if (std::none_of(moves.begin(), moves.end(), [d](auto& e) { return e.second == d; }))
              order.push_back(d);
          std::sort(moves.begin(), moves.end());
          for (auto [to, from] : moves) order.insert(order.begin() + to, from);
          Shape sizes;
          for (int64_t d : order) sizes.push_back(x.size(d));
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape from(i.size(), 0);
            for (size_t d = 0; d < i.size(); ++d) from[size_t(order[d])] = i[d];
            return at(x, from);
          })};
        });
const Attached flatten_op =
    attach("flatten")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3, 2}), 0, -1}, "all"},
                                     {{m.make_strided({2, 3, 2}), 1, 2}, "some, strided"},
                                     {{m.make({}), 0, -1}, "0-d"},
                                     {{m.make({2, 0}), 0, 1}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), 1, 0},
               ErrorKind::value,
               "flatten() has invalid args: start_dim cannot come after end_dim"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0) return {from_values(values_of(x), {1})};
          const int a = dim_of(c, 1), b = dim_of(c, 2);
          Shape sizes(x.sizes());
          for (int d = b; d > a; --d) {
            sizes[d - 1] *= sizes[d];
            sizes.erase(sizes.begin() + d);
          }
          return {from_values(values_of(x), sizes)};
        });
const Attached unflatten_op =
    attach("unflatten")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 6}), 1, {2, 3}}, "usual"},
                                     {{m.make_strided({6, 2}), -2, {-1, 2}}, "inferred"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 6}), 1, {4, 2}},
               ErrorKind::value,
               "unflatten: Provided sizes [4, 2] don't multiply up to the size of dim 1 (6)"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const int d = dim_of(c, 1);
          Shape part = infer_size(c.ints(2), x.size(d)), sizes;
          for (int e = 0; e < int(x.dim()); ++e)
            if (e == d)
              sizes.append(part.begin(), part.end());
            else
              sizes.push_back(x.size(e));
          return {from_values(values_of(x), sizes)};
        });

}  // namespace
}  // namespace arete::ops
