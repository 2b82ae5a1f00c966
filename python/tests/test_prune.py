"""nn.utils.prune, the same programs with both libraries."""
import copy
import importlib

import pytest
from idiom_helpers import LIBRARIES, anywhere, on_the_cpu

VALUES = [[0.3, -1.5, 0.7, 2.0], [-0.1, 0.4, -0.9, 1.1], [0.05, -0.6, 0.8, -0.2]]


def layer_of(torch, device):
    layer = torch.nn.Linear(4, 3).to(device)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(VALUES))
    return layer


def prune_of(torch):
    return importlib.import_module(torch.__name__ + ".nn.utils.prune")


METHODS = {
    "identity": lambda p, m: p.identity(m, "weight"),
    "count": lambda p, m: p.l1_unstructured(m, "weight", 3),
    "share": lambda p, m: p.l1_unstructured(m, "weight", 0.4),
    "nothing": lambda p, m: p.l1_unstructured(m, "weight", 0),
    "all": lambda p, m: p.l1_unstructured(m, "weight", 1.0),
    "twice": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.3), "weight", 0.5),
    "thrice": lambda p, m: METHODS["rows"](p, p.l1_unstructured(p.l1_unstructured(m, "weight", 2), "weight", 2)),
    "rows": lambda p, m: p.ln_structured(m, "weight", 1, n=2, dim=0),
    "columns": lambda p, m: p.ln_structured(m, "weight", 0.5, n=1, dim=-1),
    "largest": lambda p, m: p.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
    "columns, then elements": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 2, 2, 1), "weight", 2),
    "rows, then columns": lambda p, m: p.ln_structured(p.ln_structured(m, "weight", 1, 2, 0), "weight", 1, 2, 1),
    "elements, then a mask": lambda p, m: p.custom_from_mask(METHODS["count"](p, m), "weight", m.weight_mask.roll(1)),
    "scores": lambda p, m: p.l1_unstructured(m, "weight", 5, importance_scores=-m.weight.detach().flip(0)),
    "scores of rows": lambda p, m: p.ln_structured(m, "weight", 1, 2, 0, importance_scores=m.weight.detach().flip(0)),
}


@pytest.mark.skipif(len(LIBRARIES) < 2, reason="torch is not installed")
@pytest.mark.parametrize("name", METHODS)
def test_masks_are_torchs(name):
    found = []
    for torch in LIBRARIES:
        layer = layer_of(torch, "cpu")
        prune = prune_of(torch)
        assert METHODS[name](prune, layer) is layer
        assert prune.is_pruned(layer) and prune.is_pruned(torch.nn.Sequential(layer))
        layer(torch.ones(2, 4)).sum().backward()
        found.append([sorted(layer.state_dict()), [n for n, _ in layer.named_parameters()], layer.weight_mask.tolist(),
                      layer.weight.tolist(), layer.weight_orig.tolist(), layer.weight_orig.grad.tolist(),
                      len(layer._forward_pre_hooks)])
        prune.remove(layer, "weight")
        found[-1] += [sorted(layer.state_dict()), layer.weight.tolist(), isinstance(layer.weight, torch.nn.Parameter)]
        assert not prune.is_pruned(layer)
    assert found[0] == found[1]


@anywhere
def test_random_methods(torch, device):
    prune = prune_of(torch)
    for amount, zeros in ((5, 5), (0.25, 3), (0, 0), (1.0, 12)):
        mask = prune.random_unstructured(layer_of(torch, device), "weight", amount).weight_mask
        assert (mask == 0).sum().item() == zeros
    for amount, dim, zeros in ((1, 0, 4), (0.5, 1, 6), (2, -1, 6), (0, 0, 0)):
        mask = prune.random_structured(layer_of(torch, device), "weight", amount, dim).weight_mask
        assert (mask == 0).sum().item() == zeros and mask.device.type == device
        assert ((mask == 0).all(1 - dim % 2) | (mask == 1).all(1 - dim % 2)).all()
    masks = [prune.random_unstructured(layer_of(torch, device), "weight", 6).weight_mask.tolist() for _ in range(5)]
    assert any(mask != masks[0] for mask in masks)


@anywhere
def test_all_parameters_as_one(torch, device):
    prune = prune_of(torch)
    net = torch.nn.Sequential(layer_of(torch, device), layer_of(torch, device))
    with torch.no_grad():
        net[1].weight.mul_(10)
    pairs = [(net[0], "weight"), (net[1], "weight"), (net[0], "bias")]
    with torch.no_grad():
        net[0].bias.fill_(100)
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=12)
    assert (net[0].weight_mask.sum() + net[1].weight_mask.sum()).item() == 12 and net[0].bias_mask.tolist() == [1, 1, 1]
    prune.global_unstructured(tuple(pairs), prune.L1Unstructured, amount=3)
    assert (net[0].weight_mask.sum() + net[1].weight_mask.sum()).item() == 9
    prune.global_unstructured(pairs[:2], prune.L1Unstructured,
                              importance_scores={pairs[1]: torch.zeros(3, 4, device=device)}, amount=1)
    prune.global_unstructured(pairs[2:], prune.RandomUnstructured, amount=0.34)
    assert net[0].bias_mask.sum().item() == 2


@anywhere
def test_training_and_copies(torch, device):
    prune = prune_of(torch)
    layer = prune.l1_unstructured(layer_of(torch, device), "weight", 0.5)
    mask = layer.weight_mask.clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(2, 4, device=device)).square().sum().backward()
        optimizer.step()
    layer(torch.ones(2, 4, device=device))
    assert torch.equal(layer.weight == 0, mask == 0) and torch.equal(layer.weight_mask, mask)
    other = prune.identity(layer_of(torch, device), "weight")
    other.load_state_dict(layer.state_dict())
    x = torch.ones(1, 4, device=device)
    assert torch.equal(other(x), layer(x))
    with torch.no_grad():
        layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    layer.to(torch.float64)
    assert layer(x.double()).dtype is torch.float64


@on_the_cpu
def test_own_methods(torch, device):
    prune = prune_of(torch)

    class Threshold(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def __init__(self, threshold):
            self.threshold = threshold

        def compute_mask(self, t, default_mask):
            return default_mask * (t.abs() > self.threshold).to(default_mask.dtype)

    layer = layer_of(torch, device)
    Threshold.apply(layer, "weight", 0.5)
    assert layer.weight_mask.sum().item() == 7
    Threshold.apply(layer, "weight", threshold=1.0)
    assert layer.weight_mask.sum().item() == 3
    assert Threshold(1).prune(torch.tensor([2.0, 0.5])).tolist() == [2, 0]
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2 and hook[1] is list(hook)[1]
    assert [type(m) for m in hook] == [Threshold] * 2


@on_the_cpu
def test_what_is_refused(torch, device):
    prune = prune_of(torch)
    layer = layer_of(torch, device)
    for amount, error, text in (("half", TypeError, "Invalid type for amount"),
                                (-1, ValueError, "amount=-1 should either be"),
                                (1.5, ValueError, "amount=1.5 should either be"),
                                (13, ValueError, "amount=13 should be smaller than")):
        with pytest.raises(error, match=text):
            prune.l1_unstructured(layer, "weight", amount)
    for call, error, text in (
            (lambda: prune.ln_structured(layer, "bias", 1, 2, 0), ValueError,
             "only be applied to multidimensional tensors"),
            (lambda: prune.random_structured(layer, "weight", 1, 2), IndexError, "Invalid index 2"),
            (lambda: prune.l1_unstructured(layer, "weight", 1, importance_scores=layer.bias), AssertionError,
             "the same shape"),
            (lambda: prune.remove(layer, "weight"), ValueError, "has to be pruned before pruning can be removed"),
            (lambda: prune.l1_unstructured(layer, "other", 1), AttributeError, "other"),
            (lambda: prune.custom_from_mask(layer, "weight", layer.bias), AssertionError, ""),
            (lambda: prune.global_unstructured([(layer, "weight")], prune.LnStructured, amount=1, n=2), TypeError,
             "Only \"unstructured\""),
            (lambda: prune.global_unstructured(3, prune.L1Unstructured, amount=1), TypeError, "not an Iterable"),
            (lambda: prune.global_unstructured([], prune.L1Unstructured, 3, amount=1), TypeError,
             "must be of type dict"),
            (lambda: prune.PruningContainer().add_pruning_method(3), TypeError, "is not a BasePruningMethod subclass"),
            (lambda: prune.BasePruningMethod(), TypeError, "abstract")):
        with pytest.raises(error, match=text):
            call()
        assert sorted(layer.state_dict()) == ["bias", "weight"] and not prune.is_pruned(layer)
