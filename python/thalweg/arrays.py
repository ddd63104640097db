"""Collectives over arrays of any framework: NumPy, JAX, TensorFlow, PyTorch on the CPU, whatever speaks DLPack.

    import thalweg                                     # under thalweg run, torchrun, mpirun or srun
    total = thalweg.allreduce(gradient)                # an array of the kind that was given
    first = thalweg.broadcast(parameters, root=0)

Every rank makes the same calls in the same order. All is exact, and results are the same on all ranks bit for bit.
What is given stays as it is. The first call makes the communicator of all ranks, from the launcher's environment
(docs/launching.md); init() makes it otherwise. Needs NumPy, and no PyTorch.
"""
import importlib

import numpy as np

TIMEOUT_S = 60.0
_ROOTS = {"jaxlib": "jax"}  # where a framework's arrays come from a package of another name


def _native():
    try:
        from thalweg import _arrays
    except ImportError as error:
        raise RuntimeError(f"thalweg: its module for this Python cannot be loaded: {error}. Build it: `pip install .` "
                           "in the checkout, or `make build` to use the checkout itself") from error
    return _arrays


def _from_torch(tensor):
    import torch
    if tensor.device.type != "cpu":
        raise ValueError(f"array: a tensor on {tensor.device}; only those on the CPU are allowed here: use the backend "
                         "of torch.distributed")
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy(), "bfloat16", lambda a: torch.from_numpy(a).view(torch.bfloat16)
    array = tensor.numpy()
    return array, array.dtype.name, torch.from_numpy


def _elements(array):
    """The elements on the host, the name of their type, and how to make such an array of a NumPy one."""
    root = type(array).__module__.partition(".")[0]
    root = _ROOTS.get(root, root)
    if root == "torch":
        return _from_torch(array)
    if root == "jax":
        host, back = np.asarray(array), importlib.import_module("jax.numpy").asarray
    elif root == "tensorflow":
        host, back = array.numpy(), importlib.import_module("tensorflow").convert_to_tensor
    elif root != "numpy" and hasattr(array, "__dlpack__"):
        host, back = np.from_dlpack(array), lambda a: a
    else:
        host, back = np.asarray(array), lambda a: a
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    return host, host.dtype.name, back


def _place(array, kind):
    return array.ctypes.data, array.size, kind


class Communicator:
    """The ranks of a job, or of a group of it. Calls block; from any thread, in the same order on all ranks."""

    def __init__(self, rank=None, size=None, store="", group="world", timeout=TIMEOUT_S):
        """rank, size, store ("host:port"): None and empty are as the launcher says. group: its name, one for each
        communicator of the job. timeout: of making it, and of every call, in seconds."""
        self._timeout = float(timeout)
        self._native = _native().Communicator(rank, size, store, group, self._timeout)

    @property
    def rank(self):
        return self._native.rank

    @property
    def size(self):
        return self._native.size

    def allreduce(self, array, op="sum"):
        """op: sum, product, min, max or mean."""
        host, kind, back = _elements(array)
        out = np.array(host, order="C")
        self._native.allreduce(_place(out, kind), op, self._timeout)
        return back(out)

    def broadcast(self, array, root=0):
        """The root's array; those of the others say its shape and type."""
        host, kind, back = _elements(array)
        out = np.array(host, order="C")
        self._native.broadcast(_place(out, kind), root, self._timeout)
        return back(out)

    def all_gather(self, array):
        """All arrays, one after the other along a new first dimension: that of rank 0 first."""
        host, kind, back = _elements(array)
        own = np.ascontiguousarray(host)
        out = np.empty((self.size, *host.shape), host.dtype)
        self._native.all_gather(_place(own, kind), _place(out, kind), self._timeout)
        return back(out)

    def reduce_scatter(self, array, op="sum"):
        """The rank's part of the reduction; the first dimension has a part for each rank, and goes."""
        own, kind, back = self._parts("reduce_scatter", array)
        out = np.empty(own.shape[1:], own.dtype)
        self._native.reduce_scatter(_place(own, kind), _place(out, kind), op, self._timeout)
        return back(out)

    def all_to_all(self, array):
        """Part r of the first dimension goes to rank r; the result has this rank's part of every rank."""
        own, kind, back = self._parts("all_to_all", array)
        out = np.empty_like(own)
        self._native.all_to_all(_place(own, kind), _place(out, kind), self._timeout)
        return back(out)

    def _parts(self, name, array):
        host, kind, back = _elements(array)
        if host.ndim == 0 or host.shape[0] != self.size:
            raise ValueError(f"{name}: an array of shape {host.shape}; the first dimension must be the number of ranks, "
                             f"{self.size}")
        return np.ascontiguousarray(host), kind, back

    def barrier(self):
        self._native.barrier(self._timeout)

    def close(self):
        """Leaves the others; calls after it fail."""
        self._native.close()


_all = None


def init(**options):
    """Makes the communicator of the functions here; options as Communicator has them."""
    global _all
    if _all is not None:
        raise RuntimeError("thalweg.init: there is a communicator already; shutdown() ends it")
    _all = Communicator(**options)
    return _all


def shutdown():
    """Ends it. Another may follow, with another `group`."""
    global _all
    if _all is not None:
        _all.close()
        _all = None


def _current():
    return _all if _all is not None else init()


def rank():
    return _current().rank


def size():
    return _current().size


def allreduce(array, op="sum"):
    return _current().allreduce(array, op)


def broadcast(array, root=0):
    return _current().broadcast(array, root)


def all_gather(array):
    return _current().all_gather(array)


def reduce_scatter(array, op="sum"):
    return _current().reduce_scatter(array, op)


def all_to_all(array):
    return _current().all_to_all(array)


def barrier():
    _current().barrier()
