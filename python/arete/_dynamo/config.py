"""What programs switch that speaks of the translation of Python (arete._settings.dynamo)."""
from .. import _settings
from .._settings.dynamo import TABLE

_settings.make(__name__, TABLE)
