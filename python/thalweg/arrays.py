"""Collectives over arrays of NumPy, JAX, TensorFlow, PyTorch on the CPU, and anything with DLPack.

    import thalweg                                 # under thalweg run, torchrun, mpirun or srun
    total = thalweg.allreduce(gradient)            # an array of the same framework as `gradient`
    first = thalweg.broadcast(parameters, root=0)

Every rank makes the same calls in the same order. Results are exact, and the same on all ranks bit
for bit. No call changes the array that it is given. The first call makes a communicator of all
ranks from the launcher's environment (docs/launching.md); init() makes one with other settings.
Needs NumPy, but not PyTorch.
"""
import importlib
from typing import Any, TypeVar

import numpy as np

# An array, and an array of the same framework.
Array = TypeVar("Array")

TIMEOUT_S = 60.0
# Packages whose arrays belong to a framework of another name.
_ROOTS = {"jaxlib": "jax"}


def _native():
    try:
        from thalweg import _arrays
    except ImportError as error:
        raise RuntimeError(f"thalweg: its module for this Python cannot be loaded: {error}. Build "
                           "it: `pip install .` in the checkout, or `make build` to use the "
                           "checkout itself") from error
    return _arrays


def _from_torch(tensor):
    import torch
    if tensor.device.type != "cpu":
        raise ValueError(f"array: a tensor on {tensor.device}; only those on the CPU are allowed "
                         "here: use the backend of torch.distributed")
    tensor = tensor.detach().contiguous()
    # NumPy has no such types: their bits travel as integers.
    bits = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8,
            torch.float8_e5m2: torch.uint8}
    if kind := bits.get(tensor.dtype):
        return (tensor.view(kind).numpy(), str(tensor.dtype).removeprefix("torch."),
                lambda a: torch.from_numpy(a).view(tensor.dtype))
    array = tensor.numpy()
    return array, array.dtype.name, torch.from_numpy


def _elements(array):
    """Returns a NumPy array with the elements of `array`, the name of their type, and a function.

    The function turns a NumPy array into one of the framework that `array` came from.
    """
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
    """Returns a contiguous NumPy array as the native module takes it (_arrays.pyi)."""
    return array.ctypes.data, array.size, kind


class Communicator:
    """The ranks of a job, or of a group of them.

    Calls block until they are done. They may come from any thread, but must come in the same order
    on all ranks.
    """

    def __init__(self, rank: int | None = None, size: int | None = None, store: str = "",
                 group: str = "world", timeout: float = TIMEOUT_S) -> None:
        """Meets the other ranks.

        rank, size, store ("host:port"): the launcher's environment has them if they are left out.
        group: a name that no other communicator of the job has. timeout: for this call and for
        every later one, in seconds.
        """
        self._timeout = float(timeout)
        self._native = _native().Communicator(rank, size, store, group, self._timeout)

    @property
    def rank(self) -> int:
        return self._native.rank

    @property
    def size(self) -> int:
        return self._native.size

    def allreduce(self, array: Array, op: str = "sum") -> Array:
        """Returns the reduction of all ranks' arrays. op: sum, product, min, max or mean."""
        host, kind, back = _elements(array)
        out = np.array(host, order="C")
        self._native.allreduce(_place(out, kind), op, self._timeout)
        return back(out)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Returns the root's array. Those of the other ranks only give its shape and type."""
        host, kind, back = _elements(array)
        out = np.array(host, order="C")
        self._native.broadcast(_place(out, kind), root, self._timeout)
        return back(out)

    def all_gather(self, array: Array) -> Array:
        """Returns the arrays of all ranks, stacked along a new first dimension in rank order."""
        host, kind, back = _elements(array)
        own = np.ascontiguousarray(host)
        out = np.empty((self.size, *host.shape), host.dtype)
        self._native.all_gather(_place(own, kind), _place(out, kind), self._timeout)
        return back(out)

    def reduce_scatter(self, array: Array, op: str = "sum") -> Array:
        """Returns this rank's part of the reduction.

        The first dimension of `array` counts the parts, one for each rank; the result lacks it.
        """
        own, kind, back = self._parts("reduce_scatter", array)
        out = np.empty(own.shape[1:], own.dtype)
        self._native.reduce_scatter(_place(own, kind), _place(out, kind), op, self._timeout)
        return back(out)

    def all_to_all(self, array: Array) -> Array:
        """Sends part r of the first dimension to rank r, and returns the parts sent to this rank.

        Part r of the result comes from rank r.
        """
        own, kind, back = self._parts("all_to_all", array)
        out = np.empty_like(own)
        self._native.all_to_all(_place(own, kind), _place(out, kind), self._timeout)
        return back(out)

    def _parts(self, name, array):
        host, kind, back = _elements(array)
        if host.ndim == 0 or host.shape[0] != self.size:
            raise ValueError(f"{name}: an array of shape {host.shape}; the first dimension must be "
                             f"the number of ranks, {self.size}")
        return np.ascontiguousarray(host), kind, back

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._native.barrier(self._timeout)

    def close(self) -> None:
        """Leaves the group. Later calls fail."""
        self._native.close()


_all = None  # the communicator of the functions below


def init(**options: Any) -> Communicator:
    """Makes and returns the communicator that the functions of this module use.

    The options are those of Communicator.
    """
    global _all
    if _all is not None:
        raise RuntimeError("thalweg.init: there is a communicator already; shutdown() ends it")
    _all = Communicator(**options)
    return _all


def shutdown() -> None:
    """Closes the communicator that the functions of this module use.

    init() may make another one, with another `group`.
    """
    global _all
    if _all is not None:
        _all.close()
        _all = None


def _current():
    return _all if _all is not None else init()


def rank() -> int:
    return _current().rank


def size() -> int:
    return _current().size


def allreduce(array: Array, op: str = "sum") -> Array:
    return _current().allreduce(array, op)


def broadcast(array: Array, root: int = 0) -> Array:
    return _current().broadcast(array, root)


def all_gather(array: Array) -> Array:
    return _current().all_gather(array)


def reduce_scatter(array: Array, op: str = "sum") -> Array:
    return _current().reduce_scatter(array, op)


def all_to_all(array: Array) -> Array:
    return _current().all_to_all(array)


def barrier() -> None:
    _current().barrier()
