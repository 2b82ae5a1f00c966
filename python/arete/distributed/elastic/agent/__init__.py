"""See `server`."""
from . import server as server
