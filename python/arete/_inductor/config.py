"""What programs switch that speaks of kernels. `emulate_precision_casts` makes what is compiled later `exact`
(arete._settings.inductor)."""
from .. import _settings
from .._settings.inductor import TABLE

_settings.make(__name__, TABLE)
