"""Where pickles have what makes tensors and dtypes again, and what is written in Python of tensors."""
from ._operators._tensor import (  # noqa: F401
    RemovableHandle, Tensor, _load_dtype, _load_generator, _rebuild, from_dlpack, from_numpy,
)


def _rebuild_from_type_v2(func, new_type, args, state):
    """A tensor of a class with attributes: what `func` makes of `args`, as that class, with the state."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if hasattr(new_type, "__setstate__"):
        made.__setstate__(state)
    else:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        for name, value in [*(attributes or {}).items(), *(slots or {}).items()]:
            setattr(made, name, value)
    return made
