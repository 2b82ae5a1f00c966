"""Functions of torch's that are no single record: other defaults, lists of arguments, several results.

Names given here replace records of the same name; those of METHODS become methods of Tensor, too.
"""
import math as _math
import types as _types

from ._methods import METHODS
from .creation import as_tensor, asarray, clone, detach, range, zero_
from .elements import gradient, index_put, index_put_, nonzero
from .layers import (
    adaptive_max_pool1d, batch_norm, binary_cross_entropy_with_logits, cosine_embedding_loss, ctc_loss, embedding, embedding_bag,
    grid_sampler, grid_sampler_2d, grid_sampler_3d, hinge_embedding_loss, instance_norm, kl_div, margin_ranking_loss,
    triplet_margin_loss,
)
from .matrices import adjoint, chain_matmul, lu, pca_lowrank, svd_lowrank, tensordot
from .questions import (
    allclose, can_cast, equal, get_device, is_complex, is_conj, is_floating_point, is_inference, is_neg, is_nonzero, is_same_size,
    is_signed, is_storage, is_tensor, numel, result_type, typename,
)
from .shapes import (
    atleast_1d, atleast_2d, atleast_3d, block_diag, broadcast_shapes, broadcast_tensors, cartesian_prod, einsum,
    meshgrid, resize_, resize_as_,
)
from .statistics import histogram, histogramdd, norm, unique, unique_consecutive

inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e

# In which file one stands is nobody's business: pickles name them as arete._functions has them.
for _function in (*vars().values(), *METHODS.values()):
    if isinstance(_function, _types.FunctionType):
        _function.__module__ = "arete._functions"
