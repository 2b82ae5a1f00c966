// Shape functions made of other views.
#include "arete/ops/call.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& t_op =
    define("t(Tensor self) -> Tensor")
        .doc("The transpose of a matrix.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() <= 2, ValueError(c.name(),
                                               "t() expects a tensor with <= 2 dimensions, "
                                               "but self is " +
                                                   std::to_string(x.dim()) + "D"));
          // Also for vectors a new tensor, so that t_() of the result never meets self.
          return {x.dim() < 2 ? transpose(x, 0, 0) : transpose(x, 0, 1)};
        });

const OpRecord& mT_op =
    define("mT(Tensor self) -> Tensor")
        .doc("The last two dimensions swapped.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() >= 2,
                      ValueError(c.name(),
                                 "tensor.mT is only supported on matrices or batches of "
                                 "matrices. Got " +
                                     std::to_string(c.tensor(0).dim()) + "-D tensor."));
          return {transpose(c.tensor(0), -2, -1)};
        });

const OpRecord& movedim_op =
    define("movedim(Tensor self, int[] source, int[] destination) -> Tensor")
        .doc("Dimensions moved to other places.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int rank = int(x.dim());
          ARETE_CHECK(c.ints(1).size() == c.ints(2).size(),
                      ValueError(c.name(), "movedim: Invalid source or destination dims: source (" +
                                               to_string(c.ints(1)) +
                                               " dims) should contain the same number of dims as "
                                               "destination (" +
                                               to_string(c.ints(2)) + " dims)"));
          normalize_dims(c.ints(1), rank, c.name(), false);
          normalize_dims(c.ints(2), rank, c.name(), false);
          if (rank == 0) return {arete::permute(x, {})};
          Shape order(size_t(rank), -1), moved(size_t(rank), 0);
          for (size_t k = 0; k < c.ints(1).size(); ++k) {
            const int from = normalize_dim(c.ints(1)[k], rank, c.name());
            order[size_t(normalize_dim(c.ints(2)[k], rank, c.name()))] = from;
            moved[size_t(from)] = 1;
          }
          int next = 0;
          for (int64_t& place : order) {
            if (place >= 0) continue;
            while (moved[size_t(next)]) ++next;
            place = next++;
          }
          return {arete::permute(x, order)};
        });

const OpRecord& flatten_op =
    define("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor")
        .doc("Dimensions start_dim to end_dim as one.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int a = dim_of(c, 1), b = dim_of(c, 2);
          ARETE_CHECK(a <= b, ValueError(c.name(),
                                         "flatten() has invalid args: start_dim cannot come "
                                         "after end_dim"));
          if (x.dim() == 0) return {arete::reshape(x, {1})};
          Shape sizes;
          int64_t joined = 1;
          for (int d = 0; d < int(x.dim()); ++d) {
            const int64_t n = x.sizes()[size_t(d)];
            if (d < a || d > b) {
              sizes.push_back(n);
            } else {
              joined *= n;
              if (d == b) sizes.push_back(joined);
            }
          }
          return {arete::reshape(x, sizes)};
        });

const OpRecord& unflatten_op =
    define("unflatten(Tensor self, int dim, int[] sizes) -> Tensor")
        .doc("One dimension as several.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int d = dim_of(c, 1);
          ARETE_CHECK(!c.ints(2).empty(),
                      ValueError(c.name(), "unflatten: sizes must be non-empty"));
          const int64_t n = x.size(d);
          int64_t product = 1, unknown = 0;
          for (int64_t s : c.ints(2)) {
            if (s == -1)
              ++unknown;
            else
              product *= s;
          }
          ARETE_CHECK(unknown ? unknown == 1 && product > 0 && n % product == 0 : product == n,
                      ValueError(c.name(), "unflatten: Provided sizes " + to_string(c.ints(2)) +
                                               " don't multiply up to the size of dim " +
                                               std::to_string(d) + " (" + std::to_string(n) +
                                               ") in the input tensor"));
          Shape sizes;
          for (int e = 0; e < int(x.dim()); ++e) {
            if (e != d) {
              sizes.push_back(x.size(e));
              continue;
            }
            for (int64_t s : c.ints(2)) sizes.push_back(s == -1 ? n / product : s);
          }
          return {arete::view(x, sizes)};
        });

}  // namespace
}  // namespace ops

Tensor t(const Tensor& self) { return ops::call(ops::t_op, {self}); }
Tensor mT(const Tensor& self) { return ops::call(ops::mT_op, {self}); }
Tensor movedim(const Tensor& self, int64_t source, int64_t destination) {
  return movedim(self, IntList(&source, 1), IntList(&destination, 1));
}
Tensor movedim(const Tensor& self, IntList source, IntList destination) {
  return ops::call(ops::movedim_op, {self, source, destination});
}
Tensor flatten(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  return ops::call(ops::flatten_op, {self, start_dim, end_dim});
}
Tensor unflatten(const Tensor& self, int64_t dim, IntList sizes) {
  return ops::call(ops::unflatten_op, {self, dim, sizes});
}
Tensor broadcast_to(const Tensor& self, IntList sizes) { return expand(self, sizes); }

Tensor Tensor::view_as(const Tensor& other) const { return arete::view_as(*this, other); }
Tensor Tensor::reshape_as(const Tensor& other) const { return arete::reshape_as(*this, other); }
Tensor Tensor::expand_as(const Tensor& other) const { return arete::expand_as(*this, other); }
Tensor Tensor::broadcast_to(IntList sizes) const { return arete::broadcast_to(*this, sizes); }
Tensor Tensor::t() const { return arete::t(*this); }
Tensor Tensor::mT() const { return arete::mT(*this); }
Tensor Tensor::movedim(int64_t a, int64_t b) const { return arete::movedim(*this, a, b); }
Tensor Tensor::flatten(int64_t a, int64_t b) const { return arete::flatten(*this, a, b); }
Tensor Tensor::unflatten(int64_t dim, IntList sizes) const {
  return arete::unflatten(*this, dim, sizes);
}
Tensor Tensor::ravel() const { return arete::ravel(*this); }

}  // namespace arete

ARETE_FAMILY(shape_compose)
