"""`thalweg testbed`: processes that are ended early, hosts that stall, switches that aggregate and restart."""
import json
import os
import subprocess
import sys
import time

import pytest
from test_run import wait_until
from test_testbed import NAME, PROGRAM, ROOT, STAR, UDP, bed, namespaces, needs_namespaces, send, state, stats, up  # noqa: F401

pytestmark = needs_namespaces


def test_up_that_is_ended_early_leaves_nothing():
    """Ends `testbed up` before, while and after the network's process makes namespaces."""
    for after in (0.0, 0.05, 0.15, 0.4):
        starting = subprocess.Popen([PROGRAM, "testbed", "up", "--name", NAME, "single-switch:hosts=8,host=10M"],
                                    stdout=subprocess.DEVNULL)
        time.sleep(after)
        starting.terminate()
        if starting.wait(30) == 0:  # it was up already
            bed("down")
        wait_until(lambda: state() is None and namespaces() == [])


def test_stalls_hold_hosts_back(up):
    """Some pings take as long as a host stalls."""
    up("single-switch:hosts=2,host=50M")
    bed("stall", "--every", "50ms", "--for", "60ms")
    times = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
s.bind(("10.77.0.1", 9))
longest = 0
until = time.monotonic() + 20
while longest < 0.04 and time.monotonic() < until:
    start = time.monotonic()
    s.sendto(b"x", ("10.77.0.2", 10))
    s.recv(10)
    longest = max(longest, time.monotonic() - start)
print(longest)
"""
    echo = subprocess.Popen([PROGRAM, "testbed", "exec", "--name", NAME, "1", "--", sys.executable, "-c", """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.2", 10))
print("ready", flush=True)
while True:
    block, peer = s.recvfrom(10)
    s.sendto(block, peer)
"""], stdout=subprocess.PIPE, text=True)
    assert echo.stdout.readline() == "ready\n"
    assert float(send(0, times).stdout) >= 0.04
    # A host that was paused by hand stays paused, however often it stalls.
    bed("stall", "--every", "1ms", "--for", "1ms")
    bed("pause", 0)
    send(0, UDP.format(tos=0, count=5, size=100, address="10.77.0.2"))
    wait_until(lambda: stats()["frames"]["inside"] >= 5)
    time.sleep(0.2)
    assert stats()["frames"]["inside"] >= 5
    bed("stall", "--off")
    assert stats()["frames"]["inside"] >= 5
    bed("resume", 0)
    wait_until(lambda: stats()["frames"]["inside"] == 0)
    for wrong in (("--off", "--every", "1s"), (), ("--every", "1s"), ("--every", "0s", "--for", "1s")):
        assert bed("stall", *wrong, check=False).returncode == 2
    bed("down")
    echo.wait(10)


def test_switches_have_no_key_whoever_starts_them(up, monkeypatch, tmp_path):
    """A job key in the environment is the ranks' business: the switches of a testbed serve them in the clear."""
    key = tmp_path / "key"
    key.write_text("c" * 32)
    key.chmod(0o600)
    monkeypatch.setenv("THALWEG_KEY_FILE", str(key))
    up("single-switch:hosts=2,host=100M", "--aggregate", "switch0")
    control = stats()["aggregators"][0]["control"]
    assert bed("exec", 0, "--", PROGRAM, "job", "list", "--switch", control).returncode == 0
    job = subprocess.run([PROGRAM, "testbed", "run", "--name", NAME, "--timeout", "60s", "--",
                          ROOT / "build/release/examples/atp_sum", "3", "1000"], capture_output=True, text=True,
                         timeout=90, check=False)
    assert job.returncode == 0, job.stdout + job.stderr


def test_switches_aggregate_exactly_under_loss(up):
    """Ranks sum through a switch of the testbed while packets are lost, and the switch restarts meanwhile."""
    up("leaf-spine:racks=2,hosts=2,spines=1,host=50M,uplink=50M", "--aggregate", "leaf0")
    now = stats()
    control = now["aggregators"][0]["control"]
    assert [(one["switch"], one["control"]) for one in now["aggregators"]] == [("leaf0", "10.77.0.5:7700")]
    # The testbed hands the switch's secret to the programs that it starts.
    stranger = bed("exec", 0, "--", "env", "-u", "THALWEG_SWITCH_TOKEN", PROGRAM, "job", "list", "--switch", control,
                   check=False)
    assert stranger.returncode == 2 and "the request has none" in stranger.stderr
    assert bed("exec", 0, "--", PROGRAM, "job", "list", "--switch", control).returncode == 0
    assert len(now["hosts"]) == 4 and not any("aggregator" in link["name"] for link in now["links"])
    job = subprocess.Popen([PROGRAM, "testbed", "run", "--name", NAME, "--timeout", "100s", "--",
                            ROOT / "build/release/examples/atp_sum", "300", "10000"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    sums = [0]  # packets that the switch has added, at each query

    def added():
        listed = bed("exec", 0, "--", PROGRAM, "job", "stats", "--switch", control, "--json", check=False)
        jobs = json.loads(listed.stdout)["jobs"] if listed.returncode == 0 else []
        sums.append(sum(one["counters"]["added"] for one in jobs))
        return sums[-1] > 0

    def adds_more():
        before = max(sums)
        wait_until(lambda: (added() and sums[-1] > before) or job.poll() is not None)
        return max(sums) > before

    assert adds_more(), job.communicate(timeout=120)[0]
    bed("set", "link", "all", "loss=1%")
    assert adds_more(), job.communicate(timeout=120)[0]
    bed("restart", "leaf0")
    bed("set", "link", "all", "loss=0")
    out, _ = job.communicate(timeout=120)
    assert job.returncode == 0, out
    refused = bed("up", STAR, "--aggregate", "nowhere", check=False, name=NAME + "c")
    assert refused.returncode == 2 and "switch0" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_two_levels_of_switches():
    """The example checks the counters of both leaves, the bytes on the uplinks, every sum under loss, and a restart."""
    done = subprocess.run([ROOT / "examples/two_racks_two_levels.sh", "30", "100000"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all sums exact" in done.stdout
    assert namespaces("two-racks") == [] and state("two-racks") is None


def test_soak_that_is_ended_leaves_nothing():
    """Ends tools/soak while a job runs. `make test` runs a full minute of it (Makefile)."""
    soak = subprocess.Popen([sys.executable, ROOT / "tools/soak", "--seconds", "60", "--seed", "7"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)
    name = f"soak{soak.pid}"
    wait_until(lambda: state(name) == "up" and stats(name)["frames"]["delivered"] > 100)
    soak.terminate()
    _, said = soak.communicate(timeout=90)
    assert soak.returncode == 143, said
    assert namespaces(name) == [] and state(name) is None
