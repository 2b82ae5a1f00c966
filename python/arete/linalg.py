"""Linear algebra under the names of torch.linalg."""
from . import _C
from ._C import ArgumentError as LinAlgError, Tensor  # noqa: F401
from ._operators import _given, _install_family, _ops


def _with_tolerances(name, A, atol, rtol, hermitian, out):
    """A record with tolerances as numbers, or the one with a tensor of them for each matrix."""
    if isinstance(atol, Tensor) or isinstance(rtol, Tensor):
        def given(t):
            return _C.tensor(t, dtype=A.dtype, device=A.device) if isinstance(t, (int, float)) else t

        result = getattr(_ops, name + "_tensor")(A, atol=given(atol), rtol=given(rtol), hermitian=hermitian)
    else:
        result = getattr(_ops, name)(A, atol=atol, rtol=rtol, hermitian=hermitian)
    return _given(out, result)


def pinv(A: Tensor, rcond=None, hermitian: bool = False, *, atol=None, rtol=None, out=None) -> Tensor:
    """The pseudo-inverse; singular values up to max(atol, rtol * largest) count as zero. `rcond` is an older rtol.

    Tolerances are numbers, or tensors with one for each matrix.

    (..., m, n) -> (..., n, m).

    >>> arete.linalg.pinv(arete.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.2500]])
    >>> arete.linalg.pinv(arete.ones(2))
    Traceback (most recent call last):
    arete.ArgumentError: linalg.pinv: The input tensor A must have at least 2 dimensions...
    """
    if rcond is not None:
        rtol = rcond
    return _with_tolerances("linalg_pinv", A, atol, rtol, hermitian, out)


def matrix_rank(A: Tensor, tol=None, hermitian: bool = False, *, atol=None, rtol=None, out=None) -> Tensor:
    """How many singular values are above max(atol, rtol * largest). `tol` is an absolute tolerance alone.

    Tolerances are numbers, or tensors with one for each matrix.

    (..., m, n) -> int64 (...).

    >>> arete.linalg.matrix_rank(arete.tensor([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    >>> arete.linalg.matrix_rank(arete.ones(2))
    Traceback (most recent call last):
    arete.ArgumentError: torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions...
    """
    if tol is not None:
        atol, rtol = tol, 0.0
    return _with_tolerances("linalg_matrix_rank", A, atol, rtol, hermitian, out)


__all__ = _install_family("linalg", globals())
