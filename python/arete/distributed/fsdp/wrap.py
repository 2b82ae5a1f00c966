"""Which modules of a network are wrapped by themselves.

A policy is a function of a module, whether its children are asked about, and the number of its elements that no child has; or an object
that gives modules and their settings."""
from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterable, Iterator, Optional, Union

__all__ = ["CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
           "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap"]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module.

    >>> arete.distributed.fsdp.wrap.always_wrap_policy()
    True
    """
    return True


class _Policy:
    """Gives the modules that are wrapped, with settings of their own."""

    def _run_policy(self, root_module: Any, ignored_modules: set, root_kwargs: dict) -> dict:
        raise NotImplementedError


class ModuleWrapPolicy(_Policy):
    """Modules of some classes.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> policy = arete.distributed.fsdp.wrap.ModuleWrapPolicy({nn.Linear})
    >>> [type(m).__name__ for m in policy._run_policy(net, set(), {})]
    ['Linear']
    """

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = set(module_classes)

    def _run_policy(self, root_module: Any, ignored_modules: set, root_kwargs: dict) -> dict:
        classes = tuple(self._module_classes)
        return {m: root_kwargs for m in root_module.modules() if m not in ignored_modules and isinstance(m, classes)}

    def __call__(self, module: Any, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._module_classes})"


class CustomPolicy(_Policy):
    """Modules of which a function says True, or gives settings."""

    def __init__(self, lambda_fn: Callable[[Any], Union[bool, dict]]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(self, root_module: Any, ignored_modules: set, root_kwargs: dict) -> dict:
        found = {}
        for m in root_module.modules():
            answer = False if m in ignored_modules else self._lambda_fn(m)
            if not isinstance(answer, (bool, dict)):
                raise ValueError(f"The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned {answer}")
            if answer:
                found[m] = {**root_kwargs, **(answer if isinstance(answer, dict) else {})}
        return found


def lambda_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable) -> bool:
    """Modules of which a function says True."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set) -> bool:
    """Modules of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8),
                                force_leaf_modules: Optional[set] = None, exclude_wrap_modules: Optional[set] = None) -> bool:
    """Modules of at least so many elements that no wrapped child has, but for lists and dictionaries of modules."""
    leaves = size_based_auto_wrap_policy.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    excluded = size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    is_large = nonwrapped_numel >= min_num_params
    if recurse:
        return is_large and not _is_one_of(module, leaves)
    return is_large and not _is_one_of(module, excluded)


def _is_one_of(module: Any, kinds: Iterable) -> bool:
    return any(isinstance(module, k) if isinstance(k, type) else type(module).__name__ == k for k in kinds)


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {"ModuleList", "ModuleDict"}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {"MultiheadAttention"}  # type: ignore[attr-defined]


def _or_policy(module: Any, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable]) -> bool:
    return any(p(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for p in policies)


_wrapper: Optional[tuple] = None  # in a block of enable_wrap()


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A block in which wrap() wraps, with these settings."""
    global _wrapper
    before, _wrapper = _wrapper, (wrapper_cls, wrapper_kwargs)
    try:
        yield
    finally:
        _wrapper = before


def wrap(module: Any, **wrap_overrides: Any) -> Any:
    """The module, wrapped where a block of enable_wrap() is open."""
    if _wrapper is None:
        return module
    kind, options = _wrapper
    return kind(module, **{**options, **wrap_overrides})


def wrapped_by(root: Any, policy: Any, ignored: set, options: dict) -> list:
    """(module, settings) of each module below `root` that a policy wraps, those further down first."""
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(root, ignored, options)
        chosen.pop(root, None)
        return [(m, chosen[m]) for m in reversed(list(root.modules())) if m in chosen]
    found: list = []
    seen: set = set()

    def visit(module: Any, is_root: bool) -> int:
        """How many elements are left to its parents."""
        numel = sum(p.numel() for p in {id(p): p for p in module.parameters()}.values())
        taken = 0
        if policy(module=module, recurse=True, nonwrapped_numel=numel):
            for child in module.children():
                if child not in ignored and id(child) not in seen:
                    seen.add(id(child))
                    taken += visit(child, False)
        if not is_root and policy(module=module, recurse=False, nonwrapped_numel=numel - taken):
            found.append((module, options))
            return numel
        return taken

    visit(root, True)
    return found
