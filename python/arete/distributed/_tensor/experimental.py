"""The older address of arete.distributed.tensor.experimental."""
from ..tensor.experimental import implicit_replication as implicit_replication, local_map as local_map
