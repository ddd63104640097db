"""Thalweg: the communication layer for distributed DNN training on plain Ethernet.

    import torch.distributed as dist
    import thalweg
    dist.init_process_group("thalweg")

    thalweg.allreduce(array)                          # of NumPy, JAX, TensorFlow, … (thalweg.arrays)

Importing the package makes the backend known to torch.distributed (docs/pytorch.md). Without PyTorch, or with
THALWEG_BACKEND=0 in the environment, it does nothing.
"""
import importlib
import importlib.util
import os

from thalweg.options import Options

__version__ = "0.1.0"
# Loaded when they are first used: what needs NumPy, and what needs PyTorch.
_LATER = {**dict.fromkeys(("init", "shutdown", "rank", "size", "allreduce", "broadcast", "all_gather", "reduce_scatter",
                           "all_to_all", "barrier", "Communicator"), "thalweg.arrays"),
          "DistributedOptimizer": "thalweg.optimizer"}
if importlib.util.find_spec("torch") is None:
    del _LATER["DistributedOptimizer"]
__all__ = ["Options", "__version__", *_LATER]


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


if os.environ.get("THALWEG_BACKEND") != "0" and importlib.util.find_spec("torch") is not None:
    from thalweg.backend import register

    register()
