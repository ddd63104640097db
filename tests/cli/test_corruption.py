"""Two hosts with a cable that changes bytes, behind the checksums of Ethernet, IP and TCP: the cards verify none of them."""
import re
import subprocess

import pytest
from test_cards import PROGRAM, Hosts, variables

CARD = "card0"
ITERATIONS = 40
ELEMENTS = 50_000
# Two bytes, 512 bytes behind the start of the transport's header: payload of every large packet.
CHANGES = "numgen random mod 200 == 0 ip length > 700 @th,4096,16 set 0x4242 counter"


@pytest.fixture
def hosts(namespaces):
    made = Hosts()
    try:
        made.up()
        for host in range(2):
            # No packet is put together with others, and none is checked when it arrives.
            made.inside(host, "ethtool", "-K", CARD, "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
            made.inside(host, "nft", f"add table netdev bad; add chain netdev bad in {{ type filter hook ingress device {CARD} "
                        f"priority 0 ; }}; add rule netdev bad in {CHANGES}")
        yield made
    finally:
        made.down()


def run(hosts, transport, **more):
    """Two ranks that check every sum. Returns how many packets were changed, and what the ranks said."""
    before = changed(hosts)
    words = [str(ITERATIONS), str(ELEMENTS), "8", transport]
    ranks = [subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], PROGRAM, *words], text=True,
                              env=variables(rank, THALWEG_INTERFACE=CARD, **more), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return changed(hosts) - before, said


def changed(hosts):
    tables = [hosts.inside(host, "nft", "list", "table", "netdev", "bad") for host in range(2)]
    return sum(int(re.search(r"counter packets (\d+)", table)[1]) for table in tables)


def sums(said):
    return [len(re.findall("2 ranks, sum 2$", text, re.MULTILINE)) for text in said]


@pytest.mark.parametrize("key", [False, True])
def test_tcp__a_call_fails_and_no_sum_is_wrong(hosts, tmp_path, key):
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "key").chmod(0o600)
    spoiled, said = run(hosts, "tcp", **({"THALWEG_KEY_FILE": str(tmp_path / "key")} if key else {}))
    assert spoiled > 0 and not any("instead of" in text for text in said), said
    assert all("bytes changed on the way" in text for text in said), said


def test_dlcp__every_sum_is_right(hosts):
    spoiled, said = run(hosts, "dlcp")
    assert spoiled > 20 and sums(said) == [ITERATIONS, ITERATIONS], said


def test_without_checks__sums_are_wrong(hosts):
    """The cable does change what ranks send."""
    for transport in ("tcp", "dlcp"):
        spoiled, said = run(hosts, transport, THALWEG_CHECKSUM="0")
        assert spoiled > 0 and any("instead of" in text for text in said), said
