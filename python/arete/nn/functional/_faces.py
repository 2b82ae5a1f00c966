"""The functions that are one operator each, made from its record: its arguments, `input` for self, the in-place form as `inplace`,
and the two older words for `reduction`."""

from __future__ import annotations

from ... import _C
from ..._operators import _schemas

_SURFACES = _C._record_surfaces()
# Functions of arete that torch has here, too, beside those that are here alone (whose records say so).
_SHARED = """alpha_dropout avg_pool1d batch_norm bilinear binary_cross_entropy_with_logits celu channel_shuffle
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity dropout embedding
    embedding_bag feature_alpha_dropout group_norm hardshrink hinge_embedding_loss instance_norm layer_norm
    margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu rms_norm
    rrelu selu sigmoid tanh threshold triplet_margin_loss""".split()
# Whose in-place forms are functions of their own.
_IN_PLACE = "celu elu hardtanh leaky_relu relu rrelu selu threshold".split()
# Where torch has the arguments in another order or under other names.
_SIGNATURES = {
    "cross_entropy": "Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, "
    "bool? reduce=None, str reduction='mean', float label_smoothing=0.0",
    "nll_loss": "Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, "
    "bool? reduce=None, str reduction='mean'",
    "poisson_nll_loss": "Tensor input, Tensor target, bool log_input=True, bool full=False, bool? size_average=None, "
    "float eps=1e-8, bool? reduce=None, str reduction='mean'",
    "normalize": "Tensor input, float p=2.0, int[] dim=1, float eps=1e-12, Tensor? out=None",
    "one_hot": "Tensor tensor, int num_classes=-1",
}
# Losses that came after the older words.
_NEWER = "ctc_loss gaussian_nll_loss huber_loss".split()


def signature(name: str) -> str:
    """"(Tensor input, float alpha=1.0, bool inplace=False)" of a record."""
    if name in _SIGNATURES:
        return f"({_SIGNATURES[name]})"
    parts = [p for p in _schemas.split(_schemas.signature_of(name)[1:-1]) if not p.startswith("Generator")]
    if parts[-1] == "*":
        parts.pop()
    if parts[0] == "Tensor self":
        parts[0] = "Tensor input"
    reduction = [i for i, p in enumerate(parts) if p.startswith("str reduction")]
    if reduction and name not in _NEWER:
        parts[reduction[0] : reduction[0]] = ["bool? size_average=None", "bool? reduce=None"]
    if _C._record(name)["in_place"] and name not in ("sigmoid", "tanh"):
        parts.append("bool inplace=False")
    if name.endswith("_with_indices") or name + "_with_indices" in _SURFACES:
        at = next((i for i, p in enumerate(parts) if " _" in p), len(parts))  # private ones are the last
        parts.insert(at, "bool return_indices=False")
    return f"({', '.join(parts)})"


def operator(name: str, *overloads: tuple, in_place: bool = False) -> _C.Operator:
    """The function of a name, of a record or several."""
    made = _C.Operator(name, [(record, name + text) for record, text in overloads], in_place, not in_place)
    made._module = "arete.nn.functional"
    return made


def install(namespace: dict) -> None:
    """Puts the functions into a module that does not have them yet."""
    names = [n for n, surface in _SURFACES.items() if surface == "functional"] + _SHARED
    for name in names:
        if name not in namespace:
            namespace[name] = operator(name, (name, signature(name)))
    for name in _IN_PLACE:
        text = signature(name).replace(", bool inplace=False", "")
        namespace[name + "_"] = operator(name + "_", (name, text), in_place=True)
    for n in (1, 2, 3):
        name = f"conv{n}d"
        text = signature(name)
        namespace[name] = operator(name, (name, text), (name + "_padding", text.replace("int[] padding=0", "str padding")))
    namespace["unfold"] = operator("unfold", ("unfold_im2col", signature("unfold_im2col")))
