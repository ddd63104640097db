"""Thalweg: the communication layer for distributed DNN training on plain Ethernet.

    import torch.distributed as dist
    import thalweg
    dist.init_process_group("thalweg")

    thalweg.allreduce(array)      # an array of NumPy, JAX, TensorFlow, … (thalweg.arrays)

Importing the package registers the backend "thalweg" with torch.distributed (docs/pytorch.md). It
registers nothing if PyTorch is not installed or THALWEG_BACKEND=0 is in the environment.

    import thalweg.plan, thalweg.sim, thalweg.testbed   # planner, simulator, testbed (docs/python.md)

What is in thalweg.lab is not part of the API.
"""
import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from thalweg.options import Options

if TYPE_CHECKING:  # what __getattr__ finds
    from thalweg.arrays import (Communicator, all_gather, all_to_all, allreduce, barrier, broadcast, init, rank,
                                reduce_scatter, shutdown, size)
    from thalweg.errors import (BadArgument, Cancelled, Error, InternalError, Mismatch, NoResource, PeerLost,
                                Timeout)
    from thalweg.optimizer import DistributedOptimizer

__version__ = "0.1.0"
# Names and the modules that define them. A module is imported when one of its names is first used,
# because thalweg.arrays needs NumPy and thalweg.optimizer needs PyTorch.
_LATER = {**dict.fromkeys(("init", "shutdown", "rank", "size", "allreduce", "broadcast",
                           "all_gather", "reduce_scatter", "all_to_all", "barrier",
                           "Communicator"), "thalweg.arrays"),
          # After PyTorch, if that is used: then they derive from PyTorch's error of backends.
          **dict.fromkeys(("Error", "Timeout", "PeerLost", "Mismatch", "BadArgument", "Cancelled",
                           "NoResource", "InternalError"), "thalweg.errors"),
          "DistributedOptimizer": "thalweg.optimizer"}
if importlib.util.find_spec("torch") is None:
    del _LATER["DistributedOptimizer"]
__all__ = ["Options", "__version__", *_LATER]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


if os.environ.get("THALWEG_BACKEND") != "0" and importlib.util.find_spec("torch") is not None:
    from thalweg.backend import register

    register()
