"""Starting functions and programs in several processes, as `arete run` starts programs."""
from .api import LaunchConfig as LaunchConfig
from .api import elastic_launch as elastic_launch
from .api import launch_agent as launch_agent
