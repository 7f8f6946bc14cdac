"""The library of operators, which _quantize.py adds its own to."""
import torch

_library = torch.library.Library("ridge", "DEF")
