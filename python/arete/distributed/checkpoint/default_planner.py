"""What is saved and loaded of a state, as far as there is a choice."""
from __future__ import annotations

from typing import Any, Optional

# Of torch's planners, what classes made of these may not have: plans are not the program's.
HOOKS = ("create_local_plan", "create_global_plan", "finish_plan", "resolve_data", "lookup_object", "transform_object", "load_bytes",
         "resolve_bytes", "resolve_tensor", "commit_tensor", "lookup_tensor", "transform_tensor")

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]


def _refuse(name: str, **given: bool) -> None:
    for option, default in given.items():
        if not default:
            raise NotImplementedError(f"{name}: {option} keeps its default: states are saved by names of tensors, and a piece that several "
                                      "processes have is written by the one that has least to write")


class DefaultSavePlanner:
    """All of a state, or what the set_up_planner() of a class made of this one gives on. With `dedup_save_to_lowest_rank` the first of
    those who have a piece writes it. NotImplementedError for other options than the defaults, and where save() gets a class with hooks for
    plans.

    >>> dcp = arete.distributed.checkpoint
    >>> _ = dcp.save({"x": arete.ones(2)}, checkpoint_id="run", planner=dcp.DefaultSavePlanner())
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 dedup_replicated_tensors: Optional[bool] = None, dedup_save_to_lowest_rank: bool = False,
                 enable_plan_caching: bool = False) -> None:
        _refuse("DefaultSavePlanner", flatten_state_dict=flatten_state_dict, flatten_sharded_tensors=flatten_sharded_tensors,
                dedup_replicated_tensors=dedup_replicated_tensors is None, enable_plan_caching=not enable_plan_caching)
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.state_dict: Optional[dict] = None

    def set_up_planner(self, state_dict: dict, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Before anything is written: the state is this one."""
        self.state_dict, self.is_coordinator = state_dict, is_coordinator


class DefaultLoadPlanner:
    """All of a state, or of what the set_up_planner() of a class made of this one gives on (tensors are those of the state, others come
    into the dictionary that is given on); with `allow_partial_load` what the checkpoint has of it, and the rest stays.
    NotImplementedError as above.

    >>> dcp = arete.distributed.checkpoint
    >>> _ = dcp.save({"x": arete.ones(2)}, checkpoint_id="run")
    >>> state = {"x": arete.zeros(2), "new": arete.zeros(1)}
    >>> dcp.load(state, checkpoint_id="run", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    >>> state
    {'x': tensor([1., 1.]), 'new': tensor([0.])}
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        _refuse("DefaultLoadPlanner", flatten_state_dict=flatten_state_dict, flatten_sharded_tensors=flatten_sharded_tensors)
        self.allow_partial_load = allow_partial_load
        self.state_dict: Optional[dict] = None

    def set_up_planner(self, state_dict: dict, metadata: Any = None, is_coordinator: bool = False) -> None:
        """Before anything is read: the state is this one. `metadata`: of what there is."""
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator
