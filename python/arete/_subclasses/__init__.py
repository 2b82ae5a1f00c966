"""Tensors that stand for others while PyTorch compiles: here there are none, arete.compile records calls."""
from . import fake_tensor as fake_tensor
from . import functional_tensor as functional_tensor
from . import meta_utils as meta_utils
from .fake_tensor import FakeTensor as FakeTensor
from .fake_tensor import FakeTensorMode as FakeTensorMode
