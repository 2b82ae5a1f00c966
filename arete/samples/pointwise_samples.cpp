#include "arete/samples/pointwise_samples.h"

namespace arete::ops {

double at_arg(const Arg& a, IntList index) {
  return a.kind() == Arg::Kind::tensor ? at(a.tensor(), index) : a.scalar().to_double();
}

Shape broadcast_args(const Call& c, size_t n) {
  Shape s;
  for (size_t i = 0; i < n; ++i)
    if (c[i].kind() == Arg::Kind::tensor) s = broadcast_shapes(s, c.tensor(i).sizes(), c.name());
  return s;
}

std::function<std::vector<Sample>(SampleMaker&)> unary_samples(double low, double high,
                                                               std::vector<OwnedArg> more) {
  return [=](SampleMaker& m) {
    std::vector<Sample> all{{{m.make({2, 3}, low, high)}, "matrix"},
                            {{m.make_strided({3, 4}, low, high)}, "strided"},
                            {{m.make({}, low, high)}, "0-d"},
                            {{m.make({0, 3}, low, high)}, "empty"},
                            {{m.make({17}, low, high)}, "odd length"}};
    for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
    return all;
  };
}

std::function<std::vector<Sample>(SampleMaker&)> binary_samples(double low1, double high1,
                                                                double low2, double high2,
                                                                std::vector<OwnedArg> more) {
  return [=](SampleMaker& m) {
    std::vector<Sample> all{
        {{m.make({2, 3}, low1, high1), m.make({2, 3}, low2, high2)}, "equal shapes"},
        {{m.make({2, 1, 3}, low1, high1), m.make({4, 1}, low2, high2)}, "broadcast"},
        {{m.make_strided({3, 4}, low1, high1), m.make({4}, low2, high2)}, "strided"},
        {{m.make({}, low1, high1), m.make({3}, low2, high2)}, "0-d and 1-d"},
        {{m.make({0, 3}, low1, high1), m.make({3}, low2, high2)}, "empty"},
        {{m.make({5}, low1, high1), Scalar((low2 + high2) / 2 + 0.25)}, "a number"}};
    for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
    return all;
  };
}

std::vector<Sample> sum_samples(SampleMaker& m) {
  auto all = binary_samples(-2, 2, -2, 2, {1})(m);
  all.push_back({{m.make({2, 3}), m.make({3}), 3}, "alpha"});
  return all;
}

std::function<std::vector<ErrorSample>(SampleMaker&)> binary_errors(std::vector<OwnedArg> more) {
  return [=](SampleMaker& m) {
    std::vector<ErrorSample> all{{{m.make({2, 3}), m.make({2, 4})},
                                  ErrorKind::value,
                                  "The size of tensor a (3) must match the size of tensor b (4)"}};
    for (ErrorSample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
    return all;
  };
}

}  // namespace arete::ops
