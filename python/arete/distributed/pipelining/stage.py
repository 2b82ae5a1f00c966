"""A stage of a pipeline: a part of a network in its process, and the messages that it exchanges with its neighbours."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from ... import _C, _operators, autograd, nn
from .. import distributed_c10d as c10d
from ..fsdp import FSDPModule

__all__ = ["PipelineStage", "build_stage"]

_Tensor = _C.Tensor
# What a message's header says of each tensor: number of the dtype, whether a gradient comes back, dimensions and sizes.
_HEADER = 256
_DTYPES = [_C.float32, _C.float64, _C.float16, _C.bfloat16, _C.int64, _C.int32, _C.int16, _C.int8, _C.uint8, _C.bool, _C.complex64,
           _C.complex128, _C.uint16, _C.uint32, _C.uint64]


def _listed(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


class _Microbatch:
    """What a stage keeps of a microbatch from its forward step on."""

    __slots__ = ("inputs", "result", "outputs", "loss", "gradients", "split")

    def __init__(self, inputs: tuple) -> None:
        self.inputs = inputs
        self.result: Any = None
        self.outputs: tuple = ()
        self.loss: Any = None
        self.gradients: Optional[list] = None
        self.split: Any = None


class PipelineStage:
    """A part of a network, number `stage_index` of `num_stages`, which takes the outputs of the stage before it as its arguments.

    Outputs are tensors, or tuples of them. Their shapes travel with the first step's messages, so `input_args` and `output_args` need not
    be known; what they say is checked. The microbatches of later steps have the shapes of the first one's. `group`: the processes of
    the pipeline. `dw_builder` is refused: schedules find weights' gradients by themselves.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> stage = dist.pipelining.PipelineStage(nn.Linear(2, 3), 0, 1, arete.device("cpu"))
    >>> schedule = dist.pipelining.ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.MSELoss())
    >>> losses = []
    >>> schedule.step(arete.ones(4, 2), target=arete.zeros(4, 3), losses=losses).shape, len(losses)
    (Size([4, 3]), 2)
    >>> dist.destroy_process_group()
    """

    def __init__(self, submodule: nn.Module, stage_index: int, num_stages: int, device: Any, input_args: Any = None,
                 output_args: Any = None, group: Optional[c10d.ProcessGroup] = None, dw_builder: Optional[Callable] = None) -> None:
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: dw_builder is not supported; schedules find the gradients of weights by themselves")
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.device = _C.device(device)
        self.group = group
        self.group_rank = c10d.get_rank(group)
        self.group_size = c10d.get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        self.has_backward = False
        self._expected = {"inputs": input_args, "outputs": output_args}
        # By mode and kind of message: the shapes of each microbatch.
        self._shapes: dict = {}
        self.clear_runtime_states()

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self) -> None:
        """Forgets the microbatches of a step."""
        self._at: dict[int, _Microbatch] = {}
        self._arrived: dict[int, list] = {}
        self._sharded = [m for m in self.submod.modules() if isinstance(m, FSDPModule)]

    # ---- messages

    def _meta(self, tensors: Sequence[Any]) -> list:
        for t in tensors:
            if not isinstance(t, _Tensor):
                raise TypeError(f"stage {self.stage_index} gives a {type(t).__name__}: outputs of a stage are tensors, or tuples of them")
            if t.dtype not in _DTYPES:
                raise TypeError(f"stage {self.stage_index} gives a tensor of {t.dtype}, which does not travel between stages")
        return [(t.dtype, self.has_backward and t.requires_grad, tuple(t.shape)) for t in tensors]

    def _check_expected(self, what: str, tensors: Sequence[Any]) -> None:
        expected = self._expected[what]
        if expected is None:
            return
        want = [(tuple(t.shape), t.dtype) for t in _listed(expected)]
        got = [(tuple(t.shape), t.dtype) for t in tensors]
        if want != got:
            raise ValueError(f"stage {self.stage_index}: {what} were to be {want}, got {got}")

    def _announced(self, key: tuple, meta: list, microbatch: int) -> bool:
        """Whether the other side knows these shapes."""
        known = self._shapes.setdefault(key, {})
        if microbatch not in known:
            known[microbatch] = meta
            return False
        if known[microbatch] != meta:
            raise ValueError(f"stage {self.stage_index}: microbatch {microbatch} gives {meta}, and gave {known[microbatch]} in the first "
                             "step; make a new schedule and stages for other shapes")
        return True

    def _send_header(self, meta: list, peer: int) -> Any:
        numbers = [len(meta)]
        for dtype, returns, sizes in meta:
            numbers += [_DTYPES.index(dtype), int(returns), len(sizes), *sizes]
        if len(numbers) > _HEADER:
            raise NotImplementedError(f"stage {self.stage_index} gives {len(meta)} tensors, more than a message's header has room for")
        header = _C.tensor(numbers + [0] * (_HEADER - len(numbers)), dtype=_C.int64, device=self.device)
        return c10d.isend(header, group=self.group, group_dst=peer)

    def _recv_header(self, peer: int) -> list:
        header = _operators.zeros(_HEADER, dtype=_C.int64, device=self.device)
        c10d.irecv(header, group=self.group, group_src=peer).wait()
        numbers = iter(header.tolist())
        if not header[0]:  # nobody is there, in a group that is fake
            if self._expected["inputs"] is None:
                raise RuntimeError(f"stage {self.stage_index} received nothing: without other processes it wants input_args")
            return self._meta_of_inputs()
        meta = []
        for _ in range(next(numbers)):
            dtype, returns, dims = (next(numbers) for _ in range(3))
            meta.append((_DTYPES[dtype], bool(returns), tuple(next(numbers) for _ in range(dims))))
        return meta

    def _meta_of_inputs(self) -> list:
        return [(t.dtype, self.has_backward and t.is_floating_point(), tuple(t.shape)) for t in _listed(self._expected["inputs"])]

    def send_forward(self, microbatch: int, peer: int) -> list:
        """Sends a microbatch's outputs; what to wait for before their memory is given back."""
        outputs = self._at[microbatch].outputs
        meta = self._meta(outputs)
        works = []
        if not self._announced(("send", self.has_backward), meta, microbatch):
            works.append(self._send_header(meta, peer))
        works += [c10d.isend(t.detach().contiguous(), group=self.group, group_dst=peer) for t in outputs]
        if not self.has_backward:
            del self._at[microbatch]
        return works

    def recv_forward(self, microbatch: int, peer: int) -> None:
        """Begins to receive its inputs."""
        known = self._shapes.setdefault(("recv", self.has_backward), {})
        if microbatch not in known:
            known[microbatch] = self._recv_header(peer)
        inputs = []
        for dtype, returns, sizes in known[microbatch]:
            t = _operators.empty(sizes, dtype=dtype, device=self.device)
            inputs.append((t, returns, c10d.irecv(t, group=self.group, group_src=peer)))
        self._arrived[microbatch] = inputs

    def send_backward(self, microbatch: int, peer: int) -> list:
        gradients = self._at[microbatch].gradients or []
        works = [c10d.isend(g.contiguous(), group=self.group, group_dst=peer) for g in gradients]
        self._at[microbatch].gradients = None
        return works

    def recv_backward(self, microbatch: int, peer: int) -> None:
        """Begins to receive the gradients of its outputs."""
        gradients = []
        for t in self._at[microbatch].outputs:
            if t.requires_grad:
                g = _operators.empty(t.shape, dtype=t.dtype, device=t.device)
                gradients.append((g, c10d.irecv(g, group=self.group, group_src=peer)))
        self._at[microbatch].gradients = gradients

    def give_forward(self, microbatch: int, other: "PipelineStage") -> None:
        """Outputs go to a stage of the same process."""
        at = self._at[microbatch]
        other._arrived[microbatch] = [(t.detach(), returns, None) for t, (_, returns, _) in zip(at.outputs, self._meta(at.outputs))]
        if not self.has_backward:
            del self._at[microbatch]

    def give_backward(self, microbatch: int, other: "PipelineStage") -> None:
        at = self._at[microbatch]
        other._at[microbatch].gradients = [(g, None) for g in at.gradients or []]
        at.gradients = None

    # ---- steps

    def forward(self, microbatch: int, args: tuple, kwargs: dict) -> Any:
        """The forward step of a microbatch; gives what the network gives."""
        if not self.is_first:
            inputs = []
            for t, returns, work in self._arrived.pop(microbatch):
                if work is not None:
                    work.wait()
                inputs.append(t.requires_grad_() if returns else t)
            args = tuple(inputs)
        self._check_expected("inputs", [a for a in args if isinstance(a, _Tensor)])
        at = self._at[microbatch] = _Microbatch(args)
        if isinstance(self.submod, nn.parallel.DistributedDataParallel):
            # Buffers come from the first replica before any microbatch has used them.
            self.submod.require_forward_param_sync = microbatch == 0
        at.result = self.submod(*args, **kwargs)
        at.outputs = _listed(at.result)
        self._check_expected("outputs", at.outputs)
        result = at.result
        if self.is_last and not self.has_backward:
            del self._at[microbatch]
        elif not self.is_last:
            at.result = None  # its parts are what counts
        return result

    def set_loss(self, microbatch: int, loss: Any) -> None:
        self._at[microbatch].loss = loss

    def _roots(self, at: _Microbatch) -> tuple[list, list]:
        if self.is_last:
            at.outputs, at.result = (), None
            loss, at.loss = at.loss, None
            if not loss.requires_grad:
                return [], []
            return [loss], [_operators.ones_like(loss.detach())]
        gradients = []
        for g, work in at.gradients or []:
            if work is not None:
                work.wait()
            gradients.append(g)
        roots = [t for t in at.outputs if t.requires_grad]
        at.outputs, at.gradients = (), None
        return roots, gradients

    def _wanted(self, at: _Microbatch) -> list:
        return [] if self.is_first else [t for t in at.inputs if t.requires_grad]

    def _keep(self, at: _Microbatch, inputs: list, gradients: list) -> None:
        # What nothing used has a gradient all the same: the other side waits for it.
        at.gradients = [_operators.zeros_like(t.detach()) if g is None else g for t, g in zip(inputs, gradients)]
        at.inputs = ()

    def backward(self, microbatch: int) -> None:
        """The whole backward step."""
        at = self._at[microbatch]
        roots, gradients = self._roots(at)
        inputs = self._wanted(at)
        if roots:
            autograd.backward(roots, gradients)
        self._keep(at, inputs, [t.grad for t in inputs])

    def backward_input(self, microbatch: int) -> None:
        """The gradients of inputs."""
        at = self._at[microbatch]
        roots, gradients = self._roots(at)
        inputs = self._wanted(at)
        if roots:
            at.split = _C._SplitBackward(roots, gradients, inputs)
        self._keep(at, inputs, at.split.input_gradients() if roots else [None] * len(inputs))

    def backward_weight(self, microbatch: int) -> None:
        """Then those of parameters."""
        split, self._at[microbatch].split = self._at[microbatch].split, None
        if split is not None:
            split.accumulate()

    def exchange(self, last: bool) -> None:
        """Before a step that accumulates gradients."""
        if isinstance(self.submod, nn.parallel.DistributedDataParallel):
            self.submod.reducer.prepare(last)
        for m in self._sharded:
            m.set_requires_gradient_sync(last, recurse=False)

    def shards(self) -> bool:
        return bool(self._sharded)


def build_stage(stage_module: nn.Module, stage_index: int, pipe_info: Any, device: Any,
                group: Optional[c10d.ProcessGroup] = None) -> PipelineStage:
    """A stage of a module that `pipeline()` cut out, which is moved to the device; `pipe_info`: what `Pipe.info()` says."""
    return PipelineStage(stage_module.to(device), stage_index, pipe_info.num_stages, device, group=group)
