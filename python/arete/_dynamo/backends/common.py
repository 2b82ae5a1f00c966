"""What backends of programs are made of."""
from __future__ import annotations

from typing import Any, Callable

__all__ = ["aot_autograd"]


def aot_autograd(**kwargs: Any) -> Callable:
    """A backend that hands graphs without gradients to `inference_compiler`, or else to `fw_compiler`. A graph whose inputs want gradients
    is refused: of backward passes there are no graphs. (A plain function as backend is given it, and gradients go through what it calls.)

    >>> from arete._dynamo.backends.common import aot_autograd
    >>> backend = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward)
    >>> arete.compile(lambda x: x + 1, backend=backend)(arete.ones(1))
    tensor([2.])
    """
    unknown = kwargs.keys() - {"fw_compiler", "bw_compiler", "inference_compiler"}
    if unknown:
        raise NotImplementedError(f"aot_autograd(): {', '.join(sorted(unknown))}: graphs have the operators that were called, and of "
                                  "backward passes there are none")
    run = kwargs.get("inference_compiler") or kwargs.get("fw_compiler")
    if run is None:
        raise TypeError("aot_autograd(): fw_compiler is missing")

    def backend(gm: Any, example_inputs: list) -> Callable:
        if any(x.requires_grad for x in example_inputs):
            raise NotImplementedError("aot_autograd(): an input or parameter wants a gradient, and of backward passes there are no graphs: "
                                      "call the function under no_grad(), or give compile() fw_compiler itself as the backend")
        return run(gm, example_inputs)

    return backend
