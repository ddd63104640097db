"""The backend "thalweg" of torch.distributed: registers it and makes its process groups."""
import atexit
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

from thalweg.options import Options

NAME = "thalweg"
REBUILD = "`pip install --force-reinstall --no-deps .` in the checkout"


def register():
    """Registers the backend with torch.distributed. May be called more than once."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    reason = _other_torch(_installed_for())
    if reason:
        warnings.warn(f"{reason}. Until then the backend \"thalweg\" cannot be used; "
                      "thalweg.arrays can", RuntimeWarning, stacklevel=3)


def native():
    """Loads and returns the compiled module thalweg._C, which the first process group needs."""
    # Asked before the module is loaded: what another PyTorch makes of it may be worse than an error.
    reason = _other_torch(_installed_for())
    if reason:
        raise RuntimeError(reason)
    try:
        module = _load()
    except ImportError as error:
        raise RuntimeError(
            f"thalweg: its module for this Python and PyTorch {torch.__version__} cannot be "
            f"loaded: {error}. Build it where this PyTorch is installed: {REBUILD}, "
            "or `make build` to use the checkout itself") from error
    reason = _other_torch([_short(module.torch_version)])
    if reason:
        raise RuntimeError(reason)
    return module


def _load():
    """Imports thalweg._C: in a wheel from the file for the PyTorch that runs."""
    name = "thalweg._C"
    file = _modules().get(_short(torch.__version__))
    if file is None or name in sys.modules:
        return importlib.import_module(name)
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location(name, file, loader=loader))
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _modules():
    """Returns the files of a wheel's native modules by PyTorch version; empty in a checkout."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    files = Path(__file__).parent.glob(f"_C_torch*{suffix}")
    found = ((re.match(r"_C_torch(\d+)_(\d+)\.", file.name), file) for file in files)
    return {f"{match.group(1)}.{match.group(2)}": file for match, file in found if match}


def _short(version):
    return ".".join(version.split("+")[0].split(".")[:2])


def _installed_for():
    """Returns the PyTorch versions that the package was built for, such as ["2.9", "2.13"].

    Empty if it does not say so: a checkout that is used by PYTHONPATH has no metadata.
    """
    modules = _modules()
    if modules:
        return sorted(modules, key=lambda version: tuple(map(int, version.split("."))))
    try:
        needed = importlib.metadata.requires("thalweg") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = (re.match(r"torch *\(?==([0-9]+\.[0-9]+)", need) for need in needed)
    return [match.group(1) for match in found if match]


def _other_torch(built):
    """Returns what is wrong if PyTorch is none of the versions in `built`, or None."""
    here = torch.__version__.split("+")[0]
    if not built or _short(here) in built:
        return None
    names = ", ".join(built[:-1]) + " and " * (len(built) > 1) + built[-1]
    return (f"thalweg: built for PyTorch {names}, but this is {here}: "
            f"`pip install 'torch=={built[-1]}.*'`, or build Thalweg for {here}: {REBUILD}")


def _create(group, options):
    """Makes a backend for torch.distributed, which calls this.

    `group` has the store, rank, size and timeout of the process group; `options` is its pg_options.
    """
    if options is None:
        options = Options()
    if not isinstance(options, Options):
        raise TypeError(f"pg_options: {type(options).__name__}; the backend takes thalweg.Options")
    if os.environ.get("THALWEG_TIMELINE"):
        _note_iterations()
    return native().Backend(group.store, group.group_rank, group.group_size,
                            group.timeout.total_seconds(), transport=options.transport,
                            scheme=options.scheme, topology=options.topology_text(),
                            line_rate_gbps=options.line_rate_gbps,
                            switch_address=options.switch_address)


@functools.cache
def _note_iterations():
    """Has the timeline say when an optimizer has done its step: an iteration of training ends."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: native().end_iteration())


@atexit.register
def _leave():
    """Ends the backend's threads when a program exits without destroy_process_group().

    Threads that outlive the Python interpreter would crash.
    """
    if "thalweg._C" in sys.modules:
        native().shutdown_all()


def backend_of(group, device):
    """Returns the thalweg._C.Backend that moves a group's tensors of `device`.

    A `group` of None is the default process group.
    """
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group: call "
                         "torch.distributed.init_process_group('thalweg') first")
    backend = group._get_backend(torch.device(device))
    if not isinstance(backend, native().Backend):
        raise ValueError(f"group: its backend for {device} is {type(backend).__name__}; it must be "
                         "'thalweg' (and TORCH_DISTRIBUTED_DEBUG not DETAIL, which wraps it)")
    return backend
