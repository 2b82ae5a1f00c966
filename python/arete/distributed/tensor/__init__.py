"""Tensors spread over processes: there are none, and nothing is one."""
from __future__ import annotations

from ..._refused import refused as _refused
from ..device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
from .placement_types import Partial as Partial, Placement as Placement, Replicate as Replicate, Shard as Shard

globals().update(_refused(__name__, "there are no tensors that are spread over processes", "DTensor", "distribute_module",
                          "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"))
