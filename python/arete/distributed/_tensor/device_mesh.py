"""The older address of arete.distributed.device_mesh."""
from ..device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
