"""What programs switch that speaks of the backward pass. `activation_memory_budget` is the `memory_budget` of what is compiled later
(arete._settings.functorch)."""
from .. import _settings
from .._settings.functorch import TABLE

_settings.make(__name__, TABLE)
