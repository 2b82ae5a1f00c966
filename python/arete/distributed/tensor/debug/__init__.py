"""What torch has to look into tensors that are spread over processes."""
from __future__ import annotations

from ...._refused import refused as _refused

globals().update(_refused(__name__, "calls of groups are listed by arete.distributed.flight_record()", "CommDebugMode"))
globals().update(_refused(__name__, "placements and parts are what a DTensor's text shows", "visualize_sharding"))
