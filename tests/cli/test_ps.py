"""`thalweg ps` with the workers of examples/ps_regression."""
import subprocess

import pytest

from test_run import PROGRAM, ROOT

WORKER = ROOT / "build/release/examples/ps_regression"


@pytest.mark.parametrize("settings", [
    "mode: synchronous\nrate: 0.5\n",
    "mode: asynchronous\noptimizer: momentum\nrate: 0.05\n",
    "mode: stale\nstaleness: 2\noptimizer: adam\nrate: 0.05\n",
])
def test_workers_fit_a_line(tmp_path, settings):
    config = tmp_path / "ps.yaml"
    config.write_text("listen: 127.0.0.1:0\nworkers: 3\n" + settings)
    server = subprocess.Popen([PROGRAM, "ps", "--config", config], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[1]
        workers = [subprocess.Popen([WORKER, address, str(w), "2000"], stdout=subprocess.PIPE, text=True)
                   for w in range(3)]
        lines = [worker.communicate(timeout=60)[0].split() for worker in workers]
    finally:
        server.terminate()
        assert server.wait(timeout=10) == 0
    for line in lines:
        assert abs(float(line[2]) - 3) < 0.1 and abs(float(line[4]) + 1) < 0.1, lines


@pytest.mark.parametrize("text, error", [
    ("listen: 127.0.0.1:0", "workers"),
    ("workers: 0", "'workers'"),
    ("workers: 1\nmode: lazy", "synchronous, asynchronous, stale"),
    ("workers: 1\noptimizer: newton", "sgd, momentum, adam"),
    ("workers: 1\nmomentum: 2", "'momentum'"),
])
def test_bad_configuration(thalweg, tmp_path, text, error):
    config = tmp_path / "ps.yaml"
    config.write_text(text + "\n")
    answer = thalweg("ps", "--config", config)
    assert answer.code == 2 and error in answer.err
