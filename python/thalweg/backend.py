"""The backend "thalweg" of torch.distributed: how it is registered and made."""
import atexit
import sys

import torch
import torch.distributed as dist

from thalweg.options import Options

NAME = "thalweg"


def register():
    """Makes the backend known to torch.distributed. May be called again."""
    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def native():
    """The module thalweg._C; loaded when a group is first made."""
    try:
        from thalweg import _C
    except ImportError as error:
        raise RuntimeError(
            f"thalweg: its module for this Python and PyTorch {torch.__version__} cannot be loaded: {error}. "
            "Build it where this PyTorch is installed: `pip install --force-reinstall --no-deps .` in the checkout, "
            "or `make build` to use the checkout itself") from error
    built, here = _C.torch_version.split("+")[0], torch.__version__.split("+")[0]
    if built.split(".")[:2] != here.split(".")[:2]:
        raise RuntimeError(f"thalweg: built for PyTorch {built}, but this is {here}: reinstall it "
                           "(`pip install --force-reinstall --no-deps .` in the checkout)")
    return _C


def _create(group, options):
    """For torch.distributed: `group` has the store, rank, size and timeout; `options` is pg_options."""
    if options is None:
        options = Options()
    if not isinstance(options, Options):
        raise TypeError(f"pg_options: {type(options).__name__}; the backend takes thalweg.Options")
    return native().Backend(group.store, group.group_rank, group.group_size, group.timeout.total_seconds(),
                            transport=options.transport, scheme=options.scheme, topology=options.topology_text(),
                            line_rate_gbps=options.line_rate_gbps, switch_address=options.switch_address)


@atexit.register
def _leave():
    """A program that ends without destroy_process_group(): threads must not outlive the interpreter."""
    if "thalweg._C" in sys.modules:
        native().shutdown_all()


def backend_of(group, device):
    """The thalweg._C.Backend of a process group (None: the default one) for tensors of a device."""
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("there is no process group: call torch.distributed.init_process_group('thalweg') first")
    backend = group._get_backend(torch.device(device))
    if not isinstance(backend, native().Backend):
        raise ValueError(f"group: its backend for {device} is {type(backend).__name__}; it must be 'thalweg' "
                         "(and TORCH_DISTRIBUTED_DEBUG not DETAIL, which wraps it)")
    return backend
