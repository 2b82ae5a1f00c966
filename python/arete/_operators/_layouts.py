"""How the elements of tensors lie in memory."""
from __future__ import annotations


class _Layout:
    """How the elements of a tensor are stored: `strided`, those that are not zero as `sparse_coo`, by rows or columns as `sparse_csr` or
    `sparse_csc`, in blocks as `sparse_bsr` or `sparse_bsc`, or sequences of different lengths as `jagged`.

    >>> arete.ones(2).layout
    arete.strided
    """

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"{type(self).__module__}.{self._name}"

    def __reduce__(self):
        return self._name  # there is one of each


class memory_format(_Layout):
    """How a copy lays out its memory.

    >>> arete.zeros(1, 2, 3, 3).to(memory_format=arete.channels_last).stride()
    (18, 1, 6, 2)
    """


strided, sparse_coo, sparse_csr = _Layout("strided"), _Layout("sparse_coo"), _Layout("sparse_csr")
sparse_csc, sparse_bsr, sparse_bsc = _Layout("sparse_csc"), _Layout("sparse_bsr"), _Layout("sparse_bsc")
COMPRESSED = sparse_csr, sparse_csc, sparse_bsr, sparse_bsc
BY_COLUMNS, BLOCKS = (sparse_csc, sparse_bsc), (sparse_bsr, sparse_bsc)
jagged = _Layout("jagged")
contiguous_format = legacy_contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
layout = _Layout

for _class in (_Layout, memory_format):
    _class.__module__ = "arete"  # where it is found, by pickles too
