"""Two hosts whose path silently drops packets above 1280 bytes: DLCP says what to set, and with that it works."""
import re
import subprocess

import pytest
from test_cards import PROGRAM, Hosts, variables

CARD = "card0"
LIMIT = 1280  # bytes of an IP packet


@pytest.fixture
def hosts(namespaces):
    made = Hosts()
    try:
        made.up()
        for host in range(2):
            # The card cuts nothing, so every packet has the size that it has on a cable.
            made.inside(host, "ethtool", "-K", CARD, "tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
            made.inside(host, "nft", f"add table netdev cut; add chain netdev cut in {{ type filter hook ingress device {CARD} "
                        f"priority 0 ; }}; add rule netdev cut in ip length > {LIMIT} counter drop")
        yield made
    finally:
        made.down()


def run(hosts, **more):
    """Two ranks that sum 400 kB over DLCP, twice, with a deadline of 3 s. Returns what each said."""
    ranks = [subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], PROGRAM, "2", "100000", "3", "dlcp"], text=True,
                              env=variables(rank, THALWEG_INTERFACE=CARD, **more), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) for rank in range(2)]
    try:
        return [rank.communicate(timeout=60)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_dlcp__says_what_to_set_and_works_with_it(hosts):
    advice = set()
    for text in run(hosts):
        words = re.search(r"not over within 3\.00 s: packets with 1400 bytes of data from rank [01] do not arrive, though its "
                          r"signals do: if the path drops large packets, set THALWEG_DLCP_PAYLOAD=(\d+) on all ranks$", text,
                          re.MULTILINE)
        assert words and "hangs" not in text and "waits for" not in text, text
        advice.add(words[1])
    [payload] = advice
    for text in run(hosts, THALWEG_DLCP_PAYLOAD=payload):
        assert len(re.findall("2 ranks, sum 2$", text, re.MULTILINE)) == 2, text
    assert int(re.search(r"packets (\d+)", hosts.inside(0, "nft", "list", "table", "netdev", "cut"))[1]) > 0
