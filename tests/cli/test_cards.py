"""Two hosts with two cards each: one cable dies amid allreduces, and is used again when it is back."""
import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/examples/allreduce"
CARDS = ("card0", "card1")
ITERATIONS = 10**6
SUM = re.compile(r"iteration \d+: 2 ranks, sum 2$")


class Hosts:
    """Two namespaces with a cable from each card of one to the same card of the other."""

    def __init__(self):
        tag = uuid.uuid4().hex[:6]
        self.names = [f"tw{tag}{i}" for i in range(2)]

    def inside(self, host, *command):
        return subprocess.run(["ip", "netns", "exec", self.names[host], *command], check=True, capture_output=True, text=True).stdout

    def up(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        for number, card in enumerate(CARDS):
            subprocess.run(["ip", "link", "add", card, "netns", self.names[0], "type", "veth", "peer", "name", card,
                            "netns", self.names[1]], check=True)
            for host in range(2):
                self.inside(host, "ip", "addr", "add", f"10.79.{number}.{host + 1}/24", "dev", card)
                self.inside(host, "ip", "link", "set", card, "up")
                self.inside(host, "tc", "qdisc", "add", "dev", card, "root", "tbf", "rate", "200mbit", "burst", "64kb",
                            "latency", "50ms")
        for host in range(2):
            self.inside(host, "ip", "link", "set", "lo", "up")

    def down(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def sent(self, card):
        return int(self.inside(1, "cat", f"/sys/class/net/{card}/statistics/tx_bytes"))

    def cut(self, card, how):
        if how == "link":
            self.inside(1, "ip", "link", "set", card, "down")
        else:
            self.inside(1, "nft", f"add table netdev cut; add chain netdev cut in {{ type filter hook ingress device {card} "
                        "priority 0 ; policy drop ; }")

    def spoil(self, card, rule):
        """A rule of nftables for each packet that arrives by this card, as large as on a cable: nothing cuts it, puts it
        together with others or verifies it."""
        for host in range(2):
            self.inside(host, "ethtool", "-K", card, "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
            self.inside(host, "nft", f"add table netdev bad; add chain netdev bad in {{ type filter hook ingress device {card} "
                        f"priority 0 ; }}; add rule netdev bad in {rule}")

    def spoiled(self):
        """How many packets the rule has met, if it counts them."""
        tables = [self.inside(host, "nft", "list", "table", "netdev", "bad") for host in range(2)]
        return sum(int(re.search(r"counter packets (\d+)", table)[1]) for table in tables)

    def mend(self, card, how):
        if how == "link":
            self.inside(1, "ip", "link", "set", card, "up")
        else:
            self.inside(1, "nft", "delete table netdev cut")


@pytest.fixture
def hosts(namespaces):
    made = Hosts()
    try:
        made.up()
        yield made
    finally:
        made.down()


def said_by_ranks(hosts, *words, **more):
    """Runs the program on both hosts. Returns what each said, and their exit codes."""
    ranks = [subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], PROGRAM, *map(str, words)], text=True,
                              env=variables(rank, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return said, [rank.returncode for rank in ranks]


def variables(rank, **more):
    return {**os.environ, "THALWEG_RANK": str(rank), "THALWEG_SIZE": "2", "THALWEG_STORE": "10.79.0.1:7001",
            "THALWEG_INTERFACE": ",".join(CARDS), "THALWEG_DEBUG": "WARN", "THALWEG_METRICS": f"127.0.0.1:{7100 + rank}", **more}


class Job:
    """Two ranks that sum 1 MB again and again; their lines go to files."""

    def __init__(self, hosts, folder, **environment):
        self.files = [folder / f"rank{rank}" for rank in range(2)]
        self.ranks = []
        for rank, file in enumerate(self.files):
            self.ranks.append(subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], PROGRAM, str(ITERATIONS), "250000", "60"],
                                               env=variables(rank, **environment), stdout=file.open("w"), stderr=subprocess.STDOUT))

    def sums(self):
        return [sum(SUM.search(line) is not None for line in file.read_text().splitlines()) for file in self.files]

    def wait_for(self, what, seconds=40):
        """Waits until the condition holds. No rank may end, and no line may say anything but a right sum or a moved stream."""
        until = time.monotonic() + seconds
        while not what():
            assert all(rank.poll() is None for rank in self.ranks), self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.05)
        lines = [line for file in self.files for line in file.read_text().splitlines()[:-1]]
        strange = [line for line in lines if not SUM.search(line) and "stream by" not in line]
        assert not strange, strange

    def wait_for_sums(self, more):
        wanted = min(self.sums()) + more
        self.wait_for(lambda: min(self.sums()) >= wanted)

    def text(self):
        return "\n".join("\n".join(file.read_text().splitlines()[-20:]) for file in self.files)

    def end(self):
        for rank in self.ranks:
            rank.send_signal(signal.SIGKILL)
            rank.wait()


@pytest.mark.parametrize("card, how, key", [("card1", "link", False), ("card0", "silent", False), ("card0", "link", True)])
def test_a_cable_dies_and_returns(hosts, tmp_path, card, how, key):
    environment = {}
    if key:
        (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
        (tmp_path / "key").chmod(0o600)
        environment = {"THALWEG_KEY_FILE": str(tmp_path / "key")}
    other = CARDS[1 - CARDS.index(card)]
    job = Job(hosts, tmp_path, **environment)
    try:
        job.wait_for_sums(10)
        assert hosts.sent(card) > 2**20 and hosts.sent(other) > 2**20
        hosts.cut(card, how)
        job.wait_for_sums(20)
        words = job.files[1].read_text()
        # A card that is down has no name there.
        assert re.search(rf"nothing passes by the stream by interface .*10\.79\.{CARDS.index(card)}\.2", words)
        assert f"goes on by the stream by interface {other}" in words
        # With a key the metrics are for those who have its token.
        token = subprocess.run([ROOT / "build/release/thalweg", "top", "--print-token", "--key-file", environment["THALWEG_KEY_FILE"]],
                               capture_output=True, text=True, check=True).stdout.strip() if key else ""
        request = rf"GET /metrics HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n"
        metrics = hosts.inside(1, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/7101; printf '{request}' >&3; cat <&3")
        assert int(re.search(r"thalweg_streams_moved_total{rank=\"1\"} (\d+)", metrics)[1]) >= 1
        hosts.mend(card, how)
        before = hosts.sent(card)
        job.wait_for(lambda: hosts.sent(card) > before + 2**22)
        assert f"goes on by the stream by interface {card}" in job.files[1].read_text()
        job.wait_for_sums(5)
    finally:
        job.end()


def test_a_card_that_is_dead_from_the_start__the_debug_log_says_who_is_tried_again(hosts):
    """The store is reached by the other card. Every rank says what it has, and the one that connects what it tried."""
    first = ",".join(reversed(CARDS))
    hosts.cut("card1", "silent")
    said, codes = said_by_ranks(hosts, 3, 1000, 60, THALWEG_INTERFACE=first, THALWEG_DEBUG="INFO")
    for rank, text in enumerate(said):
        assert codes[rank] == 0 and len(re.findall("2 ranks, sum 2$", text, re.MULTILINE)) == 3, text
        assert f"[{rank}] INFO: interfaces card1, card0" in text, text
    assert re.search(r"\[1\] INFO: rank 0 is not reached yet, and is tried again: .*10\.79\.1\.1", said[1]), said[1]
    assert re.search(r"\[1\] INFO: rank 0: connected, 10\.79\.0\.2:", said[1]), said[1]
