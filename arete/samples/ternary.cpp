// Samples, references and errors of the records in ops/ternary.cpp.
#include <cmath>

#include "arete/core/modes.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> three(SampleMaker& m, double low, double high, std::vector<OwnedArg> more) {
  std::vector<Sample> all{
      {{m.make({2, 3}, low, high), m.make({2, 3}, low, high), m.make({2, 3}, low, high)}, "equal"},
      {{m.make({2, 1}, low, high), m.make({3}, low, high), m.make_strided({2, 3}, low, high)},
       "broadcast"},
      {{m.make({}, low, high), m.make({}, low, high), m.make({}, low, high)}, "0-d"}};
  for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

// f(a, b, c, value) with the fourth argument, if there is one, as value.
template <class F>
Reference reference3(F f) {
  return [f](const Call& c) {
    const double value = c.size() > 3 ? c.scalar(3).to_double() : 0;
    return std::vector<Tensor>{build_tensor(broadcast_args(c, 3), [&](const Shape& i) {
      return f(at_arg(c[0], i), at_arg(c[1], i), at_arg(c[2], i), value);
    })};
  };
}

const Attached addcmul_op =
    attach("addcmul")
        .samples([](SampleMaker& m) { return three(m, -2, 2, {Scalar(0.5)}); })
        .reference(
            reference3([](double a, double b, double c, double v) { return a + v * b * c; }));
const Attached addcdiv_op =
    attach("addcdiv")
        .samples([](SampleMaker& m) { return three(m, 0.5, 2, {Scalar(0.5)}); })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor i = m.make_index({2}, 3) + 1;
          return {{{m.make({2}), i, i}, ErrorKind::type, "no longer supported"}};
        })
        .reference(
            reference3([](double a, double b, double c, double v) { return a + v * b / c; }));
const Attached lerp_op =
    attach("lerp")
        .samples([](SampleMaker& m) {
          auto all = three(m, -2, 2, {});
          all.push_back({{m.make({4}), m.make({4}), Scalar(0.25)}, "a number"});
          return all;
        })
        .reference(
            reference3([](double a, double b, double w, double) { return a + w * (b - a); }));
const Attached where_op =
    attach("where")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make_mask({2, 3}), m.make({2, 3}), m.make({2, 3})}, "equal"},
              {{m.make_mask({2, 1}), m.make({3}), m.make_strided({2, 3})}, "broadcast"},
              {{m.make_mask({4}), m.make({4}), Scalar(0.5)}, "a number"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(broadcast_args(c, 3), [&](const Shape& i) {
            return at_arg(c[0], i) != 0 ? at_arg(c[1], i) : at_arg(c[2], i);
          })};
        });
const Attached clamp_op =
    attach("clamp_point")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), Scalar(-0.5), Scalar(0.75)}, "both"},
                                     {{m.make({5}), Scalar(0.5), Scalar(-0.5)}, "min > max"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return std::fmin(std::fmax(at(c.tensor(0), i), c.scalar(1).to_double()),
                             c.scalar(2).to_double());
          })};
        });
std::vector<Sample> by_tensor_samples(SampleMaker& m) {
  return {{{m.make_distinct({2, 3}), m.make_distinct({2, 3})}, "equal shapes"},
          {{m.make({2, 3}), m.make({3})}, "broadcast"},
          {{m.make_strided({2, 3}), m.make({2, 1})}, "strides"}};
}
const Attached clamp_min_by_op =
    attach("clamp_min_by").samples(by_tensor_samples).reference(reference2([](double a, double b) {
      return std::fmax(a, b);
    }));
const Attached clamp_max_by_op =
    attach("clamp_max_by").samples(by_tensor_samples).reference(reference2([](double a, double b) {
      return std::fmin(a, b);
    }));
const Attached clamp_by_op =
    attach("clamp_by")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 5}), m.make({2, 5}, -1.5, -0.5), m.make({2, 5}, 0.5, 1.5)},
               "equal shapes"},
              {{m.make({6}), m.make({6}, 0.5, 1.5), m.make({6}, -1.5, 0.5)}, "limits that cross"},
              {{m.make({3, 4}), m.make({4}, -1.5, -0.5), m.make({3, 1}, 0.5, 1.5)}, "broadcast"},
              {{m.make_strided({2, 3}), m.make({2, 3}, -1.5, -0.5), m.make({}, 0.5, 1)},
               "strides"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(broadcast_args(c, 3), [&](const Shape& i) {
            return std::fmin(std::fmax(at_arg(c[0], i), at_arg(c[1], i)), at_arg(c[2], i));
          })};
        });
const Attached clamp_min_op =
    attach("clamp_min_point")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), Scalar(-0.5)}, ""}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return std::fmax(at(c.tensor(0), i), c.scalar(1).to_double());
          })};
        });
const Attached clamp_max_op =
    attach("clamp_max_point")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), Scalar(0.5)}, ""}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return std::fmin(at(c.tensor(0), i), c.scalar(1).to_double());
          })};
        });

}  // namespace
}  // namespace arete::ops
