// einsum (declared in matmul.h).
//
// Note [Einsum]
// Every operand is first brought to one order of dimensions: repeated letters become diagonals,
// letters that no later operand and not the result mention are summed at once, the dimensions of
// the ellipsis are named 128, 129, ... from the right, so that they broadcast. Two operands are
// then contracted as one batched product: their letters fall in those of both that stay (batch), of
// the first only (rows), of the second only (columns), and of both that go (summed). The result
// keeps its letters, the next operand follows.
#include <algorithm>
#include <array>
#include <optional>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/matmul.h"

namespace arete {
namespace ops {
namespace {

using Labels = SmallVector<int, 8>;
constexpr int kEllipsis0 = 128;

bool has(const Labels& l, int label) { return std::find(l.begin(), l.end(), label) != l.end(); }
size_t position(const Labels& l, int label) {
  return size_t(std::find(l.begin(), l.end(), label) - l.begin());
}

struct Term {
  Labels before, after;  // letters left and right of "..."
  bool ellipsis = false;
};

Term parse_term(std::string_view text, const char* what) {
  Term t;
  for (size_t i = 0; i < text.size(); ++i) {
    const char ch = text[i];
    if (ch == ' ') continue;
    if (ch == '.') {
      ARETE_CHECK(text.substr(i, 3) == "..." && !t.ellipsis,
                  ValueError("einsum", std::string("einsum(): found '.' for ") + what +
                                           " that is not part of any ellipsis"));
      t.ellipsis = true;
      i += 2;
      continue;
    }
    ARETE_CHECK((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'),
                ValueError("einsum", std::string("einsum(): invalid subscript given at index ") +
                                         std::to_string(i) +
                                         " in the equation string, subscripts must be in [a-zA-Z]")
                    .got(std::string(1, ch)));
    (t.ellipsis ? t.after : t.before).push_back(ch);
  }
  return t;
}

struct Equation {
  std::vector<Term> inputs;
  std::optional<Term> output;
};

Equation parse(std::string_view text) {
  Equation e;
  std::string_view left = text;
  if (const size_t arrow = text.find("->"); arrow != std::string_view::npos) {
    left = text.substr(0, arrow);
    e.output = parse_term(text.substr(arrow + 2), "the output");
    Labels all = e.output->before;
    all.append(e.output->after.begin(), e.output->after.end());
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        ARETE_CHECK(all[i] != all[j],
                    ValueError("einsum", std::string("einsum(): output subscript ") + char(all[i]) +
                                             " appears more than once in the output"));
  }
  for (size_t begin = 0;;) {
    const size_t comma = left.find(',', begin);
    e.inputs.push_back(parse_term(left.substr(begin, comma - begin), "an operand"));
    if (comma == std::string_view::npos) break;
    begin = comma + 1;
  }
  return e;
}

struct Operand {
  Tensor t;
  Labels labels;
};

// The letters of an operand's dimensions; those of the ellipsis count from the right.
Labels labels_of(const Term& term, int64_t rank, size_t which) {
  const int64_t named = int64_t(term.before.size() + term.after.size());
  ARETE_CHECK(
      term.ellipsis ? rank >= named : rank == named,
      ValueError("einsum",
                 "einsum(): the number of subscripts in the equation (" + std::to_string(named) +
                     ") " + (term.ellipsis ? "is more than" : "does not match") +
                     " the number of dimensions (" + std::to_string(rank) + ") for operand " +
                     std::to_string(which) + (term.ellipsis ? "" : " and no ellipsis was given")));
  Labels l = term.before;
  for (int64_t k = rank - named; k > 0; --k) l.push_back(kEllipsis0 + int(k) - 1);
  l.append(term.after.begin(), term.after.end());
  return l;
}

// Repeated letters become one dimension.
void take_diagonals(Operand& o, size_t which) {
  for (size_t i = 0; i < o.labels.size(); ++i) {
    for (size_t j = i + 1; j < o.labels.size();) {
      if (o.labels[i] != o.labels[j]) {
        ++j;
        continue;
      }
      ARETE_CHECK(o.t.size(int64_t(i)) == o.t.size(int64_t(j)),
                  ValueError("einsum", std::string("einsum(): subscript ") + char(o.labels[i]) +
                                           " is repeated for operand " + std::to_string(which) +
                                           " but the sizes don't match, " +
                                           std::to_string(o.t.size(int64_t(j))) +
                                           " != " + std::to_string(o.t.size(int64_t(i)))));
      // The diagonal comes last: bring it to place i.
      o.t = o.t.diagonal(0, int64_t(i), int64_t(j)).movedim(-1, int64_t(i));
      o.labels.erase(o.labels.begin() + j);
    }
  }
}

// Sums the letters that are not in `keep`.
void sum_missing(Operand& o, const Labels& keep) {
  Shape dims;
  Labels rest;
  for (size_t i = 0; i < o.labels.size(); ++i) {
    if (has(keep, o.labels[i]))
      rest.push_back(o.labels[i]);
    else
      dims.push_back(int64_t(i));
  }
  if (dims.empty()) return;
  o.t = o.t.sum(dims);
  o.labels = rest;
}

// Dimensions in the order of `labels`; letters that `o` lacks get size 1.
Tensor arranged(const Operand& o, const Labels& labels) {
  Shape order;
  for (int l : labels)
    if (has(o.labels, l)) order.push_back(int64_t(position(o.labels, l)));
  Tensor t = o.t.permute(order);
  for (size_t i = 0; i < labels.size(); ++i)
    if (!has(o.labels, labels[i])) t = t.unsqueeze(int64_t(i));
  return t;
}

int64_t size_in(const Operand& o, int label) {
  return has(o.labels, label) ? o.t.size(int64_t(position(o.labels, label))) : 1;
}

// The product of two operands, keeping the letters in `keep`.
Operand contract(Operand a, Operand b, const Labels& keep) {
  // Letters of one operand only that go are summed before; a letter of both that goes but has size
  // 1 in one of them (broadcasting) is summed in the other.
  Labels both_or_kept = keep;
  for (int l : a.labels)
    if (has(b.labels, l)) both_or_kept.push_back(l);
  sum_missing(a, both_or_kept);
  sum_missing(b, both_or_kept);
  Labels batch, rows, columns, summed;
  const auto classify = [&](int l) {
    const bool in_a = has(a.labels, l), in_b = has(b.labels, l);
    if (in_a && in_b)
      (has(keep, l) ? batch : summed).push_back(l);
    else
      (in_a ? rows : columns).push_back(l);
  };
  for (int l : a.labels) classify(l);
  for (int l : b.labels)
    if (!has(a.labels, l)) classify(l);

  const auto product = [](const Tensor& t, size_t from, size_t count) {
    int64_t n = 1;
    for (size_t i = 0; i < count; ++i) n *= t.size(int64_t(from + i));
    return n;
  };
  Labels result = batch;
  result.append(rows.begin(), rows.end());
  result.append(columns.begin(), columns.end());
  // Broadcast sizes of what both have.
  Shape batch_sizes, summed_sizes;
  for (int l : batch)
    batch_sizes.push_back(std::max(size_in(a, l), size_in(b, l)) *
                          (size_in(a, l) && size_in(b, l) ? 1 : 0));
  for (int l : summed)
    summed_sizes.push_back(std::max(size_in(a, l), size_in(b, l)) *
                           (size_in(a, l) && size_in(b, l) ? 1 : 0));
  Labels order_a = batch, order_b = batch;
  order_a.append(rows.begin(), rows.end());
  order_a.append(summed.begin(), summed.end());
  order_b.append(summed.begin(), summed.end());
  order_b.append(columns.begin(), columns.end());
  Tensor ta = arranged(a, order_a), tb = arranged(b, order_b);
  const size_t nb = batch.size(), nr = rows.size(), nc = columns.size(), ns = summed.size();
  Shape row_sizes, column_sizes;
  for (int l : rows) row_sizes.push_back(size_in(a, l));
  for (int l : columns) column_sizes.push_back(size_in(b, l));
  Shape full_a = batch_sizes, full_b = batch_sizes, full = batch_sizes;
  full_a.append(row_sizes.begin(), row_sizes.end());
  full_a.append(summed_sizes.begin(), summed_sizes.end());
  full_b.append(summed_sizes.begin(), summed_sizes.end());
  full_b.append(column_sizes.begin(), column_sizes.end());
  full.append(row_sizes.begin(), row_sizes.end());
  full.append(column_sizes.begin(), column_sizes.end());
  if (ns == 0) {  // nothing to sum: an elementwise product with broadcasting
    for (size_t i = 0; i < nc; ++i) ta = ta.unsqueeze(-1);
    for (size_t i = 0; i < nr; ++i) tb = tb.unsqueeze(int64_t(nb));
    return {ta.mul(tb), result};
  }
  ta = ta.expand(full_a);
  tb = tb.expand(full_b);
  const int64_t n_batch = product(ta, 0, nb), n_rows = product(ta, nb, nr),
                n_summed = product(ta, nb + nr, ns), n_columns = product(tb, nb + ns, nc);
  Tensor y;
  if (nb == 0) {
    y = arete::mm(ta.reshape({n_rows, n_summed}), tb.reshape({n_summed, n_columns}));
  } else {
    y = arete::bmm(ta.reshape({n_batch, n_rows, n_summed}),
                   tb.reshape({n_batch, n_summed, n_columns}));
  }
  return {y.reshape(full), result};
}

struct Problem {
  std::vector<Operand> operands;
  Labels output;
};

Problem prepare(std::string_view equation, std::span<const Tensor> tensors) {
  const Equation e = parse(equation);
  ARETE_CHECK(!tensors.empty(),
              ValueError("einsum", "einsum(): must provide at least one operand"));
  ARETE_CHECK(
      e.inputs.size() == tensors.size(),
      ValueError("einsum",
                 e.inputs.size() < tensors.size()
                     ? "einsum(): more operands were provided than specified in the equation"
                     : "einsum(): fewer operands were provided than specified in the equation")
          .expected(std::to_string(e.inputs.size()))
          .got(std::to_string(tensors.size())));
  Problem p;
  std::array<int64_t, 256> sizes;
  sizes.fill(-1);
  std::array<int, 128> count{};
  int ellipsis = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Operand o{tensors[i], labels_of(e.inputs[i], tensors[i].dim(), i)};
    for (int l : o.labels) {
      if (l < kEllipsis0)
        ++count[size_t(l)];
      else
        ellipsis = std::max(ellipsis, l - kEllipsis0 + 1);
    }
    take_diagonals(o, i);
    for (size_t d = 0; d < o.labels.size(); ++d) {
      int64_t& known = sizes[size_t(o.labels[d])];
      const int64_t n = o.t.size(int64_t(d));
      ARETE_CHECK(
          known < 0 || known == 1 || n == 1 || n == known,
          ValueError(
              "einsum",
              "einsum(): operands do not broadcast with remapped shapes [original->remapped]: "
              "subscript " +
                  (o.labels[d] < kEllipsis0 ? std::string(1, char(o.labels[d]))
                                            : std::string("...")) +
                  " has size " + std::to_string(n) + " for operand " + std::to_string(i) +
                  " which does not broadcast with previously seen size " + std::to_string(known)));
      if (known < 0 || known == 1) known = n;
    }
    p.operands.push_back(std::move(o));
  }
  const auto add_ellipsis = [&] {
    for (int k = ellipsis; k > 0; --k) p.output.push_back(kEllipsis0 + k - 1);
  };
  if (!e.output) {
    add_ellipsis();
    for (int ch = 'A'; ch <= 'z'; ++ch)
      if (count[size_t(ch)] == 1) p.output.push_back(ch);
    return p;
  }
  for (int l : e.output->before) p.output.push_back(l);
  if (e.output->ellipsis) add_ellipsis();
  for (int l : e.output->after) p.output.push_back(l);
  for (int l : p.output)
    ARETE_CHECK(l >= kEllipsis0 || count[size_t(l)] > 0,
                ValueError("einsum", std::string("einsum(): output subscript ") + char(l) +
                                         " does not appear in the equation for any input operand"));
  return p;
}

Tensor run(std::string_view equation, std::span<const Tensor> tensors) {
  Problem p = prepare(equation, tensors);
  Operand result = p.operands[0];
  for (size_t i = 1; i < p.operands.size(); ++i) {
    Labels keep = p.output;
    for (size_t j = i + 1; j < p.operands.size(); ++j)
      keep.append(p.operands[j].labels.begin(), p.operands[j].labels.end());
    result = contract(std::move(result), p.operands[i], keep);
  }
  sum_missing(result, p.output);
  return arranged(result, p.output);
}

const OpRecord& einsum_op =
    define("einsum(str equation, Tensor[] operands) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("Sums of products named by letters.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results { return {run(c[0].string(), c.tensors(1))}; });

}  // namespace
}  // namespace ops

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) {
  return ops::call(ops::einsum_op, {equation, operands});
}

}  // namespace arete

ARETE_FAMILY(einsum)
