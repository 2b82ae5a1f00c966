"""Loading, by the name of torch's module."""
from ._files import _load_state_dict as _load_state_dict
from ._files import load

__all__ = ["load"]
