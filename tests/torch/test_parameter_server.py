"""PyTorch models on a parameter server, whose mode makes the training BSP, ASP or SSP."""
import contextlib
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import ROOT, run_ranks
from torch import nn

from thalweg.parameter_server import ParameterServer


@contextlib.contextmanager
def server(**config):
    """Runs `thalweg ps` and returns its address."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ps.yaml"
        file.write_text("".join(f"{key}: {value}\n" for key, value in {"listen": "127.0.0.1:0", **config}.items()))
        process = subprocess.Popen([ROOT / "build/release/thalweg", "ps", "--config", file], stdout=subprocess.PIPE,
                                   text=True)
        try:
            yield re.search(r"[0-9.]+:[0-9]+", process.stdout.readline()).group(0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def fit(address, rank, steps):
    """Fits a line to this worker's points. They suffice without the others', which may be done before this worker begins."""
    torch.manual_seed(rank)
    model = nn.Linear(1, 1)
    trainer = ParameterServer(model, address, worker=rank, timeout=20.0)
    x = torch.linspace(-1, 1, 10 + rank)[:, None]
    for _ in range(steps):
        (model(x) - (3 * x - 1)).square().mean().backward()
        trainer.step()
    return model.weight.item(), model.bias.item()


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "stale"])
def test_three_workers__learn_one_model(mode):
    with server(workers=3, mode=mode, rate=0.3) as address:
        for weight, bias in run_ranks(3, lambda rank, _size: fit(address, rank, 200), grouped=False):
            assert weight == pytest.approx(3, abs=0.1) and bias == pytest.approx(-1, abs=0.1)


def test_stale__none_is_further_ahead_than_allowed():
    def body(rank, _size):
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        model = nn.Linear(1, 1)
        trainer = ParameterServer(model, address, worker=rank, timeout=5.0 if rank == 0 else 60.0)
        store.set(f"connected{rank}", "1")
        if rank == 1:  # delays the other rank
            store.wait(["seen"])
            return None
        store.wait(["connected1"])
        try:
            for _ in range(5):
                model(torch.ones(1, 1)).sum().backward()
                trainer.step()
        except RuntimeError:
            pass
        store.set("seen", "1")
        return trainer.iteration

    port = (keeper := dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)).port
    with server(workers=2, mode="stale", staleness=2) as address:
        assert run_ranks(2, body, grouped=False)[0] == 2
    del keeper


def test_other_types__are_refused_before_a_server_is_asked():
    with pytest.raises(TypeError, match="weight: torch.float64 on cpu; a server takes float32"):
        ParameterServer(nn.Linear(1, 1).double(), "127.0.0.1:1", worker=0)
