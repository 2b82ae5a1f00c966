"""Programs for phones, which arete.export and onnx write others for."""
from __future__ import annotations

from .._refused import refused as _refused

globals().update(_refused(__name__, "there is no interpreter for phones; arete.onnx.export writes a file for other runtimes", "LintCode",
                          "MobileOptimizerType", "generate_mobile_module_lints", "optimize_for_mobile"))
