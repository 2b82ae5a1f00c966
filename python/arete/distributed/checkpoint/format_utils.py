"""Checkpoints of many processes as files of one, and back. One process calls these functions."""
from __future__ import annotations

from typing import Any

from ... import serialization
from ._files import _EmptyStateDictLoadPlanner as _EmptyStateDictLoadPlanner
from ._files import _load_state_dict as _load_state_dict
from ._files import read_all, save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    """Writes what a folder has, whole, to a file for `arete.load()`.

    >>> dcp = arete.distributed.checkpoint
    >>> _ = dcp.save({"model": nn.Linear(1, 2).state_dict(), "step": 3}, checkpoint_id="folder", no_dist=True)
    >>> dcp.format_utils.dcp_to_torch_save("folder", "file.pt")
    >>> arete.load("file.pt")["model"]["weight"].shape
    arete.Size([2, 1])
    """
    serialization.save(read_all(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    """Writes a dictionary from a file of `arete.save()` to a folder that any number of processes can load. The file may run code."""
    save(serialization.load(torch_save_path, weights_only=False), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
