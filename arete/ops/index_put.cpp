// Index expressions: x[1, 2:5, mask, rows] for reading and writing.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;

// Each index is looked up in a table of the contributions of its dimension: that resolves negative
// ones and finds those out of range with the primitive that does so anyway.
const OpRecord& flat_index_op =
    define("flat_index(Tensor[] indices, int[] sizes, int[] strides, int[] dims) -> Tensor")
        .doc(
            "Index tensors of one shape, for dimensions of the given sizes and strides, as one "
            "position; dims are the numbers of the dimensions for error texts.")
        .surface(Surface::internal)
        .for_files()
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const std::span<const Tensor> indices = c.tensors(0);
          const size_t n = indices.size();
          bool fits =
              n > 0 && c.ints(1).size() == n && c.ints(2).size() == n && c.ints(3).size() == n;
          for (size_t k = 0; fits && k < n; ++k)
            fits = is_integer(indices[k].dtype()) &&
                   indices[k].layout().sizes == indices[0].layout().sizes && c.ints(1)[k] >= 0 &&
                   c.ints(3)[k] >= 0 && c.ints(3)[k] < kMaxRank;
          ARETE_CHECK(fits, ValueError("flat_index", "indices and dimensions do not fit together"));
          const Tensor& first = indices[0];
          out.push_back({Shape(first.sizes()), kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          static const expr::ProgramPtr add =
              expr::trace([](std::span<const Value> v) { return std::vector{v[0] + v[1]}; },
                          std::vector{kInt64, kInt64}, {}, std::vector{kInt64});
          const std::span<const Tensor> indices = c.tensors(0);
          const IntList sizes = c.ints(1);
          const int64_t n = out[0].numel();
          const prim::ScratchView part(p, kInt64, {n});
          for (size_t k = sizes.size(); k-- > 0;) {
            const int64_t dim = c.ints(3)[k];
            const prim::ScratchView table(p, kInt64, {sizes[k]});
            prim::IotaArgs iota;
            iota.out = table.view();
            iota.istep = c.ints(2)[k];
            p.iota(iota);
            const IndexView index(p, indices[k], true);
            // All at dimension `dim` of views of higher rank, for the sake of the error's text.
            const Shape ones(size_t(dim), 1);
            const auto raised = [&](const prim::View& v, Shape& s, Shape& t, int64_t length) {
              s = ones;
              s.push_back(length);
              t = contiguous_strides(s);
              prim::View r = v;
              r.sizes = s;
              r.strides = t;
              return r;
            };
            Shape s[3], t[3];
            const bool last = k + 1 == sizes.size();
            const prim::View to = last ? view_of(out[0]) : part.view();
            p.gather({raised(table.view(), s[0], t[0], sizes[k]),
                      raised(index.view(), s[1], t[1], n), raised(to, s[2], t[2], n), int(dim),
                      "index"});
            if (!last) {
              prim::View flat = view_of(out[0]);
              const Shape length{n}, one{1};
              flat.sizes = length;
              flat.strides = one;
              const prim::View in[] = {flat, part.view()};
              p.pointwise({add.get(), in, {&flat, 1}, {}});
            }
          }
        })
        .dtypes({kFloat32});

// Note [Index expressions]
// Numbers, slices, new axes and the ellipsis are applied as views first, from left to right; what
// remains are index tensors at some dimensions of the view (masks become the positions of their
// true elements). One index tensor is index_select along its dimension. Several broadcast together
// and combine to one row index over their dimensions, which are brought to the front. Writing
// takes the same way, with the in-place forms of the operators on the view; where the indexed
// dimensions are no one dimension of a view, elements are written where they lie in memory.
struct Expression {
  Tensor base;
  struct Entry {
    int64_t dim;
    Tensor index;
    bool once = false;  // no position is named twice
  };
  std::vector<Entry> tensors;
};

// How many dimensions of self an entry stands for.
int64_t dims_of(const Index& i) {
  if (i.kind == Index::Kind::new_axis || i.kind == Index::Kind::ellipsis) return 0;
  return i.kind == Index::Kind::tensor && is_mask(i.tensor) ? i.tensor.dim() : 1;
}

void add_mask(Expression& e, const Tensor& mask, int64_t& dim, int64_t self_dim) {
  for (int64_t k = 0; k < mask.dim(); ++k)
    ARETE_CHECK(
        mask.size(k) == e.base.size(dim + k),
        IndexError("index",
                   "The shape of the mask " + to_string(mask.sizes()) + " at index " +
                       std::to_string(k) + " does not match the shape of the indexed tensor " +
                       to_string(e.base.sizes()) + " at index " + std::to_string(self_dim + k)));
  if (mask.dim() == 0) e.base = e.base.unsqueeze(dim);
  if (mask.dim() <= 1) {
    e.tensors.push_back({dim++, flat_nonzero(mask.dim() == 0 ? mask.reshape({1}) : mask), true});
    return;
  }
  // The mask's dimensions as one, if the memory allows.
  Shape merged(e.base.sizes());
  for (int64_t k = 1; k < mask.dim(); ++k) merged.erase(merged.begin() + dim);
  merged[size_t(dim)] = mask.numel();
  if (view(e.base.layout(), merged)) {
    e.base = e.base.view(merged);
    e.tensors.push_back({dim++, flat_nonzero(mask), true});
    return;
  }
  const Tensor positions = nonzero(mask);
  for (int64_t k = 0; k < mask.dim(); ++k) e.tensors.push_back({dim++, positions.select(1, k)});
}

Expression parse(const Tensor& self, const std::vector<Index>& indices, bool writing) {
  Expression e{self, {}};
  int64_t named = 0, ellipses = 0;
  for (const Index& i : indices) {
    if (i.kind == Index::Kind::tensor)
      ARETE_CHECK(
          i.tensor.defined() && is_integral_or_bool(i.tensor.dtype()),
          IndexError("index", "tensors used as indices must be long, int, byte or bool tensors")
              .got(describe(i.tensor)));
    named += dims_of(i);
    ellipses += i.kind == Index::Kind::ellipsis;
  }
  ARETE_CHECK(ellipses <= 1,
              IndexError("index", "an index can only have a single ellipsis ('...')"));
  ARETE_CHECK(named <= self.dim(), IndexError("index", "too many indices for tensor of dimension " +
                                                           std::to_string(self.dim()))
                                       .got(std::to_string(named) + " indices"));
  int64_t dim = 0, self_dim = 0;  // in the view and in self
  for (const Index& i : indices) {
    Tensor& x = e.base;
    if (i.kind == Index::Kind::number) {
      const int64_t n = x.size(dim);
      ARETE_CHECK(
          i.number >= -n && i.number < n,
          IndexError("index", "index " + std::to_string(i.number) +
                                  " is out of bounds for dimension " + std::to_string(self_dim) +
                                  " with size " + std::to_string(n)));
      x = x.select(dim, i.number);
    } else if (i.kind == Index::Kind::slice) {
      const Slice& s = i.slice;
      if (s.start || s.stop || s.step != 1) x = x.slice(dim, s.start, s.stop, s.step);
      ++dim;
    } else if (i.kind == Index::Kind::new_axis) {
      x = x.unsqueeze(dim++);
    } else if (i.kind == Index::Kind::ellipsis) {
      dim += self.dim() - named;
      self_dim += self.dim() - named;
    } else {
      const Tensor& t = i.tensor;
      const Tensor local = t.device() == self.device() ? t : t.to(self.device());
      if (is_mask(t)) {
        add_mask(e, local, dim, self_dim);
      } else if (t.dim() > 0) {
        e.tensors.push_back({dim++, t.dtype() == kInt64 ? local : local.to(kInt64)});
      } else if (writing) {  // a number
        const int64_t k = local.item<int64_t>(), n = x.size(dim);
        ARETE_CHECK(
            k >= -n && k < n,
            IndexError("index", "index " + std::to_string(k) + " is out of bounds for dimension " +
                                    std::to_string(self_dim) + " with size " + std::to_string(n)));
        x = x.select(dim, k);
      } else {  // the same, without reading it
        x = index_select(x, dim, local).squeeze(dim);
      }
    }
    self_dim += dims_of(i);
  }
  return e;
}

// Several index tensors, ready for use: the view with their dimensions in front as one, the
// positions in it, and how the parts of the result are ordered.
struct Combined {
  Shape order;     // of the view's dimensions: indexed ones first
  Shape merged;    // sizes of the view with the indexed dimensions as one
  Shape index;     // sizes of the broadcast index
  Shape rest;      // sizes of the dimensions without index
  int64_t before;  // how many of `rest` stand before the index in the result
  std::vector<Tensor> indices;
  Shape sizes, dims;  // that they are for

  int64_t count() const { return numel_of(index); }
  Tensor positions(IntList strides) const {
    return call(flat_index_op, {indices, sizes, strides, dims});
  }
  // In the merged dimension, 1-d.
  Tensor rows() const { return positions(contiguous_strides(sizes)).reshape({-1}); }
  // Of all elements in memory, sizes (index, rest); `l`: of the view with its dimensions in order.
  Tensor places(const Layout& l) const {
    Tensor all = positions(IntList(l.strides).first(dims.size()));
    for (size_t k = 0; k < rest.size(); ++k)
      all = all.unsqueeze(-1).add(arange(Scalar(rest[k]), TensorOptions(kInt64, all.device())),
                                  Scalar(l.strides[dims.size() + k]));
    return all;
  }
};

Combined combine(const Expression& e) {
  Combined c;
  std::string shapes;
  bool fits = true;
  for (const Expression::Entry& t : e.tensors) {
    shapes += (shapes.empty() ? "" : ", ") + to_string(t.index.sizes());
    Shape wide = c.index, other(t.index.sizes());
    if (wide.size() < other.size()) std::swap(wide, other);
    const size_t lead = wide.size() - other.size();
    for (size_t d = 0; d < other.size(); ++d) {
      if (wide[lead + d] == 1) wide[lead + d] = other[d];
      fits &= other[d] == 1 || other[d] == wide[lead + d];
    }
    c.index = wide;
  }
  ARETE_CHECK(
      fits,
      IndexError("index",
                 "shape mismatch: indexing tensors could not be broadcast together with shapes " +
                     shapes));
  bool neighbours = true;
  for (const Expression::Entry& t : e.tensors) {
    neighbours &= c.dims.empty() || c.dims.back() + 1 == t.dim;
    c.dims.push_back(t.dim);
    c.sizes.push_back(e.base.size(t.dim));
    c.indices.push_back(t.index.expand(c.index));
  }
  c.order = c.dims;
  c.merged.push_back(numel_of(c.sizes));
  for (int64_t d = 0; d < e.base.dim(); ++d) {
    if (std::find(c.dims.begin(), c.dims.end(), d) != c.dims.end()) continue;
    c.order.push_back(d);
    c.rest.push_back(e.base.size(d));
    c.merged.push_back(e.base.size(d));
  }
  c.before = neighbours ? c.dims[0] : 0;
  return c;
}

// The sizes of the result: `index` between the parts of `rest`.
Shape result_sizes(IntList rest, IntList index, int64_t before) {
  Shape r(rest.subspan(0, size_t(before)));
  r.append(index.begin(), index.end());
  r.append(rest.begin() + before, rest.end());
  return r;
}

// From dimensions (index, rest) to those of the result, or back.
Tensor reorder(const Tensor& t, int64_t n_index, int64_t before, bool to_result) {
  if (before == 0) return t;
  Shape order;
  const int64_t first = to_result ? n_index : before, count = to_result ? before : n_index;
  for (int64_t d = 0; d < count; ++d) order.push_back(first + d);
  for (int64_t d = 0; d < first; ++d) order.push_back(d);
  for (int64_t d = first + count; d < t.dim(); ++d) order.push_back(d);
  return t.permute(order);
}

Shape without(IntList sizes, int64_t dim) {
  Shape r(sizes);
  r.erase(r.begin() + dim);
  return r;
}

Tensor read(const Expression& e) {
  if (e.tensors.empty()) return e.base;
  if (e.tensors.size() == 1) {
    const auto& [dim, index, once] = e.tensors[0];
    if (index.dim() == 1)
      return dim == 0 ? ordered_select(e.base, dim, index, once) : index_select(e.base, dim, index);
    const Tensor r = index_select(e.base, dim, index.reshape({-1}));
    return r.reshape(result_sizes(without(e.base.sizes(), dim), index.sizes(), dim));
  }
  const Combined c = combine(e);
  const Tensor front = e.base.permute(c.order);
  // Few elements of many: looked up where they are, so that not all are moved for them.
  if (e.base.is_contiguous() && !view(front.layout(), c.merged) &&
      8 * c.count() * numel_of(c.rest) <= e.base.numel()) {
    const Tensor places = c.places(front.layout());
    return reorder(index_select(e.base.view({-1}), 0, places.view({-1})).view(places.sizes()),
                   int64_t(c.index.size()), c.before, true);
  }
  const Tensor rows = front.reshape(c.merged);
  const Tensor picked = index_select(rows, 0, c.rows()).reshape(result_sizes(c.rest, c.index, 0));
  return reorder(picked, int64_t(c.index.size()), c.before, true);
}

// `values` as wide as the place it is written to.
Tensor fit(const Tensor& values, IntList sizes, const Tensor& target) {
  Tensor v = values;
  while (v.dim() > int64_t(sizes.size()) && v.size(0) == 1) v = v.squeeze(0);
  bool fits = v.dim() <= int64_t(sizes.size());
  for (int64_t d = 0; fits && d < v.dim(); ++d)
    fits = v.size(d) == 1 || v.size(d) == sizes[sizes.size() - size_t(v.dim()) + size_t(d)];
  ARETE_CHECK(
      fits, ValueError("index_put_",
                       "shape mismatch: value tensor of shape " + to_string(values.sizes()) +
                           " cannot be broadcast to indexing result of shape " + to_string(sizes)));
  if (v.device() != target.device() || v.dtype() != target.dtype())
    v = v.to(target.device(), target.dtype());
  return v.expand(sizes);
}

void write_slices(Tensor& target, int64_t dim, const Tensor& index, const Tensor& values,
                  bool accumulate) {
  if (accumulate)
    target.index_add_(dim, index, values);
  else
    index_copy_into(target, dim, index, values);
}

void write(Expression e, const Tensor& values, bool accumulate) {
  Tensor& x = e.base;
  if (e.tensors.empty()) {
    const Tensor v = fit(values, x.sizes(), x);
    if (accumulate)
      x.add_(v);
    else
      x.copy_(v);
    return;
  }
  if (e.tensors.size() == 1) {
    const auto& [dim, index, once] = e.tensors[0];
    Shape flat(x.sizes());
    flat[size_t(dim)] = index.numel();
    const Tensor v = fit(values, result_sizes(without(x.sizes(), dim), index.sizes(), dim), x);
    write_slices(x, dim, index.reshape({-1}), v.reshape(flat), accumulate);
    return;
  }
  const Combined c = combine(e);
  const int64_t n_index = int64_t(c.index.size());
  const Tensor v =
      reorder(fit(values, result_sizes(c.rest, c.index, c.before), x), n_index, c.before, false);
  const Tensor front = x.permute(c.order);
  const Layout& l = front.layout();
  if (view(l, c.merged)) {
    Tensor rows = front.view(c.merged);
    Shape sizes = c.merged;
    sizes[0] = c.count();
    write_slices(rows, 0, c.rows(), v.reshape(sizes), accumulate);
    return;
  }
  Tensor memory = as_strided(x, {l.end() - l.offset}, {1}, l.offset);
  write_slices(memory, 0, c.places(l).reshape({-1}), v.reshape({-1}), accumulate);
}

// A mask that stands alone and a number: one elementwise pass, without looking for positions.
bool fill_by_mask(Tensor& self, const std::vector<Index>& indices, const Scalar& value) {
  if (indices.size() != 1) return false;
  const Tensor& mask = indices[0].tensor;
  if (!mask.defined() || mask.dtype() != kBool || mask.dim() == 0 || mask.dim() > self.dim() ||
      mask.device() != self.device() || value.category() > std::max(1, category_of(self.dtype())))
    return false;
  Shape sizes(mask.sizes());
  if (!std::equal(sizes.begin(), sizes.end(), self.sizes().begin())) return false;
  while (int64_t(sizes.size()) < self.dim()) sizes.push_back(1);
  self.masked_fill_(mask.reshape(sizes), value);
  return true;
}

// ---- records over index tensors only: an undefined one stands for a whole dimension

std::vector<Index> entries(std::span<const Tensor> indices) {
  std::vector<Index> all;
  for (const Tensor& t : indices) {
    if (t.defined())
      all.push_back(t);
    else
      all.push_back(Slice());
  }
  return all;
}

const OpRecord& index_op =
    define("index(Tensor self, Tensor[] indices) -> Tensor")
        .doc(
            "Elements at index tensors (integers or masks), which broadcast together; a missing "
            "one "
            "stands for the whole dimension.")
        .takes_gaps()
        .compose([](const Call& c) -> Results {
          return {arete::index(c.tensor(0), entries(c.tensors(1)))};
        });

const OpRecord& index_put_op =
    define(
        "index_put(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .takes_gaps()
        .doc(
            "self with the elements at index tensors replaced by values (broadcast), or with "
            "accumulate added to; a missing index stands for the whole dimension.")
        .compose([](const Call& c) -> Results {
          check_same_dtype(c, c.tensor(0), c.tensor(2));
          return {arete::index_put(c.tensor(0), entries(c.tensors(1)), c.tensor(2), c.boolean(3))};
        })
        .in_place();

}  // namespace

}  // namespace ops

Tensor index(const Tensor& self, const std::vector<Index>& indices) {
  const Tensor found = ops::read(ops::parse(self, indices, false));
  return found.is_same(self) ? self.view(self.sizes()) : found;  // a tensor of its own
}
Tensor Tensor::index(const std::vector<Index>& indices) const {
  return arete::index(*this, indices);
}
Tensor Tensor::index(std::initializer_list<Index> indices) const {
  return arete::index(*this, std::vector<Index>(indices));
}
Tensor Tensor::operator[](int64_t i) const {
  ARETE_CHECK(dim() > 0,
              IndexError("index",
                         "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a "
                         "0-dim tensor to a number"));
  return arete::index(*this, {Index(i)});
}

Tensor& Tensor::index_put_(const std::vector<Index>& indices, const Tensor& value,
                           bool accumulate) {
  ops::write(ops::parse(*this, indices, true), value, accumulate);
  return *this;
}
Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Tensor& value,
                           bool accumulate) {
  return index_put_(std::vector<Index>(indices), value, accumulate);
}
Tensor& Tensor::index_put_(std::initializer_list<Index> list, Scalar value) {
  const std::vector<Index> indices(list);
  if (ops::fill_by_mask(*this, indices, value)) return *this;
  return index_put_(indices, full({}, value, options()));
}
Tensor index_put(const Tensor& self, const std::vector<Index>& indices, const Tensor& values,
                 bool accumulate) {
  Tensor out = self.clone();
  out.index_put_(indices, values, accumulate);
  return out;
}

}  // namespace arete

ARETE_FAMILY(index_put)
