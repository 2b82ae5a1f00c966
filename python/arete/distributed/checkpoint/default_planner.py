"""What is saved and loaded of a state, as far as there is a choice."""
from __future__ import annotations

from typing import Optional

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]


def _refuse(name: str, **given: bool) -> None:
    for option, default in given.items():
        if not default:
            raise NotImplementedError(f"{name}: {option} keeps its default: states are saved by names of tensors, and a piece that several "
                                      "processes have is written by the one that has least to write")


class DefaultSavePlanner:
    """All of a state. NotImplementedError for options other than the defaults, and where save() gets a class made of this one.

    >>> dcp = arete.distributed.checkpoint
    >>> dcp.save({"x": arete.ones(2)}, checkpoint_id="run", planner=dcp.DefaultSavePlanner())
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 dedup_replicated_tensors: Optional[bool] = None, dedup_save_to_lowest_rank: bool = False,
                 enable_plan_caching: bool = False) -> None:
        _refuse("DefaultSavePlanner", flatten_state_dict=flatten_state_dict, flatten_sharded_tensors=flatten_sharded_tensors,
                dedup_replicated_tensors=dedup_replicated_tensors is None, dedup_save_to_lowest_rank=not dedup_save_to_lowest_rank,
                enable_plan_caching=not enable_plan_caching)


class DefaultLoadPlanner:
    """All of a state, or with `allow_partial_load` what the checkpoint has of it; the rest stays. NotImplementedError as above.

    >>> dcp = arete.distributed.checkpoint
    >>> dcp.save({"x": arete.ones(2)}, checkpoint_id="run")
    >>> state = {"x": arete.zeros(2), "new": arete.zeros(1)}
    >>> dcp.load(state, checkpoint_id="run", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    >>> state
    {'x': tensor([1., 1.]), 'new': tensor([0.])}
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        _refuse("DefaultLoadPlanner", flatten_state_dict=flatten_state_dict, flatten_sharded_tensors=flatten_sharded_tensors)
        self.allow_partial_load = allow_partial_load
