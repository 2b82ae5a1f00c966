"""What torch has to look into tensors that are spread over processes."""
from __future__ import annotations

from ._comm_mode import CommDebugMode as CommDebugMode
from ._visualize_sharding import visualize_sharding as visualize_sharding
