"""ns3_peer itself: against arithmetic, and with bad input."""
import json
import subprocess

import pytest
from simulators import ROOT, run_peer

LEAF_SPINE = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G"
DUMBBELL = "tests/validation/scenarios/dumbbell.yaml"


def call(peer, flows, *arguments):
    return subprocess.run([peer, "--flows", flows, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("size,expected_us", [
    (10 * 1460, 13 * 0.12016 + 4),  # the first window: ten packets of 1502 bytes, over four links of 1 us
    (1_000_000, 103.733120),        # slow start from ten segments, by hand
])
def test_one_flow(peer, size, expected_us):
    result = run_peer(peer, f"0 143 {size} 0 0\n", "--topology", LEAF_SPINE)
    # ns-3's Send waits one tick, a picosecond.
    assert result["flows"][0]["fct_s"] * 1e6 == pytest.approx(expected_us, abs=2e-6)
    assert result["drops"] == result["retransmissions"] == result["timeouts"] == 0


def test_paths_are_taken(peer):
    """Two hosts of a rack fill one uplink together or two apart."""
    def slowest(spines):
        lines = "".join(f"{host} {host + 4} 5000000 0 {spine}\n" for host, spine in enumerate(spines))
        result = run_peer(peer, lines, "--topology", "leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=10G",
                          "--transport", "dctcp", "--buffer", "450000B", "--mark", "97500B")
        return max(flow["fct_s"] for flow in result["flows"])

    assert slowest([0, 0]) == pytest.approx(2 * slowest([0, 1]), rel=0.05)


TWO_FLOWS = "0 8 4000000 0\n1 9 4000000 0\n"
DCTCP = ("--topology", DUMBBELL, "--transport", "dctcp", "--buffer", "300p", "--mark", "65p")


def test_dctcp_keeps_the_queue_at_k(peer):
    result = run_peer(peer, TWO_FLOWS, *DCTCP, "--sample", "1us")
    assert result["drops"] == 0
    assert 45 <= result["queue_mean_packets"] <= 70


def test_mends_change_nothing_where_nothing_is_lost(peer):
    mended, stock = run_peer(peer, TWO_FLOWS, *DCTCP), run_peer(peer, TWO_FLOWS, *DCTCP, "--mend", "none")
    assert mended["flows"] == stock["flows"]


def test_same_call_same_result(peer, tmp_path):
    flows = tmp_path / "two.flows"
    flows.write_text(TWO_FLOWS)
    def once():
        result = json.loads(call(peer, flows, *DCTCP).stdout)
        return result["flows"], result["packet_hops"], result["events"]
    assert once() == once()


@pytest.mark.parametrize("text,words", [
    ("", ["0 flows", "allowed"]),
    ("0 1 1000\n", ["line 1", "3 words"]),
    ("0 1 1000 0\n0 99 1000 0\n", ["line 2", "dst", "99"]),
    ("0 1 -5 0\n", ["line 1", "bytes", "-5"]),
    ("0 1 1000 -1\n", ["line 1", "start_us", "-1"]),
    ("3 3 1000 0\n", ["line 1", "to itself"]),
    ("0 1 1000 0 64\n", ["line 1", "spine", "64"]),
])
def test_bad_flows(peer, tmp_path, text, words):
    flows = tmp_path / "bad.flows"
    flows.write_text(text)
    done = call(peer, flows, "--topology", DUMBBELL)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("arguments,word", [
    (("--transport", "vegas"), "vegas"), (("--buffer", "12"), "12"), (("--mark", "65p"), "--mark"),
    (("--rto-min", "10"), "10"), (("--mend", "everything"), "everything"), (("--iw", "0"), "iw"),
    (("--topology", "no/such.yaml"), "no/such.yaml"), (("--unknown",), "unknown"),
])
def test_bad_options(peer, tmp_path, arguments, word):
    flows = tmp_path / "one.flows"
    flows.write_text("0 1 1000 0\n")
    done = call(peer, flows, *arguments)
    assert done.returncode == 2
    assert word in done.stderr


def test_no_such_file(peer):
    done = call(peer, "no/such.flows")
    assert done.returncode == 2
    assert "no/such.flows" in done.stderr
