"""Which modules have their parameters spread: none."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "parameters are not spread over processes",
                          "CustomPolicy", "ModuleWrapPolicy", "_or_policy", "_Policy", "always_wrap_policy", "enable_wrap",
                          "lambda_auto_wrap_policy", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap"))
