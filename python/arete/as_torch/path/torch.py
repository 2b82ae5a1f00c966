"""What `import torch` finds where this folder is on the path: makes Arete stand for it."""
import importlib.util
import pathlib
import sys

if importlib.util.find_spec("arete") is None:
    sys.path.append(str(pathlib.Path(__file__).parents[3]))

from arete import as_torch

as_torch.install()
