"""The older address of arete.distributed.tensor.placement_types."""
from ..tensor.placement_types import Partial as Partial, Placement as Placement, Replicate as Replicate, Shard as Shard

_Partial = Partial  # as it was called
