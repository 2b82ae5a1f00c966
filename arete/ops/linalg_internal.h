// What the families of linear algebra share.
#pragma once

#include <functional>
#include <string>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/prim/dense_solver.h"

namespace arete::ops {

// ---- shapes and checks. `name` is torch's name of the function, "linalg.inv".

/// "linalg.inv" for the record "linalg_inv"; other names as they are.
std::string public_name(const Call& c);
/// f32 and f64 only: NotImplementedError "linalg.inv: Low precision dtypes not supported. Got
/// float16", TypeError for integers.
void check_factorizable(const std::string& name, const Tensor& t);
/// Rank 2 at least: ValueError "linalg.inv: The input tensor A must have at least 2 dimensions."
void check_matrix(const std::string& name, const Tensor& t, const char* argument = "A");
/// Also square: "linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices".
void check_square(const std::string& name, const Tensor& t, const char* argument = "A");
void check_same_dtype(const std::string& name, const Tensor& a, const Tensor& b);

/// All sizes but the last `kept`.
inline Shape batch_sizes(IntList sizes, size_t kept = 2) {
  return Shape(sizes.first(sizes.size() - kept));
}
/// The batch sizes followed by more.
Shape with_sizes(IntList batch, std::initializer_list<int64_t> more);
/// An output of batches of rows x columns matrices, each column-major as LAPACK wants it.
OutputSpec matrix_spec(IntList batch, int64_t rows, int64_t columns, const Tensor& like);
/// A column-major copy of the matrices of `t`, their batch broadcast to `batch`. No history.
Tensor column_major(const Tensor& t, IntList batch, prim::Primitives& p);

// Note [Factorizations on the host]
// LAPACK works on host memory. A lower() puts its input into column-major tensors on the device of
// the call and hands them to on_host(), which is the one place that knows about devices: memory of
// the CPU is used as it is; any other is copied to the host and, where it was written, back.
// Cholesky factors, LU factors and symmetric eigenvalues are found on the device where solver_of()
// knows a library (cuSOLVER).

/// The device's own library of factorizations, or null: then they are done on the host.
prim::DenseSolver* solver_of(const Tensor& t);

/// A tensor as host memory for the duration of on_host(). It must be dense: made by matrix_spec,
/// column_major or row-major.
struct HostUse {
  const Tensor& tensor;
  bool read, write;
};
inline HostUse host_in(const Tensor& t) { return {t, true, false}; }
inline HostUse host_out(const Tensor& t) { return {t, false, true}; }
inline HostUse host_in_out(const Tensor& t) { return {t, true, true}; }

class HostMemory {
 public:
  explicit HostMemory(std::span<std::byte* const> data) : data_(data) {}
  /// Element 0 of the i-th tensor.
  template <class T>
  T* at(size_t i) const {
    return reinterpret_cast<T*>(data_[i]);
  }

 private:
  std::span<std::byte* const> data_;
};

void on_host(std::span<const HostUse> uses, const std::function<void(const HostMemory&)>& f);
/// f(tag, memory), where the tag's type is float or double: the dtype of the first tensor.
template <class F>
void on_host(std::initializer_list<HostUse> uses, F&& f) {
  const bool is_double = uses.begin()->tensor.dtype() == kFloat64;
  on_host(std::span<const HostUse>(uses.begin(), uses.size()), [&](const HostMemory& memory) {
    if (is_double)
      f(TypeTag<double>{}, memory);
    else
      f(TypeTag<float>{}, memory);
  });
}

/// While it lives, products inside a composition are not made in autocast's lower precision.
class FullPrecision : ModesGuard {
 public:
  FullPrecision() { modes().word &= ~uint32_t(Modes::kAutocast); }
};

/// While it lives, operators called to compute a result record no history and are not changed by
/// autocast.
class PlainCalls : ModesGuard {
 public:
  PlainCalls() {
    modes().grad_enabled = false;
    modes().word &= ~uint32_t(Modes::kAutocast | Modes::kObserve);
  }
};

/// Throws ValueError "name: (Batch element 2): text(info)" for the first matrix whose info (int32,
/// one for each matrix) is not 0. Reads the data; meta tensors pass.
void check_info(const std::string& name, const Tensor& info, std::string (*text)(int64_t info));
std::string not_positive_definite_text(int64_t info);
std::string singular_inverse_text(int64_t info);
std::string singular_solve_text(int64_t info);

/// How many matrices.
inline int64_t count_of(IntList batch) { return numel_of(batch); }
/// m * n * min(m, n) for all matrices of argument 0: what factorizations cost, but for a factor.
double factorization_flops(const Call& c);

// ---- formulas and pieces
/// X with the diagonals of its last two dimensions multiplied.
Tensor scale_diagonal(const Tensor& x, double factor);
/// Vectors (..., n) as diagonal matrices (..., n, n).
Tensor diagonal_matrices(const Tensor& v);
/// Identity matrices expanded to a batch.
Tensor identities(IntList batch, int64_t n, const TensorOptions& options);
/// The gradient of the pseudo-inverse P of A.
Tensor pinv_gradient(const Tensor& grad, const Tensor& p, const Tensor& a);

// ---- samples: leaves, as of SampleMaker::make
/// Diagonally dominant matrices: well-conditioned, their symmetric part positive definite, and
/// their singular values distinct.
Tensor make_invertible(SampleMaker& m, IntList sizes);
/// The same, exactly symmetric.
Tensor make_symmetric(SampleMaker& m, IntList sizes);
}  // namespace arete::ops
