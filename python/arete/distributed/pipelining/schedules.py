"""Schedules: in which order the stages of a process compute and exchange the microbatches of a step. They are data, made and checked in
C++ (arete/distributed/pipeline_schedule.h); what is here follows them."""
from __future__ import annotations

import collections
from typing import Any, Callable, Optional, Sequence

from ... import _C, _operators
from ..._grad_mode import enable_grad, no_grad
from ...utils import _pytree as pytree
from .microbatch import merge_chunks, split_args_kwargs_into_chunks
from .stage import PipelineStage

__all__ = ["PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "get_schedule_class"]

_STEP = _C._distributed.PipelineStep


class _PipelineSchedule:
    _name = ""

    def __init__(self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Optional[Callable], args_chunk_spec: Optional[tuple],
                 kwargs_chunk_spec: Optional[dict], output_merge_spec: Any, scale_grads: bool) -> None:
        if not stages:
            raise ValueError("a schedule wants stages")
        self._stages = {s.stage_index: s for s in stages}
        first = stages[0]
        self._group, self._rank, self._num_stages = first.group, first.group_rank, first.num_stages
        self._n_microbatches = n_microbatches
        self._loss_fn = loss_fn
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self.scale_grads = scale_grads
        self._plans: dict[bool, Any] = {}
        plan = self._plan(True)
        mine = [k for k, rank in enumerate(plan.rank_of_stage) if rank == self._rank]
        if sorted(self._stages) != mine or any(s.num_stages != self._num_stages for s in stages):
            raise ValueError(f"{type(self).__name__}: process {self._rank} of the pipeline has stages {mine} of {len(plan.rank_of_stage)}, "
                             f"got {sorted(self._stages)} of {self._num_stages}")
        if any(a.kind is _STEP.I for a in plan.ranks[self._rank]) and any(s.shards() for s in stages):
            raise NotImplementedError(f"{type(self).__name__}: stages of fully_shard() have no backward pass in two parts; take "
                                      "Schedule1F1B or ScheduleInterleaved1F1B")

    def _plan(self, train: bool) -> Any:
        if train not in self._plans:
            ranks = next(iter(self._stages.values())).group_size
            self._plans[train] = _C._distributed.pipeline_schedule(self._name, ranks, self._num_stages, self._n_microbatches, train)
        return self._plans[train]

    @property
    def pipeline_order(self) -> dict:
        """What each process computes, in order: F, B, I and W steps of stages and microbatches, the last two being the backward step's
        parts for inputs and for weights.

        >>> dist = arete.distributed
        >>> dist.init_process_group("fake", rank=0, world_size=2)
        >>> stage = dist.pipelining.PipelineStage(nn.Linear(2, 2), 0, 2, arete.device("cpu"))
        >>> dist.pipelining.Schedule1F1B(stage, 2).pipeline_order
        {0: [F0.0, F0.1, B0.0, B0.1], 1: [F1.0, B1.0, F1.1, B1.1]}
        >>> dist.destroy_process_group()
        """
        return {rank: [a for a in order if a.computes] for rank, order in enumerate(self._plan(True).ranks)}

    def step(self, *args: Any, target: Any = None, losses: Optional[list] = None, return_outputs: bool = True, **kwargs: Any) -> Any:
        """One batch, forward and, if there is a loss, backward. The process of the first stage gives the batch, that of the last one
        `target` and a list to be filled with the microbatches' losses; the latter gets the joined outputs, others None.

        Gradients of the microbatches' losses are added to those that parameters have, and the sums are divided by the number of
        microbatches: with those of `zero_grad()` they are the gradients of the mean. With `scale_grads=False` nothing is divided."""
        train = self._loss_fn is not None
        if train and not _C.is_grad_enabled():
            raise RuntimeError("step() requires gradients to be enabled for backward computation; it should not be used under "
                               "torch.no_grad() context. Please call eval() instead.")
        return self._run(args, kwargs, target, losses, return_outputs, train)

    def eval(self, *args: Any, target: Any = None, losses: Optional[list] = None, **kwargs: Any) -> Any:
        """The same without backward steps."""
        return self._run(args, kwargs, target, losses, True, False)

    def _run(self, args: tuple, kwargs: dict, target: Any, losses: Optional[list], return_outputs: bool, train: bool) -> Any:
        n = self._n_microbatches
        has_first, has_last = 0 in self._stages, self._num_stages - 1 in self._stages
        split_args, split_kwargs = split_args_kwargs_into_chunks(args if has_first else (), kwargs, n, self._args_chunk_spec,
                                                                 self._kwargs_chunk_spec)
        targets = None if target is None else list(_operators.tensor_split(target, n))
        if train and has_last and targets is None:
            raise ValueError("step(): the process of the last stage has no target")
        if targets is not None and len(targets) != n:
            raise ValueError(f"step(): a target for {n} microbatches has {len(targets)} parts")
        for s in self._stages.values():
            s.clear_runtime_states()
            s.has_backward = train
        plan = self._plan(train)
        order = plan.ranks[self._rank]
        # The step of each stage that completes its gradients.
        last = {a.stage: k for k, a in enumerate(order) if a.kind in (_STEP.B, _STEP.W)}
        outputs: dict[int, Any] = {}
        found: dict[int, Any] = {}
        sent: collections.deque = collections.deque()
        with enable_grad() if train else no_grad():
            for k, action in enumerate(order):
                stage, m, kind = self._stages[action.stage], action.microbatch, action.kind
                if kind is _STEP.F:
                    result = stage.forward(m, split_args[m], split_kwargs[m])
                    if stage.is_last:
                        if return_outputs:
                            outputs[m] = _detached(result)
                        if targets is not None and self._loss_fn is not None:
                            loss = self._loss_fn(result, targets[m])
                            found[m] = loss.detach()
                            if train:
                                stage.set_loss(m, loss)
                        del result
                    elif plan.rank_of_stage[action.stage + 1] == self._rank:
                        stage.give_forward(m, self._stages[action.stage + 1])
                elif kind in (_STEP.B, _STEP.I, _STEP.W):
                    if kind is not _STEP.I:
                        stage.exchange(last[action.stage] == k)
                    if kind is _STEP.B:
                        stage.backward(m)
                    elif kind is _STEP.I:
                        stage.backward_input(m)
                    else:
                        stage.backward_weight(m)
                    if kind is not _STEP.W and action.stage > 0 and plan.rank_of_stage[action.stage - 1] == self._rank:
                        stage.give_backward(m, self._stages[action.stage - 1])
                else:
                    forward, sends = kind in (_STEP.SEND_F, _STEP.RECV_F), kind in (_STEP.SEND_F, _STEP.SEND_B)
                    peer = plan.rank_of_stage[action.stage + (1 if forward == sends else -1)]
                    if sends:
                        sent.extend(stage.send_forward(m, peer) if forward else stage.send_backward(m, peer))
                    elif forward:
                        stage.recv_forward(m, peer)
                    else:
                        stage.recv_backward(m, peer)
                # Memory of what has been sent is given back meanwhile.
                while sent and sent[0].is_completed():
                    sent.popleft().wait()
            for work in sent:
                work.wait()
        for s in self._stages.values():
            s.clear_runtime_states()
        if train and self.scale_grads:
            # All that is there, whichever step it is of; once where stages share a parameter.
            for p in {id(p): p for s in self._stages.values() for p in s.submod.parameters()}.values():
                if p.grad is not None:
                    p.grad.div_(n)
        if losses is not None and has_last and self._loss_fn is not None:
            if targets is None:
                raise ValueError("losses are of targets: there is no target")
            losses[:] = [found[m] for m in range(n)]
        if not has_last or not return_outputs:
            return None
        return merge_chunks([outputs[m] for m in range(n)], self._output_merge_spec)


def _detached(result: Any) -> Any:
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, _C.Tensor) else t, result)


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules of one stage in each process."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Optional[Callable] = None,
                 args_chunk_spec: Optional[tuple] = None, kwargs_chunk_spec: Optional[dict] = None, output_merge_spec: Any = None,
                 scale_grads: bool = True) -> None:
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules of several stages in each process."""

    def __init__(self, stages: list, n_microbatches: int, loss_fn: Optional[Callable] = None, args_chunk_spec: Optional[tuple] = None,
                 kwargs_chunk_spec: Optional[dict] = None, output_merge_spec: Any = None, scale_grads: bool = True,
                 backward_requires_autograd: bool = True) -> None:
        if not backward_requires_autograd:
            raise NotImplementedError("backward_requires_autograd=False: backward steps are those of autograd")
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class ScheduleGPipe(PipelineScheduleSingle):
    """Forward steps of all microbatches, then the backward steps."""

    _name = "GPipe"


class Schedule1F1B(PipelineScheduleSingle):
    """After some forward steps one backward step for each forward one, so that process r of n holds n - r microbatches at most."""

    _name = "1F1B"


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """GPipe with several stages in each process, one stage after the other."""

    _name = "LoopedBFS"

    def __init__(self, stages: list, n_microbatches: int, loss_fn: Optional[Callable] = None, output_merge_spec: Any = None,
                 scale_grads: bool = True, backward_requires_autograd: bool = True) -> None:
        super().__init__(stages, n_microbatches, loss_fn, output_merge_spec=output_merge_spec, scale_grads=scale_grads,
                         backward_requires_autograd=backward_requires_autograd)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages in each process: stages r, r + n, ... in process r of n. The waiting at both ends is divided by their
    number; there are more messages."""

    _name = "Interleaved1F1B"


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """The same with backward steps in two parts: gradients of inputs, for which others wait, at once, and those of weights while there is
    nothing else to do."""

    _name = "InterleavedZeroBubble"


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages in each process, r and 2n - 1 - r of process r, and backward steps in two parts. All processes hold as much as the first
    one does under 1F1B."""

    _name = "ZBVZeroBubble"


def get_schedule_class(schedule_name: str) -> type:
    """The schedule of a name, in whatever letters.

    >>> arete.distributed.pipelining.schedules.get_schedule_class("1f1b").__name__
    'Schedule1F1B'
    """
    classes = {c._name.lower(): c for c in (ScheduleGPipe, Schedule1F1B, ScheduleLoopedBFS, ScheduleInterleaved1F1B,
                                            ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble)}
    classes |= {"pipelineschedulesingle": PipelineScheduleSingle, "pipelineschedulemulti": PipelineScheduleMulti}
    if schedule_name.lower() not in classes:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {sorted(classes)}")
    return classes[schedule_name.lower()]
