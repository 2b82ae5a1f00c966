"""What programs started by launchers ask of PyTorch's elastic package. `arete run` starts and watches programs, distributed.launcher
functions; the classes of which PyTorch's launcher is made are names that say so."""
from . import events as events
from . import multiprocessing as multiprocessing
from . import utils as utils
