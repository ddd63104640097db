"""Thalweg: the communication layer for distributed DNN training on plain Ethernet.

    import torch.distributed as dist
    import thalweg
    dist.init_process_group("thalweg")

Importing the package makes the backend known to torch.distributed (docs/pytorch.md). Without PyTorch, or with
THALWEG_BACKEND=0 in the environment, it does nothing.
"""
import importlib.util
import os

from thalweg.options import Options

__all__ = ["Options", "__version__"]
__version__ = "0.1.0"

if os.environ.get("THALWEG_BACKEND") != "0" and importlib.util.find_spec("torch") is not None:
    from thalweg.backend import register

    register()
