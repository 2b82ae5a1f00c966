"""Pictures: files, folders of classes, augmentation - with torchvision's names.

    import arete.vision as torchvision

Decoding and transforms are C++ and run without the interpreter's lock: threads of a DataLoader work side by side."""
from . import datasets as datasets, io as io, transforms as transforms
