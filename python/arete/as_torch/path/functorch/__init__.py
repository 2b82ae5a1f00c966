"""What `import functorch` finds, the older address of torch.func. Not there: `dim`, dimensions that are objects."""
from torch._functorch.make_functional import (
    FunctionalModule, FunctionalModuleWithBuffers, combine_state_for_ensemble, make_functional, make_functional_with_buffers,
)
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "grad", "grad_and_value", "hessian", "jacfwd",
           "jacrev", "jvp", "make_functional", "make_functional_with_buffers", "vjp", "vmap"]
