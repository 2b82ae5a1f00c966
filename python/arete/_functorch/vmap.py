"""What arete.func.vmap does around a function, in steps: libraries with containers of tensors put their own in the place of some."""
from __future__ import annotations

import functools
from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from .._operators import cat
from .._vmap import level
from ..random import set_rng_state
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["Tensor", "_broadcast_to_and_flatten", "tree_flatten", "tree_unflatten"]

_add_batch_dim: Callable = _C._functorch._add_batch_dim
_remove_batch_dim: Callable = _C._functorch._remove_batch_dim


def _get_name(func: Callable) -> str:
    """A function's name for errors."""
    if hasattr(func, "__name__"):
        return func.__name__
    return f"functools.partial({_get_name(func.func)}, ...)" if isinstance(func, functools.partial) else repr(func)


def _validate_and_get_batch_size(flat_in_dims: list, flat_args: list) -> int:
    """The size of the dimension that arguments have in common."""
    sizes = [t.size(d) for d, t in zip(flat_in_dims, flat_args) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) != 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    return sizes[0]


def _process_batched_inputs(in_dims: Any, args: tuple, func: Callable) -> tuple:
    """The size of the batch, the dimension of each leaf of the arguments (None: it stays whole), the leaves, and their form."""

    def wrong(what: str) -> ValueError:
        return ValueError(f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>): {what}")

    if not isinstance(in_dims, (int, tuple)):
        raise wrong("expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
                    f"{type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({_get_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
                         "over a function with no inputs. The latter is unsupported.")
    leaves, form = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, form)
    if dims is None:
        raise wrong("in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                    f"{tree_flatten(in_dims)[1]} but inputs has structure {form}.")
    for i, (d, t) in enumerate(zip(dims, leaves)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise wrong(f"Got in_dim={d} for an input but in_dim must be either an integer dimension or None.")
        if not isinstance(t, Tensor):
            raise wrong(f"Got in_dim={d} for an input but the input is of type {type(t)}. We cannot vmap over non-Tensor arguments, please "
                        "use None as the respective in_dim")
        if not -t.dim() <= d < t.dim():
            raise wrong(f"Got in_dim={d} for some input, but that input is a Tensor of dimensionality {t.dim()} so expected in_dim to "
                        f"satisfy -{t.dim()} <= in_dim < {t.dim()}.")
        dims[i] = d % t.dim()
    return _validate_and_get_batch_size(dims, leaves), dims, leaves, form


def _create_batched_inputs(flat_in_dims: list, flat_args: list, vmap_level: int, args_spec: Any) -> Any:
    """The arguments as the function sees them: of one element."""
    parts = [t if d is None else _add_batch_dim(t, d, vmap_level) for d, t in zip(flat_in_dims, flat_args)]
    return tree_unflatten(parts, args_spec)


def _left(title: Callable[[], str], t: Any, out_dim: Optional[int]) -> Any:
    """A result of the function, as it is outside."""
    if out_dim is None:
        whole = _C._shared(t) if isinstance(t, Tensor) else t
        if whole is None and t is not None:
            raise ValueError(f"vmap({title()}, ...): `{title()}` can not return a BatchedTensor when out_dim is None")
    elif not isinstance(t, Tensor):
        raise ValueError(f"vmap({title()}, ...): `{title()}` must only return Tensors, got type {type(t)}. Did you mean to set "
                         "out_dims= to None for output?")
    else:
        whole = _C._unbatch(t, out_dim)
    return whole.detach() if isinstance(whole, Tensor) and not _C.is_grad_enabled() else whole


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: Optional[int]) -> Any:
    """What a function gave of a batch, as a whole; with `out_dim` None it must be the same for all elements."""
    return _left(lambda: name, batched_output, out_dim)


def _places(out_dims: Any, outputs: Any, form: Any, func: Callable) -> list:
    """Where each leaf of the results is stacked."""
    if not all(d is None or isinstance(d, int) for d in tree_flatten(out_dims)[0]):
        raise ValueError(f"vmap({_get_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection "
                         "of ints representing where in the outputs the vmapped dimension should appear.")
    places = _broadcast_to_and_flatten(out_dims, form)
    if isinstance(outputs, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        places = list(out_dims)
    if places is None:
        raise ValueError(f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
                         f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {form}.")
    return places


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Callable) -> Any:
    """The results, as they are outside."""
    leaves, form = tree_flatten(batched_outputs)
    title = functools.partial(_get_name, func)  # only where it is needed: the repr of a module or tensor takes long
    return tree_unflatten([_left(title, t, d) for t, d in zip(leaves, _places(out_dims, batched_outputs, form, func))], form)


def vmap_impl(func: Callable, in_dims: Any, out_dims: Any, randomness: str, chunk_size: Optional[int], *args: Any, **kwargs: Any) -> Any:
    """A call of vmap's function: see arete.func.vmap."""
    batch, dims, leaves, form = _process_batched_inputs(in_dims, args, func)

    def run(part: list, size: int) -> Any:
        with level(size, randomness):
            outputs = func(*_create_batched_inputs(dims, part, 1, form), **kwargs)
            return _unwrap_batched(outputs, out_dims, 1, size, func)

    if chunk_size is None or chunk_size >= batch:
        return run(leaves, batch)
    state, chunks = _C.default_generator.get_state(), []
    for begin in range(0, batch, chunk_size):
        if randomness == "same":
            set_rng_state(state)
        length = min(chunk_size, batch - begin)
        chunks.append(run([t if d is None else t.narrow(d, begin, length) for d, t in zip(dims, leaves)], length))
    parts, out_form = zip(*map(tree_flatten, chunks))
    places = _places(out_dims, chunks[0], out_form[0], func)
    return tree_unflatten([same[0] if d is None else cat(same, d) for d, *same in zip(places, *parts)], out_form[0])
