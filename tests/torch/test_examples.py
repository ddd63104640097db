"""The examples as they are written in their first lines."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import two_free_ports

ROOT = Path(__file__).resolve().parents[2]


def torchrun(*words, ranks=2):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
                   "PYTHONFAULTHANDLER": "1"}
    run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                          *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("words", [
    ["examples/ddp_digits.py", "--backend", "thalweg", "--loss-bound", "0.05",
     "--epochs", "6"],
    ["examples/fsdp_digits.py", "--backend", "thalweg", "--epochs", "6"],
])
def test_digits__above_97_percent(words):
    text = torchrun(*words)
    assert float(re.search(r"([0-9.]+)% of the test images right", text).group(1)) > 97, text


def test_language_model__learns():
    text = torchrun("examples/char_lm.py", "--loss-bound", "0.01", "--steps", "100")
    before, after = map(float, re.search(r"([0-9.]+) bits a character before, ([0-9.]+) after", text).groups())
    assert after < 0.8 * before, text


def test_a_program_that_just_ends__ends_well(tmp_path):
    """Without destroy_process_group(), and with works that nobody has waited for."""
    program = tmp_path / "program.py"
    program.write_text("import torch, thalweg, torch.distributed as dist\n"
                       "dist.init_process_group('thalweg')\n"
                       "works = [dist.all_reduce(torch.ones(1000 * i), async_op=True) for i in range(50)]\n"
                       "works[-1].wait()\n"
                       "print('fine', flush=True)\n")
    assert torchrun(str(program)).count("fine") == 2


def test_metrics__of_all_groups_of_a_process_at_its_own_port(tmp_path, monkeypatch):
    """The backend says each rank's number itself; its place on the host is still the launcher's."""
    port = two_free_ports()
    monkeypatch.setenv("THALWEG_METRICS", f":{port}")
    program = tmp_path / "program.py"
    program.write_text("import torch, thalweg, torch.distributed as dist, urllib.request\n"
                       "dist.init_process_group('thalweg')\n"
                       "group = dist.new_group([0, 1])\n"
                       "dist.all_reduce(torch.ones(8))\n"
                       "dist.all_reduce(torch.ones(8), group=group)\n"
                       "rank = dist.get_rank()\n"
                       f"text = urllib.request.urlopen(f'http://127.0.0.1:{{{port} + rank}}', timeout=60).read().decode()\n"
                       "assert f'operations_total{{rank=\"{rank}\",call=\"allreduce\"}} 2' in text, text\n"
                       "dist.barrier()\n"
                       "print('fine', flush=True)\n")
    assert torchrun(str(program)).count("fine") == 2
