// Samples, references and errors of the records in ops/einsum.cpp.
#include <algorithm>
#include <sstream>
#include <string>

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> einsum_samples(SampleMaker& m) {
  using T = std::vector<Tensor>;
  return {
      {{"ij,jk->ik", T{m.make({2, 3}), m.make({3, 4})}}, "matrix product"},
      {{"bij,bjk->bik", T{m.make({2, 2, 3}), m.make_strided({2, 3, 2})}}, "batch"},
      {{"ij,kj", T{m.make({2, 3}), m.make({2, 3})}}, "implicit output"},
      {{"ii->i", T{m.make({3, 3})}}, "diagonal"},
      {{"ii", T{m.make({3, 3})}}, "trace"},
      {{"ij->ji", T{m.make({2, 3})}}, "transpose"},
      {{"ij->", T{m.make({2, 3})}}, "sum"},
      {{"i,j->ij", T{m.make({2}), m.make({3})}}, "outer product"},
      {{"i,i->", T{m.make({3}), m.make({3})}}, "dot product"},
      {{"ij,ij->ij", T{m.make({2, 3}), m.make({2, 3})}}, "elementwise"},
      {{"...ij,...jk->...ik", T{m.make({2, 1, 2, 2}), m.make({3, 2, 2})}}, "ellipsis"},
      {{"...i->...", T{m.make({2, 3})}}, "sum of the last"},
      {{"bn,anm,bm->ba", T{m.make({2, 2}), m.make({3, 2, 2}), m.make({2, 2})}}, "three operands"},
      {{"ij,j,k->k", T{m.make({2, 3}), m.make({3}), m.make({2})}},
       "letters of one operand are summed"},
      {{"ij,ij->i", T{m.make({2, 1}), m.make({2, 3})}}, "size 1 broadcasts"},
      {{"bhqd,bhkd->bhqk", T{m.make({1, 2, 2, 2}), m.make({1, 2, 3, 2})}}, "attention"}};
}

// The letters of an operand of this rank; those of its ellipsis are digits, counted from the right.
std::string letters_of(std::string term, int64_t rank) {
  std::erase(term, ' ');
  if (const size_t dots = term.find("..."); dots != std::string::npos) {
    std::string digits;
    for (int64_t k = rank - int64_t(term.size() - 3); k-- > 0;) digits += char('0' + k);
    term.replace(dots, 3, digits);
  }
  return term;
}

// Sums over every assignment of all letters.
Tensor einsum_reference(std::string_view equation, std::span<const Tensor> tensors) {
  const size_t arrow = equation.find("->");
  std::stringstream left(std::string(equation.substr(0, arrow)));
  std::vector<std::string> operands;
  std::string all, widest;
  Shape sizes;
  for (std::string term; std::getline(left, term, ',');) {
    const Tensor& t = tensors[operands.size()];
    operands.push_back(letters_of(term, t.dim()));
    for (size_t d = 0; d < operands.back().size(); ++d) {
      const char l = operands.back()[d];
      if (all.find(l) == std::string::npos) {
        all += l;
        sizes.push_back(1);
      }
      int64_t& size = sizes[all.find(l)];
      size = std::max(size, t.size(int64_t(d)));
    }
  }
  const auto rank_of_ellipsis = std::ranges::count_if(all, [](char l) { return l < 'A'; });
  std::string result;
  if (arrow != std::string_view::npos) {
    result = std::string(equation.substr(arrow + 2));
    const int64_t letters = int64_t(result.size()) - (result.find("...") < result.size() ? 3 : 0);
    result = letters_of(result, rank_of_ellipsis + letters);
  } else {
    // What occurs once, in order of the alphabet, behind the ellipsis.
    result = letters_of("...", rank_of_ellipsis);
    for (char l = 'A'; l <= 'z'; ++l) {
      int64_t times = 0;
      for (const std::string& o : operands) times += std::ranges::count(o, l);
      if (times == 1) result += l;
    }
  }
  const auto picked = [&](const std::string& letters, const Shape& from) {
    Shape s;
    for (char l : letters) s.push_back(from[all.find(l)]);
    return s;
  };
  const Shape out = picked(result, sizes);
  std::vector<double> values(size_t(numel_of(out)), 0.0);
  for_each_index(sizes, [&](const Shape& i) {
    double term = 1;
    for (size_t k = 0; k < tensors.size(); ++k) term *= at(tensors[k], picked(operands[k], i));
    values[size_t(flat_position(out, picked(result, i)))] += term;
  });
  return from_values(values, out);
}

const Attached einsum_op =
    attach("einsum")
        .samples(einsum_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          using T = std::vector<Tensor>;
          return {{{"ij,jk->ik", T{m.make({2, 3})}},
                   ErrorKind::value,
                   "einsum(): fewer operands were provided than specified in the equation"},
                  {{"ij->ik", T{m.make({2, 3})}},
                   ErrorKind::value,
                   "einsum(): output subscript k does not appear in the equation for any input "
                   "operand"},
                  {{"ij,jk->ik", T{m.make({2, 3}), m.make({4, 2})}},
                   ErrorKind::value,
                   "einsum(): operands do not broadcast with remapped shapes"},
                  {{"ijk->i", T{m.make({2, 3})}},
                   ErrorKind::value,
                   "einsum(): the number of subscripts in the equation (3) does not match the "
                   "number of dimensions (2)"},
                  {{"i1->i", T{m.make({2, 3})}},
                   ErrorKind::value,
                   "einsum(): invalid subscript given at index 1"},
                  {{"ii->i", T{m.make({2, 3})}},
                   ErrorKind::value,
                   "einsum(): subscript i is repeated for operand 0"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {einsum_reference(c[0].string(), c.tensors(1))};
        });

}  // namespace
}  // namespace arete::ops
