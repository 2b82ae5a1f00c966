"""Programs that say `import torch` on Arete:

    python -m arete.as_torch program.py --its arguments
    python -m arete.as_torch -m module --its arguments

or, in a test or notebook, `arete.as_torch.install()`. `torch` and `torch.*` are the modules of Arete themselves. Texts (dtypes,
classes, sizes) say `torch.`, and `torch.__version__` and its package metadata the version whose names Arete has. Processes that
the program starts see the same.
"""
from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import pathlib
import sys
import types
from typing import Any, Optional

from .. import _C
from ..torch_version import TorchVersion

__all__ = ["install", "PATH", "VERSION"]

VERSION = "2.11.0"
# The folder from which `import torch` gets Arete, and importlib.metadata the version.
PATH = str(pathlib.Path(__file__).parent / "path")

_ARETE, _TORCH = __name__.partition(".")[0], "torch"


def _renamed(name: str, package: str) -> str:
    return package + name[len(name.partition(".")[0]):]


class _Finder:
    """Gives modules of Arete for names of torch, and passes on what Arete loads to `loaded`."""

    def __init__(self, loaded: Any) -> None:
        self.loaded = loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        package = name.partition(".")[0]
        if package == _TORCH:
            own = _renamed(name, _ARETE)
            found = sys.modules.get(own) or importlib.util.find_spec(own)
            return found and importlib.machinery.ModuleSpec(
                name, self, origin=getattr(found, "origin", None) or getattr(found, "__file__", None),
                is_package=hasattr(found, "__path__") or bool(getattr(found, "submodule_search_locations", None)))
        if package == _ARETE:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module
                spec.loader.exec_module = functools.partial(self._execute, execute)  # type: ignore[method-assign]
            return spec
        return None

    def _execute(self, execute: Any, module: types.ModuleType) -> None:
        execute(module)
        self.loaded(module)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(_renamed(spec.name, _ARETE))
        spec.loader_state = module.__spec__
        return module

    def get_code(self, name: str) -> Any:
        """What `python -m` runs, as `python -m torch.distributed.run`."""
        spec = importlib.util.find_spec(_renamed(name, _ARETE))
        return spec.loader.get_code(spec.name) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state or module.__spec__  # the import has put its own there


class _Names:
    """Arete under the name of torch."""

    def __init__(self) -> None:
        self.count = 0  # of installations
        self._put_path = False
        self._named: list = []
        self._finder = _Finder(self._name)

    def _set(self, owner: Any, attribute: str, value: Any) -> None:
        before = getattr(owner, attribute)
        try:
            setattr(owner, attribute, value)
        except (AttributeError, TypeError):  # functions of C
            return
        self._named.append((owner, attribute, before))

    def _name(self, module: types.ModuleType) -> None:
        """Makes a module known by torch's name, which is also where its classes and functions say that they are."""
        name = module.__name__
        if name.startswith(__name__):
            return
        sys.modules[_renamed(name, _TORCH)] = module
        things = [v for v in vars(module).values() if isinstance(v, (type, types.FunctionType))]
        for thing in things:
            if isinstance(thing, type):
                inner = thing.__qualname__ + "."
                things += [v for v in vars(thing).values() if isinstance(v, type) and v.__qualname__.startswith(inner)]
            at = getattr(thing, "__module__", None)
            if isinstance(at, str) and at.partition(".")[0] == _ARETE:
                self._set(thing, "__module__", _renamed(at, _TORCH))
        if name in (_ARETE, f"{_ARETE}.version"):
            self._set(module, "__version__", TorchVersion(VERSION))
        if name == _ARETE:  # clients look at this one's, as Pyro
            self._set(module, "__name__", _TORCH)

    def install(self) -> None:
        sys.meta_path.insert(0, self._finder)  # type: ignore[arg-type]
        self._put_path = PATH not in sys.path  # in PYTHONPATH of processes that such a program starts
        if self._put_path:
            sys.path.insert(min(1, len(sys.path)), PATH)  # behind the folder of the program
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == _ARETE:
                self._name(module)
        _C._print_package(_TORCH)

    def remove(self) -> None:
        sys.meta_path.remove(self._finder)  # type: ignore[arg-type]
        if self._put_path and PATH in sys.path:
            sys.path.remove(PATH)
        for name in [n for n in sys.modules if n.partition(".")[0] == _TORCH]:
            del sys.modules[name]
        for owner, attribute, before in reversed(self._named):
            setattr(owner, attribute, before)
        _C._print_package(_ARETE)


_names: Optional[_Names] = None


class _Installed:
    """Arete under the name of torch until `remove()`, or until the block ends, of the last installation."""

    def __init__(self) -> None:
        self._is_over = False

    def __enter__(self) -> types.ModuleType:
        return sys.modules[_ARETE]

    def __exit__(self, *error: Any) -> None:
        self.remove()

    def remove(self) -> None:
        """Takes the name away again, where no other installation needs it; what programs have imported, they keep."""
        global _names
        if self._is_over or _names is None:
            return
        self._is_over = True
        _names.count -= 1
        if _names.count == 0:
            _names.remove()
            _names = None


def install() -> Any:
    """From now on `import torch` imports Arete; in a with-statement until its end, for other times until `remove()` of the result.

    ImportError where torch itself has been imported: its objects and those of Arete would meet.

        with arete.as_torch.install():
            import torch.nn.functional as F
    """
    global _names
    there = sys.modules.get(_TORCH)
    if _names is None and there is not None and getattr(there, "__file__", None) != str(pathlib.Path(PATH, "torch.py")):
        raise ImportError(f"torch has been imported from {getattr(there, '__file__', None)}; "
                          "Arete can stand for it only from the start of a program")
    if _names is None:
        _names = _Names()
        _names.install()
    sys.modules[_TORCH] = sys.modules[_ARETE]
    _names.count += 1
    return _Installed()
