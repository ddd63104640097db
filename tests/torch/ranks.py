"""Runs the ranks of a process group as processes."""
import faulthandler
import multiprocessing
import os
import socket
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  optimizers load it; here once for all ranks
import torch.distributed as dist  # noqa: E402

import thalweg  # noqa: E402  registers the backend

SECONDS = 90  # several times as long as any test takes, even on a busy machine


def _run(body, rank, size, store, init, environment, seconds, pipe):
    # A file store is deleted when no process has it open. The barrier keeps a fast rank from finishing, and so deleting it,
    # before another rank has begun.
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    os.environ.update(environment)
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(seconds - 5, exit=True)
    try:
        if init is not None:
            dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=size, **init)
        result = body(rank, size)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((None, result))
    except BaseException:  # noqa: BLE001  the test's process shows it
        pipe.send((traceback.format_exc(), None))


def run_ranks(size, body, options=None, environment=None, dies=(), grouped=True, backend="thalweg", method="fork",
              seconds=SECONDS):
    """Returns what body(rank, size) returns on each rank of a new group, and raises the error of any rank. Ranks in `dies`
    may die and return nothing. If not grouped, the body makes the process group itself. A process that has used CUDA cannot
    be forked: use method="spawn" and a body at module level."""
    start = multiprocessing.get_context(method)
    init = {"backend": backend, "pg_options": options} if grouped else None
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        processes, pipes = [], []
        for rank in range(size):
            ours, theirs = start.Pipe(duplex=False)
            process = start.Process(target=_run,
                                    args=(body, rank, size, store, init, environment or {}, seconds, theirs))
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            return [_result(rank, pipe, rank in dies, seconds) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(1)
                process.kill()
                process.join()


def _result(rank, pipe, dies, seconds):
    if not pipe.poll(seconds):
        raise TimeoutError(f"rank {rank} has not ended within {seconds} s")
    try:
        error, result = pipe.recv()
    except EOFError:
        assert dies, f"rank {rank} died"
        return None
    assert error is None, f"rank {rank}: {error}"
    return result


def two_free_ports():
    """The first of two consecutive free ports."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
