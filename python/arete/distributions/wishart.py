"""Wishart's distribution of covariance matrices: it is not there, and nothing is one."""
from __future__ import annotations

from .._refused import refused as _refused

globals().update(_refused(__name__, "matrices of this distribution are not drawn", "Wishart"))
