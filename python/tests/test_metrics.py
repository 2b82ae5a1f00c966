"""arete.metrics. The references are loops over elements; all values were compared with torchmetrics 1.8 when this was written."""
import copy
import pickle

import numpy as np
import pytest

import arete
import arete.metrics as M


def _scores(counts):
    tp, fp, fn = counts
    return {"Precision": tp / max(tp + fp, 1), "Recall": tp / max(tp + fn, 1), "Accuracy": tp / max(tp + fn, 1),
            "F1Score": 2 * tp / max(2 * tp + fp + fn, 1)}


@pytest.mark.parametrize("name", ["Accuracy", "Precision", "Recall", "F1Score"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
def test_multiclass(name, average):
    r = np.random.default_rng(0)
    metric = getattr(M, name)("multiclass", num_classes=5, average=average)
    preds, target = r.normal(size=(60, 5, 3)).astype("f4"), r.integers(0, 4, (60, 3))  # class 4 is never the target
    for i in range(0, 60, 20):
        metric.update(arete.tensor(preds[i:i + 20]), arete.tensor(target[i:i + 20]))
    decided = preds.argmax(1)
    counts = [tuple(int(np.sum(x)) for x in ((decided == c) & (target == c), (decided == c) & (target != c),
                                             (decided != c) & (target == c))) for c in range(5)]
    each = [_scores(c)[name] for c in counts]
    support = [np.sum(target == c) for c in range(5)]
    expected = {"micro": lambda: _scores(tuple(map(sum, zip(*counts))))[name], "macro": lambda: np.mean(each),
                "weighted": lambda: np.average(each, weights=support), None: lambda: each}[average]()
    np.testing.assert_allclose(metric.compute().numpy(), expected, rtol=1e-6)


def test_updates_read_nothing_on_the_host():
    metric = M.F1Score("multiclass", num_classes=3, ignore_index=0)
    matrix = M.ConfusionMatrix("multiclass", num_classes=3)
    for m in (metric, matrix, M.AUROC("multiclass", num_classes=3), M.Accuracy("multiclass", num_classes=3, top_k=2)):
        m.to("meta")  # where there are no values to read
        m.update(arete.empty(4, 3, device="meta"), arete.empty(4, dtype=arete.int64, device="meta"))
        assert m.device.type == "meta"


def test_pickles_copies_and_text():
    metric = M.Accuracy("multiclass", num_classes=3, average="macro", top_k=2)
    metric.update(arete.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]), arete.tensor([1, 2]))
    assert repr(metric) == "Accuracy(task='multiclass', num_classes=3, average='macro', top_k=2)"
    for other in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert other.compute() == metric.compute() == 0.5
        other.update(arete.tensor([[0.1, 0.2, 0.7]]), arete.tensor([0]))
        assert other.compute() != metric.compute()
    assert M.MeanMetric().merge_state([]).state_dict().keys() == {"mean_value", "weight"}


def test_states():
    a, b, both = (M.MeanSquaredError() for _ in range(3))
    x, y = arete.randn(10), arete.randn(10)
    a.update(x[:4], y[:4])
    b.update(x[4:], y[4:])
    both.update(x, y)
    assert arete.allclose(a.merge_state([b]).compute(), both.compute())
    c = M.MeanSquaredError()
    c.load_state_dict(a.state_dict())
    assert c.compute() == a.compute()
    with pytest.raises(ValueError, match="another metric"):
        c.load_state_dict({"x": arete.zeros(1)})


def test_boxes_of_several_classes():
    metric = M.MeanAveragePrecision()
    wanted = arete.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    metric.update([{"boxes": wanted, "scores": arete.tensor([0.9, 0.8]), "labels": arete.tensor([0, 1])}],
                  [{"boxes": wanted, "labels": arete.tensor([0, 2])}])
    value = metric.compute()
    assert value["map"] == value["map_50"] == 0.5  # classes 0 and 2 have targets, 2 no detection
    assert value["mar_100"] == 0.5


def test_arguments():
    with pytest.raises(ValueError, match="num_classes"):
        M.Accuracy("multiclass")
    with pytest.raises(ValueError, match="num_labels"):
        M.Recall("multilabel")
    with pytest.raises(ValueError, match="task"):
        M.Recall("several")
    with pytest.raises(NotImplementedError, match="multilabel"):
        M.AUROC("multilabel", num_labels=3)
    with pytest.raises(ValueError, match="same shape"):
        M.MeanSquaredError().update(arete.zeros(3), arete.zeros(4))
    for label in (3, -2):
        metric = M.AUROC("multiclass", num_classes=3)
        metric.update(arete.rand(4, 3), arete.tensor([0, 1, 2, label]))
        with pytest.raises(ValueError, match="from 0 to 2"):
            metric.compute()
    with pytest.raises((ValueError, IndexError)):
        M.Perplexity().update(arete.zeros(1, 2, 3), arete.tensor([[1, -100]]))


def test_scores_of_float64_are_no_ties():
    metric = M.AUROC("binary")
    metric.update(arete.tensor([0.5, 0.5 + 1e-12, 0.5 + 2e-12], dtype=arete.float64), arete.tensor([0, 1, 1]))
    assert metric.compute().item() == 1
    metric = M.AUROC("multiclass", num_classes=2)
    scores = arete.tensor([[0.5, 0.5], [0.5 - 1e-12, 0.5 + 1e-12]], dtype=arete.float64)
    metric.update(scores, arete.tensor([0, 1]))
    assert metric.compute().item() == 1
