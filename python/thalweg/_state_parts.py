"""What the two ends of a StateTransport share: a state's bytes in parts, and their messages.

All messages go between two ranks of a group of their own, over its streams.

    newcomer                                    survivor
    request, with tag t      ── tag ASK ──▶     any rank, one thread
    header (status, size, digest)  ◀── tag t ── and, if there is one, a payload of `size` bytes

    MANIFEST   the source says what the state is made of; WAIT until torchft gave it the state
    OFFER      whether a survivor holds a state of this step and of this layout
    PART       the bytes of a part
    DIGEST     the digest of a part of the source's state
    PROVED     both
    DONE       the source need not wait any longer; no answer
    PROBE      nothing; a rank that is gone cannot be asked
"""
import bisect
import hashlib
import itertools
import pickle

import torch
from torchft.checkpointing.pg_transport import _DTensorMeta, _prepare_state_dict, _TensorMeta

MANIFEST, OFFER, PART, DIGEST, PROVED, DONE, PROBE = range(7)
OK, WAIT, REFUSED = range(3)

ASK = 1  # the tag of requests
FIRST_TAG = 16  # of answers
TAGS = 1 << 28
REQUEST_WORDS = 6  # kind, rank of the newcomer, step, layout, part, tag of the answer
DIGEST_WORDS = 4
HEADER_WORDS = 2 + DIGEST_WORDS

_FEWEST_PARTS = 64
_LEAST_PART = 256 << 10
_MOST_PART = 4 << 20


def digest_of(part):
    """Returns the SHA-256 of a tensor of bytes, as four whole numbers."""
    digest = hashlib.sha256(memoryview(part.numpy())).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.int64).tolist()


def header(status, size=0, digest=(0,) * DIGEST_WORDS):
    """Makes the header of an answer."""
    return torch.tensor([status, size, *digest], dtype=torch.int64)


class Cut:
    """The bytes of tensors, one after the other, cut into parts. Large tensors are first.

    Both ends compute it from the tensors' sizes, so they agree. What differs between replicas, such
    as the running means of batch normalization, is small: it is in few parts, at the end.
    """

    def __init__(self, sizes):
        self._order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
        self._starts = [0, *itertools.accumulate(sizes[index] for index in self._order)]
        total = self._starts[-1]
        self.part_bytes = min(_MOST_PART, max(_LEAST_PART, -(-total // _FEWEST_PARTS)))
        self.count = -(-total // self.part_bytes)

    def size(self, part):
        """Returns the bytes of a part; only the last one may have fewer than the others."""
        return min(self.part_bytes, self._starts[-1] - part * self.part_bytes)

    def _pieces(self, part):
        """Yields (tensor, its first byte, first byte in the part, bytes)."""
        at, end = part * self.part_bytes, part * self.part_bytes + self.size(part)
        index = bisect.bisect_right(self._starts, at) - 1
        while at < end:
            size = min(end, self._starts[index + 1]) - at
            if size > 0:
                yield (self._order[index], at - self._starts[index], at - part * self.part_bytes,
                       size)
            at += size
            index += 1

    def copy_out(self, part, tensors):
        """Returns a copy of a part of these tensors of bytes, in this host's memory."""
        out = torch.empty(self.size(part), dtype=torch.uint8)
        for index, begin, place, size in self._pieces(part):
            out[place:place + size].copy_(tensors[index][begin:begin + size])
        return out

    def copy_in(self, part, tensors, from_bytes):
        """Writes a part into tensors of bytes."""
        for index, begin, place, size in self._pieces(part):
            tensors[index][begin:begin + size].copy_(from_bytes[place:place + size])


def _tensor_metas(meta):
    for path, leaf in zip(meta.paths, meta.non_tensor_leaves, strict=True):
        if isinstance(leaf, _DTensorMeta):
            leaf = leaf.local
        if isinstance(leaf, _TensorMeta):
            yield path, leaf


def sizes_of(meta):
    """Returns the bytes of each tensor of a state."""
    return [leaf.nbytes for _, leaf in _tensor_metas(meta)]


def layout_of(meta):
    """Returns a number that differs between states whose tensors differ in name or shape."""
    words = [(str(path), str(leaf.dtype), tuple(leaf.shape), tuple(leaf.stride),
              leaf.storage_offset, leaf.nbytes) for path, leaf in _tensor_metas(meta)]
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:7], "little")


class Snapshot:
    """A replica's state at a step: not a copy, but the tensors themselves."""

    def __init__(self, state, step):
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # an optimizer's kernels may still write
        meta, self.tensors = _prepare_state_dict(state, step, torch.device("cpu"))
        self.step = step
        self.layout = layout_of(meta)
        self.cut = Cut([tensor.numel() for tensor in self.tensors])
        self.manifest = torch.frombuffer(bytearray(pickle.dumps(meta)), dtype=torch.uint8)
