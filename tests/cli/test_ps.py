"""`thalweg ps` with the workers of examples/ps_regression."""
import os
import subprocess

import pytest

from test_run import PROGRAM, ROOT

WORKER = ROOT / "build/release/examples/ps_regression"


@pytest.mark.parametrize("settings", [
    "mode: synchronous\nrate: 0.5\n",
    "mode: asynchronous\noptimizer: momentum\nrate: 0.05\n",
    "mode: stale\nstaleness: 2\noptimizer: adam\nrate: 0.01\n",
    "transport: dlcp\nrate: 0.5\n",
    "transport: atp\nrate: 0.5\n",
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


def test_key(thalweg, tmp_path):
    config, key, other = tmp_path / "ps.yaml", tmp_path / "key", tmp_path / "other"
    config.write_text("listen: 127.0.0.1:0\nworkers: 1\nrate: 0.5\n")
    key.write_text("a" * 32)
    other.write_text("b" * 32)
    server = subprocess.Popen([PROGRAM, "ps", "--config", config, "--key-file", key], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[1]

        def work(**variables):
            return subprocess.run([WORKER, address, "0", "200"], capture_output=True, text=True, timeout=60,
                                  env=os.environ | variables)

        assert work(THALWEG_KEY_FILE=str(key)).returncode == 0
        without = work()
        assert without.returncode != 0 and "the server holds a key" in without.stderr
        wrong = work(THALWEG_KEY_FILE=str(other))
        assert wrong.returncode != 0 and "wrong key" in wrong.stderr
    finally:
        server.terminate()
        assert server.wait(timeout=10) == 0
    missing = thalweg("ps", "--config", config, "--key-file", tmp_path / "nowhere")
    assert missing.code == 2 and "--key-file" in missing.err


@pytest.mark.parametrize("text, error", [
    ("listen: 127.0.0.1:0", "workers"),
    ("workers: 0", "'workers'"),
    ("workers: 1\nmode: lazy", "synchronous, asynchronous, stale"),
    ("workers: 1\noptimizer: newton", "sgd, momentum, adam"),
    ("workers: 1\nmomentum: 2", "'momentum'"),
    ("workers: 1\ntransport: rdma", "tcp, dlcp, atp"),
    ("workers: 1\ntransport: atp\nmode: asynchronous", "tcp or dlcp"),
    ("workers: 33\ntransport: atp", "up to 32"),
    ("workers: 1\npush_loss: 0.1", "for dlcp"),
    ("workers: 1\ntransport: dlcp\npush_loss: 0.1\npull_loss: 0.2", "'pull_loss': 0.2"),
    ("workers: 1\ntransport: dlcp\npush_loss: 1", "'push_loss'"),
    ("workers: 1\nswitch: 127.0.0.1:7700", "for atp"),
    ("workers: 1\ntransport: atp\nswitch: here", "'switch'"),
    ("workers: 1\ntransport: atp\nelements: 0", "'elements'"),
    ("workers: 1\nelements: 64", "'elements' is for atp"),
    ("workers: 1\ntransport: dlcp\ntoken: x", "'token' is for atp"),
])
def test_bad_configuration(thalweg, tmp_path, text, error):
    config = tmp_path / "ps.yaml"
    config.write_text(text + "\n")
    answer = thalweg("ps", "--config", config)
    assert answer.code == 2 and error in answer.err


def test_an_address_that_cannot_be_told_is_an_error(tmp_path):
    config = tmp_path / "ps.yaml"
    config.write_text("listen: 127.0.0.1:0\nworkers: 1\n")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([PROGRAM, "ps", "--config", config], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 2 and "standard output" in done.stderr


def test_bytes_that_reach_the_server_over_each_transport(namespaces):
    done = subprocess.run([ROOT / "examples/ps_bytes.sh", "6", "100000"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    part = {line.split(":")[0]: float(line.split("(")[1].split(")")[0]) for line in done.stdout.splitlines()}
    assert part["tcp"] == 1 and part["dlcp"] == 1
    # A third in theory; a busy machine also sends late packets again.
    assert part["atp"] < 0.7
