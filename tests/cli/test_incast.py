"""examples/incast over loopback: DLCP with and without receiver grants, and TCP."""
import random
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/examples/incast"


def free_pair():
    """A port of 127.0.0.1 that is free, as is the one above it."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@pytest.mark.parametrize("over", ["grants", "dlcp", "tcp"])
def test_incast__every_tensor_arrives_and_only_grants_grant(over):
    address = f"127.0.0.1:{free_pair()}"
    options = ["--over", over, "--floats", "20000", "--rounds", "3", "--line-rate", "1"]
    receiver = subprocess.Popen([PROGRAM, "recv", address, "--senders", "3", *options], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    senders = [subprocess.Popen([PROGRAM, "send", address, *options], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT) for _ in range(3)]
    try:
        said = receiver.communicate(timeout=60)[0]
        told = [sender.communicate(timeout=60)[0] for sender in senders]
    finally:
        for process in [receiver, *senders]:
            process.kill()
    assert [process.returncode for process in [receiver, *senders]] == [0] * 4, (said, told)
    rounds = [[float(word) for word in line.split()] for line in said.splitlines()[:-1]]
    assert [len(times) for times in rounds] == [3] * 3
    received, unused, grants = map(int, said.splitlines()[-1].split()[1::2])
    # 58 packets of 1400 bytes from each sender in each round.
    assert received == (0 if over == "tcp" else 3 * 3 * 58)
    assert (grants > 0) == (over == "grants")
    assert unused <= received


def test_incast__a_way_that_is_not_known_is_refused():
    done = subprocess.run([PROGRAM, "send", "127.0.0.1:1", "--over", "pigeons"], text=True,
                          capture_output=True, timeout=10)
    assert done.returncode == 2
    assert done.stderr == "incast: --over: 'pigeons'; dlcp, grants or tcp is allowed\n"
