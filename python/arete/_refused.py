"""Names of what is not there, for programs that import them and ask whether an object is of them: no object is, and use says why."""
from __future__ import annotations

from typing import Any

__all__ = ["refused"]


class RefusedType(type):
    """The type of such names."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{cls.__module__}.{cls.__qualname__}: {cls._reason}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def use(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{cls.__module__}.{cls.__qualname__}.{name}: {cls._reason}")

        return use


def refused(module: str, reason: str, *names: str) -> dict[str, Any]:
    """Classes of these names: nothing is an instance, and calls are a NotImplementedError with the reason."""

    def doc(name: str) -> str:
        return f"""Not there: {reason}.

        >>> {module}.{name}()
        Traceback (most recent call last):
        NotImplementedError: {module}.{name}: {reason}
        """

    return {name: RefusedType(name, (), {"__module__": module, "__qualname__": name, "_reason": reason, "__doc__": doc(name)})
            for name in names}


# Of the package itself.
NAMES = refused("arete", "files are read and written by arete.load() and save()", "PyTorchFileReader", "PyTorchFileWriter")
