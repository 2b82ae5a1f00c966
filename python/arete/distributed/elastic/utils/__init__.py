"""What programs that were started anew use."""
from . import data  # noqa: F401
from .api import get_env_variable_or_raise as get_env_variable_or_raise
from .api import get_socket_with_port as get_socket_with_port
from .api import macros as macros
