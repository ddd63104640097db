"""The exceptions of Thalweg, one class for each kind of failure (docs/errors.md).

    try:
        thalweg.allreduce(gradient)
    except thalweg.PeerLost as error:
        print(f"rank {error.rank} is gone")

All are RuntimeErrors. Where PyTorch is loaded when this module is first used, they are also
torch.distributed.DistBackendErrors, as PyTorch expects of a backend.
"""
import functools
import sys

_Base = RuntimeError
if "torch" in sys.modules:
    _Base = getattr(sys.modules.get("torch.distributed"), "DistBackendError", RuntimeError)


class Error(_Base):
    """A failure of Thalweg.

    code: the kind of failure in words, the same for all errors of a class.
    rank: the rank to blame, in the group whose call failed; None if it is not known, or if no
    single rank is to blame.
    """

    code = "internal"
    rank = None

    def __reduce__(self):
        # Classes that class_of() makes cannot be found by their names.
        return _remake, (self.code, self.rank, self.args)


class Timeout(Error):
    """A deadline, or another limit of time, has passed."""

    code = "timeout"


class PeerLost(Error):
    """Another process is gone: it died or left, or it cannot be reached."""

    code = "peer lost"


class Mismatch(Error):
    """Ranks of one job differ: in the calls they make, in their settings, keys or versions."""

    code = "mismatch"


class BadArgument(Error, ValueError):
    """An argument, an option, an environment variable or a file is not allowed."""

    code = "bad argument"


class Cancelled(Error):
    """The operation was cancelled, or this rank has left its group."""

    code = "cancelled"


class NoResource(Error):
    """This machine or a switch has no room: no memory, port or file descriptor."""

    code = "no resource"


class InternalError(Error):
    """Something that should not happen: a bug, or a peer that sends nonsense."""

    code = "internal"


_BY_CODE = {one.code: one for one in (Timeout, PeerLost, Mismatch, BadArgument, Cancelled,
                                      NoResource, InternalError)}


@functools.cache
def class_of(code, rank):
    """Returns the class of errors with this code that blame this rank.

    The native modules can set the class and the text of an exception, but nothing else. So a rank
    is an attribute of a class of its own, which looks like the class that it derives from.
    """
    known = _BY_CODE.get(code, InternalError)
    if rank is None:
        return known
    return type(known.__name__, (known,), {"rank": rank, "__module__": known.__module__,
                                           "__qualname__": known.__qualname__,
                                           "__doc__": known.__doc__})


def _remake(code, rank, args):
    return class_of(code, rank)(*args)
