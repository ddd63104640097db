"""Runs the examples with the commands in their first lines."""
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


def test_zero__every_rank_has_a_part_of_the_optimizers_state():
    text = torchrun("examples/zero_digits.py", "--backend", "thalweg", "--epochs", "5")
    right, first, second = map(float, re.search(r"([0-9.]+)% of the test images right; .* hold (\d+)%, (\d+)%", text).groups())
    assert right > 97 and 0 < first < 100 and 99 <= first + second <= 101, text


def test_digits__with_auto_say_what_was_chosen():
    text = torchrun("examples/ddp_digits.py", "--backend", "thalweg", "--auto", "--epochs", "6")
    assert float(re.search(r"([0-9.]+)% of the test images right", text).group(1)) > 97, text
    [line] = [line for line in text.splitlines() if line.startswith("auto: ")]
    # On a busy machine times may have changed a moment ago, and trials go on.
    assert re.match(r"auto: allreduce of float32, sum, \w+ to \w+: [a-z-]+ over tcp \((mean of trials on the slowest rank: "
                    r".* ms|the best so far).*; \d+ trials in \d+ ms, \d+ ms more than by the fastest\)$", line), line


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/net/tun"), reason="a testbed needs root and /dev/net/tun")
def test_digits__on_two_hosts_as_the_first_page_says():
    """The lines of README.md, each on a host of a testbed, with the first host's address for its name."""
    lines = re.findall(r"^torchrun (--nnodes 2 .*?) *#", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 2, lines
    testbed, name = [ROOT / "build/release/thalweg", "testbed"], ["--name", f"torchrun{os.getpid()}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "tw0"}
    subprocess.run([*testbed, "up", "single-switch:hosts=2,host=100M,delay=50us", *name], check=True, timeout=60,
                   capture_output=True)
    hosts = []
    try:
        for host, line in enumerate(lines):
            words = line.replace("node1", "10.77.0.1").split()
            hosts.append(subprocess.Popen([*testbed, "exec", str(host), *name, "--", sys.executable, "-m", "torch.distributed.run",
                                           *words, "--epochs", "1"], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
        texts = [one.communicate(timeout=400)[0] for one in hosts]
    finally:
        for one in hosts:
            one.kill()
        subprocess.run([*testbed, "down", *name], check=False, timeout=60, capture_output=True)
    assert [one.returncode for one in hosts] == [0, 0], texts
    assert "of the test images right" in "".join(texts), texts


def test_language_model__learns():
    text = torchrun("examples/char_lm.py", "--loss-bound", "0.01", "--steps", "100")
    before, after = map(float, re.search(r"([0-9.]+) bits a character before, ([0-9.]+) after", text).groups())
    assert after < 0.8 * before, text


def test_a_program_that_just_ends__ends_well(tmp_path):
    """The program does not call destroy_process_group(), and does not wait for all works."""
    program = tmp_path / "program.py"
    program.write_text("import torch, thalweg, torch.distributed as dist\n"
                       "dist.init_process_group('thalweg')\n"
                       "works = [dist.all_reduce(torch.ones(1000 * i), async_op=True) for i in range(50)]\n"
                       "works[-1].wait()\n"
                       "print('fine', flush=True)\n")
    assert torchrun(str(program)).count("fine") == 2


def test_metrics__of_all_groups_of_a_process_at_its_own_port(tmp_path, monkeypatch):
    """The rank comes from the backend, the local rank still from the launcher."""
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
