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
    ("CPU", r"^Tensor\.(cfloat|cdouble) .*memory_format",
     "into channels last the two parts are put side by side row by row, each as long as there are channels"),
    ("CPU", r"^(torch\.gcd_?|torch\.lcm_?) ",
     "Euclid's divisions, one pair after the other, as PyTorch's: equal but for how well the processor guesses when they end"),
    ("CPU", r"(embedding_bag|EmbeddingBag) .*forward$",
     "each row of a bag is a call of a kernel that adds it; PyTorch adds a bag in registers"),
    ("CPU", r"^nn\.CrossMapLRN2d .*\| memory .*forward$",
     "sums over channels by a general pool take a quarter, powers another; PyTorch keeps sums of its neighbours"),
    ("CPU", r"^linalg\.vander .*backward", "the gradient of running products is a scan from behind, 44 % of it, and products anew"),
    ("CPU", r"^torch\.(hann|hamming|blackman|bartlett)_window |^signal\.windows\.cosine ",
     "computed in f64 whatever the result; cosines and one division are most of it"),
    ("CPU", r"^torch\.frexp ", "exact by ten halvings of the exponent's range; PyTorch takes the bits apart"),
    ("CPU", r"^torch\.aminmax .*over all", "a negation and two minima, each a pass over blocks"),
    ("CPU", r"(nan_to_num_?|[hH]ardshrink|[sS]oftshrink|[hH]ardsigmoid|Hardswish|frac_?|PReLU|rrelu) .*\| memory ",
     "each step of a program is a pass through the first cache; PyTorch has one loop"),
    ("CPU", r"scaled_dot_product_attention .*is_causal", "exponentials are computed twice, half of them for scores that are masked"),
    ("CPU", r"max_pool1d .*\| (cache|memory) |MaxPool1d .*\| memory ", "maxima that keep NaN, and set-up for each row"),
    ("CPU", r"(nll_loss|NLLLoss2?d?) .*\| (host|cache) ", "classes are checked by a reduction before the look-up and the sum"),
    ("CPU", r"^torch\.(prod|sum|mean|nansum) .*over (first|last|all)", "f32 is added up in f64"),
    ("CPU", r"linalg\.(lu_factor_ex|ldl_factor)|^torch\.lu ", "OpenBLAS's factorization of small matrices"),
    ("CPU", r"^torch\.mode ", "all rows are put in order"),
    ("CPU", r"^torch\.b(add)?bmm .*\| cache", "oneDNN's set-up for each matrix"),
    ("CPU", r"^linalg\.pinv ", "small decompositions, nearly all of it OpenBLAS's"),
    ("CPU", r"^(Tensor\.(untyped_storage|new|type|stride|resize_as_|argwhere)|torch\.(typename|get_device|asarray|"
     r"is_same_size|conj|real|resolve_neg|resolve_conj|"
     r"resize_as_|trace|argwhere|searchsorted|bucketize)) .*forward$",
     "0.02 to 0.4 us of the call itself"),
    ("CPU", r"^(nn\.functional\.one_hot|torch\.unique|Tensor\.unique|torch\.bincount|Tensor\.bincount) .*\| host ",
     "a few operators after each other, 0.3 us each"),
    ("CPU", r"^Tensor\.cfloat .*backward",
     "interleaving takes half and taking the real parts of the gradient the other half, both at the speed of memory"),
    ("CPU", r"^(linalg\.(slogdet|det)|torch\.(slogdet|logdet|det)) .*backward",
     "the gradient factorizes once more for the inverse, PyTorch keeps the factors; OpenBLAS beside MKL"),
    ("CPU", r"^(linalg\.(slogdet|det|inv|inv_ex|tensorsolve|solve)|torch\.(slogdet|logdet|det|inverse|lu_solve|cholesky_solve|"
     r"cholesky_inverse|ormqr)) ",
     "factors and triangular systems of small matrices by OpenBLAS beside MKL; an inverse solves for the identity, zeros and all"),
    ("CPU", r"^fft\.(i?r?fft2|i?r?fftn|i?hfft2|i?hfftn) .*\| memory ",
     "the whole array is gone over once for each dimension; MKL works on parts that stay in the cache"),
    ("NVIDIA", r"[Mm]ulti_?[Ll]abel_?[Mm]argin_?[Ll]oss .*\| host .*forward$",
     "five launches: numbers of classes, a look-up that checks the labels, counts, pairs of classes, their sum; PyTorch has one kernel"),
    ("NVIDIA", r"(multi_margin_loss|MultiMarginLoss) .*forward$",
     "five launches: numbers of classes, a look-up that checks the classes, rows and their sum"),
    ("NVIDIA", r"one_hot .*forward$", "three launches, one of which finds classes out of range"),
    ("NVIDIA", r"^nn\.LSTM .*\| (host|cache) .*forward$",
     "a product and a program for each step; cuDNN has one kernel for few short steps"),
    ("NVIDIA", r"grid_sampler.*\| (host|cache) .*forward$", "numbers of positions are a launch of their own"),
    ("NVIDIA", r"(digamma|special\.psi|[Ii]gammac?_?) .*\| host ",
     "f32 results near the zeros need f64 sums; the time of few elements is that of the instructions"),
    ("NVIDIA", r"^torch\.cumprod .*backward",
     "a scan of products and sums from behind, right for zero factors and differentiable twice, and a pass over its result"),
    ("NVIDIA", r"^torch\.take .*backward",
     "positions are put in order first, so that the sums at equal ones do not depend on chance; PyTorch adds as they come"),
    ("NVIDIA", r"^torch\.polar ", "real and imaginary parts are stored as two results, each with gaps"),
    ("NVIDIA", r"(index_put_ |Tensor\.__getitem__ \| tensor, \[:,\[number\]\]).*\| (host|cache) ",
     "positions are looked up in tables of their dimensions, which finds those out of range: a launch or two for each"),
    ("NVIDIA", r"(nonzero_static|argwhere|torch\.where \| tensor \||unique|unique_consecutive) ",
     "elements are counted, placed and moved by a kernel each"),
    ("NVIDIA", r"histc ", "places and their counts are a kernel each, conversions another"),
    ("NVIDIA", r"^(Tensor\.(untyped_storage|requires_grad_)|"
     r"torch\.(is_same_size|conj|resolve_neg|resolve_conj|get_device|positive|real)) .*forward$",
     "0.1 us of the call itself"),
    ("NVIDIA", r"device=cpu", "runs on the host"),
    ("NVIDIA", r"^nn\.NLLLoss(2d)? .*forward$", "three launches: classes are looked up by a kernel that finds those out of range"),
    ("NVIDIA", r"(interpolate .*nearest|upsample_bilinear) .*backward",
     "each element of a large input asks which outputs it is part of, so that sums have one order; PyTorch fills zeros and adds"),
    ("NVIDIA", r"mode .*\| (host|cache) ", "rows are put in order, and a few primitives follow"),
    ("NVIDIA", r"^torch\.index_select .*over middle .*sliced", "a general gather, which divides for each element"),
    ("NVIDIA", r"^torch\.(sum|mean|prod|amax|amin|nansum|argmax|argmin|var_mean|std|std_mean|aminmax) .*over first \| memory",
     "some 600 blocks on 132 multiprocessors do not come out even; a second launch costs as much"),
    ("NVIDIA", r"(randn_like|randint_like|dropout|bernoulli) .*transposed",
     "random numbers count in row-major order whatever the strides are, so they are put in order by a second pass"),
    ("NVIDIA", r"\bpdist ", "sums, and the root that finds a pair's rows, are in f64"),
    ("NVIDIA", r"^torch\.((any|all|argmax|argmin|sum|mean|prod|amax|amin) .*over all|v?dot .*) \| memory",
     "parts of the result are put together by a second launch"),
    ("NVIDIA", r"^(torch\.lgamma|special\.gammaln) ",
     "keeps the digits near the zeros from -10 to -2.4, which the library's lgammaf loses"),
    ("NVIDIA", r"^torch\.randperm ", "sorts random keys of 63 bits, so that all devices give one permutation"),
    ("NVIDIA", r"^torch\.embedding_bag .*forward$", "four launches for its four results (nn.functional.embedding_bag has one)"),
    ("NVIDIA", r"^(torch\.index_put_|Tensor\.__getitem__) .*forward$", "seven to twelve launches, PyTorch has fewer"),
    ("NVIDIA", r"^(torch|Tensor)\.(addmv_|addr_?) ", "four launches: a product in two, and a program that adds it"),
    ("NVIDIA", r"^torch\.logcumsumexp .*\| host ", "pairs of maximum and sum, which f32 rounds less, in a scan of a few more instructions"),
    ("NVIDIA", r"^Tensor\.cdouble .*backward", "real parts of the gradient are loaded with a stride"),
    ("NVIDIA", r"^fft\.(fft2|ifftn|fftn) .*over (last|all) \| memory",
     "a half transform, its other half and, back, the real parts are passes beside cuFFT's; with them 0.7x to 0.93x"),
    ("NVIDIA", r"^Tensor\.put_ .*\| host ", "elements are replaced in a copy, which then goes back into the tensor"),
    ("NVIDIA", r"^Tensor\.__contains__ ", "comparison and any are two passes"),
    ("", r"^(torch\.(is_storage|asarray)|Tensor\.ndimension) ", "0.1 us of the call itself"),
)

# The same for memory: rows whose peak may be more than 1.1 times PyTorch's.
MEMORY_REASONS = (
    ("NVIDIA", r"^(torch\.(mm|bmm|addmm|baddbmm|addbmm|matmul|tensordot|chain_matmul|cov|corrcoef|orgqr|cdist)|"
     r"linalg\.(matmul|multi_dot|householder_product)|"
     r"nn\.(functional\.)?([Ll]inear|conv_tbc|LazyLinear|multi_head_attention_forward)) ",
     "workspace of the product for sums in parts, given back after it; PyTorch keeps one of 32 MiB, which its peak leaves out"),
    ("", r"^(torch\.(nonzero|nonzero_static|argwhere|where|masked_select|masked_scatter)|Tensor\.nonzero) ",
     "a mask of bytes is made of what is no mask, and positions are counted twice instead of kept"),
    ("", r"(nll_loss|NLLLoss|multi_margin_loss|MultiMarginLoss|cross_entropy)", "losses of the rows are kept until they are summed"),
    ("", r"[Mm]ulti_?[Ll]abel_?[Mm]argin_?[Ll]oss ", "classes are put in order instead of compared in pairs"),
    ("NVIDIA", r"^torch\.topk .*over (first|middle)", "what does not lie along rows is turned over first"),
    ("", r"^(torch\.(sort|msort|argsort|unique)|Tensor\.(sort|argsort)) ",
     "keys and positions of 64 bits are moved between two arrays each"),
    ("NVIDIA", r"^torch\.mode ", "rows are put in order with their positions; PyTorch sorts within a block's own memory"),
    ("NVIDIA", r"^torch\.put ", "positions are put in order, so that which of equal ones counts does not depend on chance"),
    ("CPU", r"scaled_dot_product_attention ", "scores for blocks of rows are kept"),
    ("", r"^torch\.logspace |^Tensor\.tolist ", "numbers in f64, or the copy for the host"),
    ("CPU", r"^Tensor\.pin_memory ", "a copy into memory of its own, which PyTorch's build without a GPU leaves out"),
    ("", r"CrossMapLRN2d|local_response_norm|[lL][pP]_?[pP]ool", "powers of the elements are an array beside the pool's result"),
    ("", r"^(linalg\.(solve_triangular|lu|cholesky\w*|qr|householder_product)|"
     r"torch\.(cholesky\w*|triangular_solve|lu_\w+|qr|pinverse|ormqr)) .*",
     "gradients are products and solutions of triangles, each with its result; factors are copied out of LAPACK's array"),
    ("", r"^torch\.prod .*backward", "running products from both sides and one of them turned round"),
    ("", r"^torch\.histc |^torch\.histogram",
     "places of a piece of the values, 512 KiB on a CPU and 32 MiB on a GPU however many there are"),
    ("", r"^torch\.sgn .*backward", "a gradient of zeros is an array; PyTorch's has no memory"),
    ("", r"^torch\.addr \| mask", "the outer product of masks is an array before it is added"),
    ("", r"^torch\.addbmm ", "the sum over a batch is part of one product, for which the first matrices are turned over"),
    ("", r"^torch\.(trapezoid|trapz|gradient) .*backward", "gradients of neighbours are arrays each until they are added"),
    ("", r"[bB]ilinear \|",
     "the product with the weight is kept for the other input's gradient, or made in pieces of 512 KiB, on a GPU 16 MiB"),
    ("NVIDIA", r"one_hot ", "classes below zero are moved out of range, where the write finds them: an array beside that of few classes"),
    ("NVIDIA", r"\bpdist .*forward$", "distances of some rows to all later ones are an array, from which those of pairs are picked"),
    ("NVIDIA", r"^linalg\.svd ", "columns are rotated in a copy with the right vectors beside it, where no block's own memory holds both"),
    ("NVIDIA", r"^Tensor\.__getitem__ \| tensor, \[:,\[number\]\]",
     "where the indexed dimensions do not lie side by side, the place of each element is a number of 64 bits"),
)


def _find(reasons, name, device):
    return next((why for where, pattern, why in reasons if device.startswith(where) and re.search(pattern, name)), None)


def reason_of(name, device):
    """Why this row may be slower on the device; None: it should not be."""
    return _find(REASONS, name, device)


def memory_reason_of(name, device):
    """Why this row may need more memory on the device; None: it should not."""
    return _find(MEMORY_REASONS, name, device)
