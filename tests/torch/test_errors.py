"""Exceptions by kind: their class, code and rank, from PyTorch's calls and from those on arrays."""
import os
import pickle
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn

import thalweg

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("Timeout", "PeerLost", "Mismatch", "BadArgument", "Cancelled", "NoResource", "InternalError")


def kind_of(call):
    """The class, code and rank of the error of a call, which must be one that PyTorch knows."""
    try:
        call()
    except thalweg.Error as error:
        assert isinstance(error, dist.DistBackendError) and isinstance(error, RuntimeError)
        return type(error).__name__, error.code, error.rank
    return None


def test_a_rank_that_dies__is_lost_wherever_the_others_wait_for_it():
    def body(rank, size):
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        model(torch.ones(2, 4)).sum().backward()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        backward = kind_of(lambda: model(torch.ones(2, 4)).sum().backward())
        work = dist.all_reduce(torch.zeros(1000), async_op=True)
        return [backward, kind_of(work.wait), kind_of(lambda: work.get_future().wait()), kind_of(dist.barrier)]

    assert run_ranks(2, body, dies=[1])[0] == [("PeerLost", "peer lost", 1)] * 4


def test_a_rank_that_does_not_call__is_blamed_for_the_timeout():
    def body(rank, size):
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank == 1:
            time.sleep(2)
            return None
        work = dist.all_reduce(torch.zeros(1000), async_op=True)
        return kind_of(lambda: dist.all_reduce(torch.zeros(1000), group=group)), kind_of(
            lambda: work.wait(timedelta(milliseconds=20)))

    assert run_ranks(2, body)[0] == (("Timeout", "timeout", 1), ("Timeout", "timeout", None))


def test_calls_that_differ__are_a_mismatch_on_both_ranks():
    def body(rank, size):
        return kind_of(lambda: dist.all_reduce(torch.zeros(10 + rank)))

    assert run_ranks(2, body) == [("Mismatch", "mismatch", None)] * 2


def test_own_abort__cancels_what_is_in_flight():
    def body(rank, size):
        if rank == 1:
            time.sleep(1)
            return None
        work = dist.all_reduce(torch.zeros(1000), async_op=True)
        dist.distributed_c10d._abort_process_group()
        return kind_of(work.wait)

    assert run_ranks(2, body)[0] == ("Cancelled", "cancelled", None)


def test_options_that_make_no_sense__are_bad_arguments():
    def body(rank, size):
        options = thalweg.Options(scheme="nosuch")
        try:
            dist.new_group(pg_options=options)
        except ValueError as error:
            return type(error).__name__, error.code, "nosuch" in str(error)

    assert run_ranks(2, body) == [("BadArgument", "bad argument", True)] * 2


ARRAYS = """
import os, sys, time
import numpy as np
import thalweg

def kind_of(call):
    try:
        call()
    except thalweg.Error as error:
        return type(error).__name__, error.code, error.rank
    return None

rank = thalweg.rank()
assert kind_of(lambda: thalweg.allreduce(np.ones(3), op="xor")) == ("BadArgument", "bad argument", None)
assert kind_of(lambda: thalweg.broadcast(np.ones(3), root=7)) == ("BadArgument", "bad argument", None)
differing = thalweg.Communicator(group="differing")
found = kind_of(lambda: differing.allreduce(np.ones(3 + rank)))
assert found == ("Mismatch", "mismatch", None), found
waiting = thalweg.Communicator(group="waiting", timeout=1)
if rank == 1:
    time.sleep(2)
else:
    found = kind_of(waiting.barrier)
    assert found == ("Timeout", "timeout", 1), found
waiting.close()
assert kind_of(waiting.barrier) == ("Cancelled", "cancelled", None)
thalweg.barrier()
if rank == 1:
    os._exit(0)  # without a word to the other rank; the launcher would end both if it failed
found = kind_of(lambda: thalweg.allreduce(np.ones(3)))
assert found == ("PeerLost", "peer lost", 1), found
assert "torch" not in sys.modules
print("fine", flush=True)
"""


def test_arrays__the_same_kinds_without_pytorch():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0"}
    done = subprocess.run([ROOT / "build/release/thalweg", "run", "-n", "2", "--", sys.executable, "-c", ARRAYS],
                          env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and done.stdout.count("fine") == 1, done.stdout + done.stderr


def test_parameter_server__that_is_not_there_is_lost():
    from thalweg._ps import Client

    with pytest.raises(thalweg.PeerLost, match="cannot connect"):
        Client("127.0.0.1:1", 0, timeout_s=0.1)
    with pytest.raises(ValueError, match="seconds above 0") as refused:
        Client("127.0.0.1:1", 0, timeout_s=0)
    assert isinstance(refused.value, thalweg.BadArgument)


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("name", KINDS)
def test_every_class__goes_to_another_process_and_back(name, rank):
    from thalweg.errors import class_of

    known = getattr(thalweg, name)
    error = pickle.loads(pickle.dumps(class_of(known.code, rank)("words")))
    assert isinstance(error, known) and isinstance(error, thalweg.Error)
    assert (type(error).__name__, error.rank, str(error)) == (name, rank, "words")
    assert isinstance(error, ValueError) == (name == "BadArgument")
