"""Two hosts with a cable that changes bytes, behind the checksums of Ethernet, IP and TCP: the cards verify none of them."""
import re

import pytest
from test_cards import hosts, said_by_ranks  # noqa: F401  a fixture

CARD = "card0"
ITERATIONS = 40
ELEMENTS = 50_000
# Two bytes, 512 bytes behind the start of the transport's header: payload of every large packet.
CHANGES = "numgen random mod 200 == 0 ip length > 700 @th,4096,16 set 0x4242 counter"


@pytest.fixture
def bad_hosts(hosts):
    hosts.spoil(CARD, CHANGES)
    return hosts


def run(hosts, transport, **more):
    """Two ranks that check every sum. Returns how many packets were changed, and what the ranks said."""
    before = hosts.spoiled()
    said, _ = said_by_ranks(hosts, ITERATIONS, ELEMENTS, 8, transport, THALWEG_INTERFACE=CARD, **more)
    return hosts.spoiled() - before, said


def sums(said):
    return [len(re.findall("2 ranks, sum 2$", text, re.MULTILINE)) for text in said]


@pytest.mark.parametrize("key", [False, True])
def test_tcp__a_call_fails_and_no_sum_is_wrong(bad_hosts, tmp_path, key):
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "key").chmod(0o600)
    spoiled, said = run(bad_hosts, "tcp", **({"THALWEG_KEY_FILE": str(tmp_path / "key")} if key else {}))
    assert spoiled > 0 and not any("instead of" in text for text in said), said
    assert all("bytes changed on the way" in text for text in said), said


def test_dlcp__every_sum_is_right(bad_hosts):
    spoiled, said = run(bad_hosts, "dlcp")
    assert spoiled > 20 and sums(said) == [ITERATIONS, ITERATIONS], said


def test_without_checks__sums_are_wrong(bad_hosts):
    """The cable does change what ranks send."""
    for transport in ("tcp", "dlcp"):
        spoiled, said = run(bad_hosts, transport, THALWEG_CHECKSUM="0")
        assert spoiled > 0 and any("instead of" in text for text in said), said
