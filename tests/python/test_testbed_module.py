"""thalweg.testbed: a network of this machine's own from Python."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from thalweg import testbed  # noqa: E402


def can_make_networks():
    if os.geteuid() != 0 or os.environ.get("THALWEG_WITHOUT_ROOT") or shutil.which("ip") is None:
        return False
    return os.access("/dev/net/tun", os.W_OK) and subprocess.run(["unshare", "--net", "true"],
                                                                 capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not can_make_networks(), reason="makes network namespaces: needs root and /dev/net/tun")


@pytest.fixture(scope="module")
def bed():
    with testbed.Testbed("single-switch:hosts=2,host=50M", settings={"port_buffer": "200kB"}) as made:
        yield made


@needs_namespaces
def test_hosts__are_those_of_the_topology(bed):
    assert [host.rank for host in bed.hosts] == [0, 1] and len({host.address for host in bed.hosts}) == 2
    assert bed.name in {row["name"] for row in testbed.testbeds()}
    rows = bed.links()
    assert {row["rate_mbps"] for row in rows} == {50.0} and len(rows) == 4  # two links, both directions
    assert bed._repr_html_().count("<tr>") == 5


@needs_namespaces
def test_execute__runs_on_the_host(bed):
    done = bed.execute(1, ["ip", "-4", "addr"])
    assert done.code == 0 and bed.hosts[1].address in done.output and bed.hosts[0].address not in done.output
    assert bed.execute(0, ["false"]).code == 1
    with pytest.raises(TimeoutError, match="not done after 0.2 s"):
        bed.execute(0, ["sleep", "60"], timeout=0.2)


@needs_namespaces
def test_run__a_rank_on_each_host_and_its_frames_are_counted(bed):
    before = bed.stats()
    job = bed.run([ROOT / "build/release/examples/allreduce", 3, 10_000, 60], timeout=120)
    assert job.code == 0 and job.output.count("2 ranks, sum 2") == 6, job.output
    moved = bed.stats().since(before)
    assert moved.frames["delivered"] > 6 and moved.lost == 0
    assert all(row["bytes"] > 100_000 for row in bed.links())


@needs_namespaces
def test_set__a_link_that_is_down_loses_everything(bed):
    link = bed.links()[0]["link"]
    bed.set(link, up=False)
    before = bed.stats()
    assert bed.execute(0, ["ping", "-c", "1", "-W", "1", bed.hosts[1].address] if shutil.which("ping") else
                       [sys.executable, "-c", "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                        f"s.sendto(b'x', ('{bed.hosts[1].address}', 9)); raise SystemExit(1)"]).code == 1
    assert bed.stats().since(before).lost >= 1
    bed.set(link, up=True, rate="20M")
    assert bed.links()[0]["rate_mbps"] == 20
    with pytest.raises(testbed.TestbedError, match="no-such-link") as refused:
        bed.set("no-such-link", loss="1%")
    assert refused.value.exit_code == 2


@needs_namespaces
def test_down__leaves_nothing_and_can_be_repeated():
    bed = testbed.Testbed("single-switch:hosts=2,host=50M").up()
    with pytest.raises(testbed.TestbedError, match="is up already"):
        bed.up()
    sleeper = bed.start(0, ["sleep", "600"])
    bed.down()
    bed.down()
    assert sleeper.poll() is not None
    assert bed.name not in {row["name"] for row in testbed.testbeds()}


def test_what_the_program_refuses__is_an_exception_with_its_words():
    with pytest.raises(testbed.TestbedError, match="did you mean 'single-switch"):
        testbed.Testbed("singel-switch:hosts=2,host=50M").up()
    with pytest.raises(testbed.ProgramError, match="--name"):
        testbed.Testbed("single-switch:hosts=2,host=50M", name="no spaces").up()
