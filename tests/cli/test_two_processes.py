"""examples/two_processes between two network namespaces that lose 1 % of all packets."""
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/examples/two_processes"


@pytest.fixture
def lossy_pair(namespaces):
    """Two namespaces over veth, 10.78.0.1 and 10.78.0.2, always removed again."""
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
            # Cuts runs into single packets; otherwise a run would be lost as a whole.
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
    # Without any loss the test would show nothing.
    assert min(fractions) < 100


def test_namespaces_with_loss_exact(lossy_pair):
    prefixes = [["ip", "netns", "exec", name] for name in reversed(lossy_pair)]
    sender, code, received = run_pair(prefixes, "10.78.0.2:7000", "--bound", "0", "--rounds", "5")
    assert sender.returncode == 0, sender.stderr
    assert code == 0, received
    assert received.count("100.00 % arrived") == 5
    again = [int(line.split()[-3]) for line in sender.stdout.splitlines() if "packets again" in line]
    assert sum(again) > 0


def test_namespaces_with_key_recorded_and_replayed(lossy_pair, thalweg, tmp_path):
    """With a job key, and recordings of both ends, which replay to the same answers."""
    prefixes = [["ip", "netns", "exec", name] for name in reversed(lossy_pair)]
    key = tmp_path / "key"
    key.write_text("00112233445566778899aabbccddeeff\n")
    sender, code, received = run_pair(prefixes, "10.78.0.2:7000", "--bound", "0", "--rounds", "5",
                                      "--key-file", key, "--record", tmp_path)
    assert sender.returncode == 0, sender.stderr
    assert code == 0, received
    # 1500 bytes minus IP and UDP, header and tag, rounded down to a multiple of 8.
    assert "1416 bytes a packet" in received
    sent = thalweg("trace", "replay", tmp_path / "sender-0.dlcp", "--json").json()
    got = thalweg("trace", "replay", tmp_path / "receiver-0.dlcp", "--json").json()
    assert sent["same"] and got["same"] and sent["complete"] and got["complete"]
    assert sent["sends"] == got["receives"] == got["succeeded"] == 5
    assert sent["packets_retransmitted"] > 0
    assert got["packets_placed"] <= got["packets_received"] < sent["packets_sent"]
    assert sent["packets_sent"] == got["packets_placed"] + sent["packets_retransmitted"]


def test_wrong_key(tmp_path):
    keys = [tmp_path / "ours", tmp_path / "theirs"]
    keys[0].write_text("00112233445566778899aabbccddeeff\n")
    keys[1].write_text("00112233445566778899aabbccddeefe\n")
    address = "127.0.0.1:17321"
    receiver = subprocess.Popen([PROGRAM, "recv", address, "--key-file", keys[0]], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        sender = subprocess.run([PROGRAM, "send", address, "--key-file", keys[1]], text=True,
                                capture_output=True, timeout=60)
        assert sender.returncode == 1
        assert "wrong key: the job key that it holds is not ours" in sender.stderr
        told, _ = receiver.communicate(timeout=60)
    finally:
        receiver.kill()
    assert receiver.returncode == 1
    assert "wrong key: the job key that it holds is not ours" in told
    bad = subprocess.run([PROGRAM, "recv", address, "--key-file", tmp_path / "none"], text=True,
                         capture_output=True, timeout=60)
    assert bad.returncode == 1 and "cannot read the job key" in bad.stderr


def test_arguments():
    for words in ([], ["send"], ["push", "x:1"], ["send", "x:1", "--floats"],
                  ["recv", "127.0.0.1:0", "--bound", "x"]):
        assert subprocess.run([PROGRAM, *words], capture_output=True).returncode == 2
    done = subprocess.run([PROGRAM, "recv", "nonsense"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "nonsense" in done.stderr
