"""Two hosts whose path silently drops packets above 1280 bytes: DLCP says what to set, and with that it works."""
import re

import pytest
from test_cards import hosts, said_by_ranks  # noqa: F401  a fixture

CARD = "card0"
LIMIT = 1280  # bytes of an IP packet


@pytest.fixture
def narrow_hosts(hosts):
    hosts.spoil(CARD, f"ip length > {LIMIT} counter drop")
    return hosts


def run(hosts, **more):
    """Two ranks that sum 400 kB over DLCP, twice, with a deadline of 3 s. Returns what each said."""
    return said_by_ranks(hosts, 2, 100000, 3, "dlcp", THALWEG_INTERFACE=CARD, **more)[0]


def test_dlcp__says_what_to_set_and_works_with_it(narrow_hosts):
    advice = set()
    for text in run(narrow_hosts):
        words = re.search(r"not over within 3\.00 s: packets with 1400 bytes of data from rank [01] do not arrive, though its "
                          r"signals do: if the path drops large packets, set THALWEG_DLCP_PAYLOAD=(\d+) on all ranks$", text,
                          re.MULTILINE)
        assert words and "hangs" not in text and "waits for" not in text, text
        advice.add(words[1])
    [payload] = advice
    for text in run(narrow_hosts, THALWEG_DLCP_PAYLOAD=payload):
        assert len(re.findall("2 ranks, sum 2$", text, re.MULTILINE)) == 2, text
    assert narrow_hosts.spoiled() > 0
