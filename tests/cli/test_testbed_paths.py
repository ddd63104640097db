"""Several routes of equal cost between two racks of a testbed: ports spread over them, and so do DLCP and ATP."""
import os
import subprocess

from test_run import wait_until
from test_testbed import NAME, PROGRAM, ROOT, bed, needs_namespaces, send, stats, up  # noqa: F401

pytestmark = needs_namespaces

RACKS = "leaf-spine:racks=2,hosts=2,spines=2,host=40M,uplink=20M,delay=100us"
SUM = ROOT / "build/release/examples/atp_sum"


def uplinks():
    """Bytes from each leaf to each spine."""
    return {(arc["from"], link["name"].replace(arc["from"], "").strip("-")): arc["bytes"]
            for link in stats()["links"] for arc in link["arcs"]
            if arc["from"].startswith("leaf") and "spine" in link["name"]}


def parts(before, after, leaf):
    """The part of what left this leaf that took each spine."""
    sent = {spine: after[one, spine] - before[one, spine] for one, spine in after if one == leaf}
    return {spine: count / max(1, sum(sent.values())) for spine, count in sent.items()}


def run(*words, paths=None, streams=None):
    """Sums on all hosts; the program compares every sum with the serial one."""
    environment = dict(os.environ)
    for name, number in (("THALWEG_DLCP_PATHS", paths), ("THALWEG_STREAMS", streams)):
        environment.pop(name, None)
        if number is not None:
            environment[name] = str(number)
    return subprocess.Popen([PROGRAM, "testbed", "run", "--name", NAME, "--timeout", "100s", "--", SUM, *map(str, words)],
                            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(job):
    out, _ = job.communicate(timeout=120)
    assert job.returncode == 0 and out.count("all exact") == 4, out


def test_source_ports_take_both_spines(up):
    up(RACKS)
    before = uplinks()
    send(0, """
import socket
for port in range(20000, 20128):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("10.77.0.1", port))
    s.sendto(bytes(500), ("10.77.0.3", 9))
""")
    wait_until(lambda: sum(uplinks().values()) - sum(before.values()) >= 128 * 528)
    for part in parts(before, uplinks(), "leaf0").values():
        assert 0.3 < part < 0.7


def test_dlcp_uses_both_uplinks(up):
    """The system chooses the ports, so how many hash to each spine is chance: of 32, fewer than 7 in 1 of 1,800 runs."""
    up(RACKS)
    for paths, least, most in ((1, 0.0, 0.15), (32, 0.2, 0.5)):
        before = uplinks()
        finish(run(8, 250_000, "dlcp", paths=paths))
        after = uplinks()
        for leaf in ("leaf0", "leaf1"):
            assert least <= min(parts(before, after, leaf).values()) <= most, (paths, leaf, before, after)


def test_tcp_uses_both_uplinks(up):
    """One stream in a direction takes one route; of eight, all hash to one spine in 1 of 128 runs."""
    up(RACKS)
    for streams, least, most in ((1, 0.0, 0.15), (None, 0.15, 0.5)):
        before = uplinks()
        finish(run(8, 250_000, "tcp", streams=streams))
        after = uplinks()
        for leaf in ("leaf0", "leaf1"):
            assert least <= min(parts(before, after, leaf).values()) <= most, (streams, leaf, before, after)


def test_dlcp_is_exact_while_a_spine_is_slow_and_loses_packets(up):
    up(RACKS)
    job = run(20, 100_000, "dlcp")
    start = sum(uplinks().values())
    wait_until(lambda: sum(uplinks().values()) > start + 500_000)
    for leaf in ("leaf0", "leaf1"):
        bed("set", "link", f"{leaf}-spine1", "rate=5M", "delay=3ms", "loss=2%")
    wait_until(lambda: sum(uplinks().values()) > start + 3_000_000)
    for leaf in ("leaf0", "leaf1"):
        bed("set", "link", f"{leaf}-spine1", "rate=20M", "delay=100us", "loss=0")
    finish(job)


def test_atp_uses_both_uplinks(up):
    up(RACKS, "--aggregate", "leaf0", "--aggregate", "leaf1")
    before = uplinks()
    finish(run(8, 250_000, "atp", 0))
    after = uplinks()
    for leaf in ("leaf0", "leaf1"):
        assert min(parts(before, after, leaf).values()) > 0.3, (leaf, before, after)
    # With loss and a spine that loses much, sums are exact.
    bed("set", "link", "all", "loss=0.5%")
    bed("set", "link", "leaf1-spine1", "loss=20%")
    finish(run(4, 100_000, "atp", 0))
