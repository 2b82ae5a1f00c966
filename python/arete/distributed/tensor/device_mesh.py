"""The meshes of DTensors, under the address that torch has for them here."""
from ..device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
