"""Metrics of predictions, over batches and processes, with the names, arguments and conventions of torchmetrics. Updates read nothing
on the host; states lie where the predictions are."""
from __future__ import annotations

from typing import Any, Optional

from . import _C

__all__ = ["AUROC", "Accuracy", "ConfusionMatrix", "F1Score", "FBetaScore", "MeanAbsoluteError", "MeanAveragePrecision", "MeanMetric",
           "MeanSquaredError", "Metric", "Perplexity", "Precision", "R2Score", "Recall"]


class Metric:
    """Base class: `update` adds a batch, `compute` is the value over everything since `reset`.

    >>> a, b = arete.metrics.MeanMetric(), arete.metrics.MeanMetric()
    >>> a.update(arete.tensor(1.0))
    >>> b.update(arete.tensor(2.0))
    >>> isinstance(a, arete.metrics.Metric), a.merge_state([b]).compute()
    (True, tensor(1.5000))
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    def update(self, preds: Any, target: Any) -> None:
        """Adds a batch."""
        self._native.update(preds, target)

    def compute(self) -> Any:
        """The value, on the device of the states."""
        return self._native.compute()

    def reset(self) -> None:
        """Forgets everything."""
        self._native.reset()

    def to(self, device: Any) -> "Metric":
        """Moves the states; updates move them to the device of what they are given by themselves."""
        self._native.to(_C.device(device))
        return self

    @property
    def device(self) -> Any:
        """Where the states are."""
        return self._native.device()

    def merge_state(self, metrics: Any) -> "Metric":
        """Adds what other metrics, made with the same arguments, have seen."""
        for metric in metrics:
            self._native.merge(metric._native)
        return self

    def sync_and_compute(self, group: Any = None) -> Any:
        """`compute` over what all processes of a group have seen, which call it together. The own states stay as they are."""
        from .distributed.distributed_c10d import _of
        return self._native.sync_and_compute(_of(group))

    def state_dict(self) -> dict:
        """Copies of the states, by name."""
        return {name: value.clone() for name, value in self._native.state_dict()}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over states."""
        self._native.load_state_dict(list(state_dict.items()))

    def __getstate__(self) -> dict:
        return {"arguments": self._arguments, "state": self.state_dict(), "device": str(self.device)}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self.to(state["device"]).load_state_dict(state["state"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._arguments.items())})"

    _arguments: dict = {}


class _OfClasses(Metric):
    _kind = ""
    _average = "micro"

    def __init__(self, task: str, threshold: float = 0.5, num_classes: Optional[int] = None, num_labels: Optional[int] = None,
                 average: Optional[str] = "", ignore_index: Optional[int] = None, top_k: int = 1, beta: float = 1.0) -> None:
        average = "none" if average is None else average or self._average
        if task == "multilabel" and num_labels is None:
            raise ValueError("`num_labels` is needed for the task multilabel")
        if task == "multiclass" and num_classes is None:
            raise ValueError("`num_classes` is needed for the task multiclass")
        count = num_labels if task == "multilabel" else num_classes
        super().__init__(_C._class_metric(self._kind, task, count or 0, average, threshold, ignore_index, top_k, beta))
        given = dict(task=task, threshold=threshold, num_classes=num_classes, num_labels=num_labels, average=average,
                     ignore_index=ignore_index, top_k=top_k, beta=beta)
        default = dict(threshold=0.5, average=self._average, top_k=1, beta=1.0)
        self._arguments = {k: v for k, v in given.items() if v is not None and v != default.get(k)}


class Accuracy(_OfClasses):
    """The share of right decisions. `top_k`: of scores, the target is among the k highest.

    >>> metric = arete.metrics.Accuracy("multiclass", num_classes=3)
    >>> metric.update(arete.tensor([0, 2, 1, 1]), arete.tensor([0, 1, 1, 1]))
    >>> metric.compute()
    tensor(0.7500)
    """

    _kind = "accuracy"


class Precision(_OfClasses):
    """Right ones among what was decided to be of a class.

    >>> metric = arete.metrics.Precision("binary")
    >>> metric.update(arete.tensor([0.9, 0.8, 0.2]), arete.tensor([1, 0, 1]))
    >>> metric.compute()
    tensor(0.5000)
    """

    _kind = "precision"


class Recall(_OfClasses):
    """Right ones among what is of a class.

    >>> metric = arete.metrics.Recall("multiclass", num_classes=2, average=None)
    >>> metric.update(arete.tensor([0, 1, 1]), arete.tensor([0, 0, 1]))
    >>> metric.compute()
    tensor([0.5000, 1.0000])
    """

    _kind = "recall"


class FBetaScore(_OfClasses):
    """(1 + beta²) precision recall / (beta² precision + recall).

    >>> metric = arete.metrics.FBetaScore("binary", beta=2.0)
    >>> metric.update(arete.tensor([1, 1, 0]), arete.tensor([1, 0, 0]))
    >>> metric.compute()
    tensor(0.8333)
    """

    _kind = "fbeta"


class F1Score(FBetaScore):
    """The harmonic mean of precision and recall.

    >>> metric = arete.metrics.F1Score("binary")
    >>> metric.update(arete.tensor([1, 1, 0]), arete.tensor([1, 0, 0]))
    >>> metric.compute()
    tensor(0.6667)
    """


class ConfusionMatrix(_OfClasses):
    """How often which class (rows) was taken for which (columns): of binary or multiclass.

    >>> metric = arete.metrics.ConfusionMatrix("binary")
    >>> metric.update(arete.tensor([1, 1, 0]), arete.tensor([1, 0, 0]))
    >>> metric.compute()
    tensor([[1, 1],
            [0, 1]])
    """

    _kind = "confusion"


class AUROC(_OfClasses):
    """The area under the curve of true over false positive rates: of binary, or of multiclass each class against the rest (`average`
    macro, or None). All scores are kept.

    >>> metric = arete.metrics.AUROC("binary")
    >>> metric.update(arete.tensor([0.1, 0.4, 0.35, 0.8]), arete.tensor([0, 0, 1, 1]))
    >>> metric.compute()
    tensor(0.7500)
    """

    _kind = "auroc"
    _average = "macro"


class Perplexity(Metric):
    """exp of the mean cross entropy of logits (N, T, V) and targets (N, T).

    >>> metric = arete.metrics.Perplexity(ignore_index=-1)
    >>> metric.update(arete.zeros(1, 3, 5), arete.tensor([[1, 4, -1]]))
    >>> metric.compute()
    tensor(5.)
    """

    def __init__(self, ignore_index: Optional[int] = None) -> None:
        super().__init__(_C._perplexity(ignore_index))
        self._arguments = {} if ignore_index is None else {"ignore_index": ignore_index}


class MeanMetric(Metric):
    """The mean of values, such as losses of batches.

    >>> metric = arete.metrics.MeanMetric()
    >>> metric.update(arete.tensor(1.0), weight=3)
    >>> metric.update(arete.tensor(5.0))
    >>> metric.compute()
    tensor(2.)
    """

    def __init__(self) -> None:
        super().__init__(_C._number_metric("mean", True, 1))

    def update(self, value: Any, weight: Any = None) -> None:  # type: ignore[override]
        from ._operators import as_tensor
        value = as_tensor(value)
        self._native.update(value, as_tensor(1.0 if weight is None else weight, device=value.device))


class MeanSquaredError(Metric):
    """The mean of squared differences; `squared=False`: its root.

    >>> metric = arete.metrics.MeanSquaredError()
    >>> metric.update(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    >>> metric.compute()
    tensor(2.)
    """

    def __init__(self, squared: bool = True) -> None:
        super().__init__(_C._number_metric("mse", squared, 1))
        self._arguments = {} if squared else {"squared": False}


class MeanAbsoluteError(Metric):
    """The mean of absolute differences.

    >>> metric = arete.metrics.MeanAbsoluteError()
    >>> metric.update(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    >>> metric.compute()
    tensor(1.)
    """

    def __init__(self) -> None:
        super().__init__(_C._number_metric("mae", True, 1))


class R2Score(Metric):
    """1 - residual sum of squares / total sum of squares: of one number, or the mean over the columns of (N, num_outputs).

    >>> metric = arete.metrics.R2Score()
    >>> metric.update(arete.tensor([1.0, 2.0, 3.5]), arete.tensor([1.0, 2.0, 3.0]))
    >>> metric.compute()
    tensor(0.8750)
    """

    def __init__(self, num_outputs: int = 1) -> None:
        super().__init__(_C._number_metric("r2", True, num_outputs))
        self._arguments = {} if num_outputs == 1 else {"num_outputs": num_outputs}


class MeanAveragePrecision(Metric):
    """COCO's mean average precision of boxes (x0, y0, x1, y1): IoU thresholds 0.5 to 0.95, 101 points of recall, at most 100
    detections a picture. `compute` works on the host and gives a dict: map, map_50, map_75, mar_1, mar_10, mar_100.

    >>> metric = arete.metrics.MeanAveragePrecision()
    >>> found = {"boxes": arete.tensor([[0.0, 0.0, 8.0, 9.0]]), "scores": arete.tensor([0.9]), "labels": arete.tensor([1])}
    >>> wanted = {"boxes": arete.tensor([[0.0, 0.0, 8.0, 8.0]]), "labels": arete.tensor([1])}
    >>> metric.update([found], [wanted])
    >>> metric.compute()["map_50"], metric.compute()["map"]
    (tensor(1.), tensor(0.8000))
    """

    def __init__(self) -> None:
        super().__init__(_C._mean_average_precision())

    def update(self, preds: Any, target: Any) -> None:
        """Adds pictures: a dict of "boxes" (N, 4), "labels" (N) and, of preds, "scores" (N) for each."""
        self._native.update_boxes([[p["boxes"], p["labels"], p["scores"]] for p in preds], [[t["boxes"], t["labels"]] for t in target])

    def compute(self) -> dict:
        from ._operators import tensor
        return {name: tensor(value) for name, value in self._native.details().items()}

    def sync_and_compute(self, group: Any = None) -> Any:
        """"map" over what all processes of a group have seen."""
        return super().sync_and_compute(group)
