"""examples/two_processes between two network namespaces that lose 1 % of all packets."""
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/examples/two_processes"


@pytest.fixture
def lossy_pair():
    """Two namespaces over veth, 10.78.0.1 and 10.78.0.2, always removed again."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make network namespaces")
    if missing := [tool for tool in ("ip", "tc", "nft") if shutil.which(tool) is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
    tag = uuid.uuid4().hex[:6]
    names = [f"tw{tag}a", f"tw{tag}b"]

    def inside(i, *command):
        subprocess.run(["ip", "netns", "exec", names[i], *command], check=True, capture_output=True)

    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", "tw0", "netns", names[0], "type", "veth", "peer", "name",
                        "tw0", "netns", names[1]], check=True)
        for i in range(2):
            inside(i, "ip", "addr", "add", f"10.78.0.{i + 1}/24", "dev", "tw0")
            inside(i, "ip", "link", "set", "tw0", "up")
            # Cuts runs of packets, which would be lost as one, into packets.
            inside(i, "tc", "qdisc", "add", "dev", "tw0", "root", "tbf", "rate", "2gbit", "burst",
                   "8kb", "limit", "10mb")
            inside(i, "nft", "add table netdev loss; add chain netdev loss in { type filter hook "
                   "ingress device tw0 priority 0 ; }; add rule netdev loss in numgen random mod "
                   "100 < 1 counter drop")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def run_pair(prefixes, address, *options):
    receiver = subprocess.Popen([*prefixes[0], PROGRAM, "recv", address, *options], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        sender = subprocess.run([*prefixes[1], PROGRAM, "send", address, *options], text=True,
                                capture_output=True, timeout=60)
        received, _ = receiver.communicate(timeout=60)
    finally:
        receiver.kill()
    return sender, receiver.returncode, received


def test_namespaces_with_loss(lossy_pair):
    prefixes = [["ip", "netns", "exec", name] for name in reversed(lossy_pair)]
    sender, code, received = run_pair(prefixes, "10.78.0.2:7000", "--bound", "0.03", "--rounds", "20")
    assert sender.returncode == 0, sender.stderr
    assert code == 0, received
    fractions = [float(line.split()[2]) for line in received.splitlines() if " arrived in " in line]
    assert len(fractions) == 20
    assert all(97 <= fraction <= 100 for fraction in fractions)
    # Something was lost, or nothing was tested.
    assert min(fractions) < 100


def test_namespaces_with_loss_exact(lossy_pair):
    prefixes = [["ip", "netns", "exec", name] for name in reversed(lossy_pair)]
    sender, code, received = run_pair(prefixes, "10.78.0.2:7000", "--bound", "0", "--rounds", "5")
    assert sender.returncode == 0, sender.stderr
    assert code == 0, received
    assert received.count("100.00 % arrived") == 5
    again = [int(line.split()[-3]) for line in sender.stdout.splitlines() if "packets again" in line]
    assert sum(again) > 0


def test_arguments():
    for words in ([], ["send"], ["push", "x:1"], ["send", "x:1", "--floats"],
                  ["recv", "127.0.0.1:0", "--bound", "x"]):
        assert subprocess.run([PROGRAM, *words], capture_output=True).returncode == 2
    done = subprocess.run([PROGRAM, "recv", "nonsense"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "nonsense" in done.stderr
