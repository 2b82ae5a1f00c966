"""Why rows of the breadth benchmark may be slower than PyTorch: each reason with the rows that it holds for."""

from __future__ import annotations

import re

# (how the name of the device begins, regular expression that is found in the names of the rows, reason)
REASONS = (
    ("CPU", r"^torch\.randperm ", "sorts random keys of 63 bits, so that all devices give one permutation; PyTorch exchanges elements"),
    ("CPU", r"grid_sample", "an interpreted program, whose look-ups take what PyTorch's whole kernel takes; gradients scatter tap by tap"),
    ("CPU", r"\b[pc]dist ", "differences, squares and sums in f64 are passes over blocks; PyTorch keeps a pair in registers"),
    ("CPU", r"\b(gelu|GELU) ", "an error function within one unit in the last place; PyTorch's is off by four"),
    ("CPU", r"\b(elu|celu|selu)_? ", "what needs no exponential is found and skipped in two further passes through the cache"),
    ("CPU", r"\b(hardswish|leaky_relu|LeakyReLU|angle|lerp|clamp|prelu|huber_loss|HuberLoss|smooth_l1_loss|SmoothL1Loss|rrelu_) ",
     "each step of a program is a pass through the first cache; PyTorch has one loop"),
    ("CPU", r"\b(kron|outer|ger) ", "short rows are repeated into a buffer first"),
    ("CPU", r"\b(igammac?_?|gammaincc?|i1e) ", "series in f64, for all digits of f32"),
    ("CPU", r"\bbmm .*\| host ", "a call of oneDNN for each matrix"),
    ("CPU", r"\bconv3d .*groups", "oneDNN of Debian 12 has no own way for groups of odd channels"),
    ("CPU", r"(log_softmax|softmax|softmin|Softmax|Softmin) ", "exponentials are computed for the sum and again for the result"),
    ("CPU", r"([Ll]ayer|[Gg]roup|[Ii]nstance)_?[Nn]orm.*backward", "gradients of input, weight and bias are passes of their own"),
    ("CPU", r"\b(cum)?prod .*backward", "running products from both sides: right for zero factors, and differentiable twice"),
    ("CPU", r"(Replication|Reflection)Pad", "a call for each band of the border"),
    ("CPU", r"max_unpool", "gathers of rows of two or three elements"),
    ("CPU", r"^torch\.unfold_copy ", "sums of overlapping windows go through an index"),
    ("CPU", r"([Gg]roup|[Ll]ayer)_?[Nn]orm ",
     "mean, squares of differences and result are passes through the first cache, with channels' weights in tiles of one channel; "
     "PyTorch sums and squares in one pass"),
    ("CPU", r"^torch\.diff ", "rows that are no whole block are calls of a kernel each: 14 ns a row, PyTorch's 8"),
    ("CPU", r"^(torch\.(column_stack|expand_copy|roll|fliplr)|fft\.i?fftshift|nn\.ChannelShuffle|"
     r"nn\.functional\.(native_channel_shuffle|pad)) ",
     "rows of 0.3 to 2.5 KiB are a memcpy each, 10 ns more a row than PyTorch's loops; a two-dimensional copy in vectors would mend it"),
    ("CPU", r"^torch\.index_select .*over middle \| cache", "rows of 80 bytes: 4 ns each, PyTorch's 3"),
    ("CPU", r"^(torch\.mode|Tensor\.mode|(torch|Tensor)\.(nan)?median|torch\.kthvalue) .*\| host ",
     "all rows are put in order, which takes half of it, and a few primitives follow; PyTorch selects within a row"),
    ("CPU", r"[Mm]ulti_?[Ll]abel_?[Mm]argin_?[Ll]oss .*\| host ",
     "classes are put in order instead of compared in pairs: a dozen calls, which few classes do not pay"),
    ("CPU", r"multi_margin_loss .*\| host |MultiMarginLoss .*\| host ",
     "a look-up, a fused row program and checks of the classes; a microsecond or two more than one loop"),
    ("CPU", r"^special\.ndtr ", "within one unit in the last place in the lower tail, too, where PyTorch's is off by thousands and then 0"),
    ("CPU", r"^(torch\.gcd_?|torch\.lcm_?) ",
     "Euclid's divisions, one pair after the other, as PyTorch's: equal but for how well the processor guesses when they end"),
    ("CPU", r"(embedding_bag|EmbeddingBag) .*forward$",
     "each row of a bag is a call of a kernel that adds it; PyTorch adds a bag in registers"),
    ("CPU", r"^nn\.CrossMapLRN2d .*\| memory .*forward$",
     "sums over channels by a general pool take a quarter, powers another; PyTorch keeps sums of its neighbours"),
    ("CPU", r"^linalg\.vander .*backward", "the gradient of running products is a scan from behind, 44 % of it, and products anew"),
    ("CPU", r"^torch\.istft ", "transforms of 4 numbers take 39 %, adding frames up through an index 19 %"),
    ("CPU", r"^linalg\.pinv ", "small decompositions, nearly all of it OpenBLAS's"),
    ("CPU", r"^(Tensor\.(untyped_storage|new|type|stride|resize_as_|argwhere)|torch\.(typename|get_device|asarray|"
     r"is_same_size|conj|real|resolve_neg|resolve_conj|"
     r"resize_as_|trace|argwhere|searchsorted|bucketize)) .*forward$",
     "0.02 to 0.4 us of the call itself"),
    ("CPU", r"^(nn\.functional\.one_hot|torch\.unique|Tensor\.unique|torch\.bincount|Tensor\.bincount) .*\| host ",
     "a few operators after each other, 0.3 us each"),
    ("CPU", r"^Tensor\.cfloat .*backward",
     "interleaving takes half and taking the real parts of the gradient the other half, both at the speed of memory"),
    ("NVIDIA", r"[Mm]ulti_?[Ll]abel_?[Mm]argin_?[Ll]oss .*\| host .*forward$",
     "nine launches: labels are found, looked up, which checks them, and counted in pairs; PyTorch has one kernel"),
    ("NVIDIA", r"(multi_margin_loss|MultiMarginLoss) .*forward$",
     "five launches: numbers of classes, a look-up that checks the classes, rows and their sum"),
    ("NVIDIA", r"one_hot .*forward$", "three launches, one of which finds classes out of range"),
    ("NVIDIA", r"^nn\.LSTM .*\| (host|cache) .*forward$",
     "a product and a program for each step; cuDNN has one kernel for few short steps"),
    ("NVIDIA", r"grid_sampler.*\| host .*forward$", "numbers of positions are a launch of their own"),
    ("NVIDIA", r"(digamma|special\.psi|[Ii]gammac?_?) .*\| host ",
     "f32 results near the zeros need f64 sums; the time of few elements is that of the instructions"),
    ("NVIDIA", r"^torch\.polar ", "real and imaginary parts are stored as two results, each with gaps"),
    ("NVIDIA", r"(index_put_ |Tensor\.__getitem__ \| tensor, \[:,\[number\]\]).*\| (host|cache) ",
     "positions are looked up in tables of their dimensions, which finds those out of range: a launch or two for each"),
    ("NVIDIA", r"(nonzero_static|argwhere|masked_scatter_?|torch\.where \| tensor \||unique|unique_consecutive) ",
     "elements are counted, placed and moved by a kernel each"),
    ("NVIDIA", r"histc .*\| (host|cache) ", "places and their counts are a kernel each, conversions another"),
    ("NVIDIA", r"^(Tensor\.(untyped_storage|requires_grad_)|torch\.(is_same_size|conj|resolve_neg)) ", "0.1 us of the call itself"),
    ("NVIDIA", r"device=cpu", "runs on the host"),
    ("NVIDIA", r"^torch\.embedding_bag .*\| (host|cache) ", "four kernels for its four results"),
    ("NVIDIA", r"scaled_dot_product_attention .*\| host \| float32",
     "few scores of f32 are two products and a softmax; PyTorch has one kernel"),
    ("NVIDIA", r"grid_sampl.*backward", "each tap is a scatter of its own"),
    ("NVIDIA", r"\bpdist ", "sums, and the root that finds a pair's rows, are in f64"),
)


def reason_of(name, device):
    """Why this row may be slower on the device; None: it should not be."""
    return next((why for where, pattern, why in REASONS if device.startswith(where) and re.search(pattern, name)), None)
