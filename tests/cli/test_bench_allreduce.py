"""`thalweg bench allreduce` with tiny sizes, so that it never rots. Speeds need a quiet machine."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = [ROOT / "build/release/thalweg", "bench", "allreduce"]
TREE = "leaf-spine:racks=2,hosts=2,spines=1,host=100M,uplink=20M"
QUICK = ("bench", "allreduce", "--quick", "--json", "--sizes", "1KiB,1MiB")
# Speaks the protocol of a rank (src/lab/bench/allreduce/rank.h) and runs {act} on each request.
FAKE_PEER = """#!{python}
import os, socket, sys, time
rank = int(os.environ["RANK"])
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.connect(os.environ["THALWEG_BENCH_CONTROL"])
control.send(f"hello {{rank}} fake 7".encode())
while message := control.recv(1 << 17).decode():
    verb, *numbers = message.split()
    {act}
    if verb == "idle":
        control.send(b"idle 0.25")
        continue
    wrong = 3 if rank == 1 and numbers[0] == "256" else 0
    control.send(" ".join(["measured", str(wrong)] + [str((rank + 1) * 10**6)] * int(numbers[2])).encode())
"""

needs_namespaces = pytest.mark.usefixtures("namespaces")


def rows_of(result, library):
    return {row["size"]: row for row in result["rows"] if row["library"] == library}


def facts_of(result, library):
    return next(facts for facts in result["libraries"] if facts["library"] == library)


@pytest.fixture
def fake_gloo(tmp_path, monkeypatch):
    def make(act="pass"):
        script = tmp_path / "python"
        script.write_text(FAKE_PEER.format(python=sys.executable, act=act))
        script.chmod(0o755)
        monkeypatch.setenv("THALWEG_PYTHON", str(script))
    return make


def test_allreduce(thalweg):
    result = thalweg(*QUICK, "--ranks", 3).json()
    assert result["ranks"] == 3 and result["network"] == "loopback"
    rows = rows_of(result, "thalweg")
    assert list(rows) == [1024, 2**20]
    for size, row in rows.items():
        assert row["count"] == size / 4 and row["transport"] == "tcp"
        assert row["wrong"] == 0 and row["samples"] == 5
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["algbw_gbps"] == pytest.approx(size / row["p50_us"] * 1e-3)
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] * 4 / 3)
    facts = facts_of(result, "thalweg")
    assert facts["small_bytes"] == 4 and facts["small_p50_us"] > 0
    # An idle communicator uses almost no processor time.
    assert facts["idle_cpu"] < 0.05
    # Measured at the beginning of the only turn, and at the end.
    distances = result["environment"]["core_to_core_ns"]
    assert len(distances) == (2 if len(os.sched_getaffinity(0)) > 1 else 0) and all(ns > 1 for ns in distances)


@pytest.mark.parametrize("type_name,op,scheme", [("float64", "max", "ring"), ("int32", "product", "ps")])
def test_types_operations_and_schemes(thalweg, type_name, op, scheme):
    result = thalweg(*QUICK, "--type", type_name, "--op", op, "--scheme", scheme).json()
    assert all(row["wrong"] == 0 for row in result["rows"])
    assert scheme in facts_of(result, "thalweg")["settings"]


@pytest.mark.parametrize("bound", [[], ["--bound", "1%"]])
def test_transports(thalweg, bound):
    result = thalweg(*QUICK, "--transport", "tcp,shm,dlcp", *bound).json()
    assert [(row["transport"], row["size"]) for row in result["rows"]] == [
        (transport, size) for transport in ("tcp", "shm", "dlcp") for size in (1024, 2**20)]
    assert all(row["wrong"] == 0 for row in result["rows"])
    assert result["loss_bound"] == (0.01 if bound else 0)


def test_against_openmpi(thalweg):
    result = thalweg(*QUICK, "--against", "openmpi").json()
    ours, theirs = rows_of(result, "thalweg"), rows_of(result, "openmpi")
    assert ours.keys() == theirs.keys() == rows_of(result, "openmpi-shm").keys()
    assert all(row["wrong"] == 0 for row in result["rows"])
    for size, row in ours.items():
        assert row["ratio_openmpi"] == pytest.approx(theirs[size]["p50_us"] / row["p50_us"])
        assert row["ratio_p99_openmpi"] == pytest.approx(theirs[size]["p99_us"] / row["p99_us"])
    assert "Open MPI" in facts_of(result, "openmpi")["version"]
    assert "btl tcp,self" in facts_of(result, "openmpi")["settings"]
    assert "btl" not in facts_of(result, "openmpi-shm")["settings"]


def test_against_gloo(thalweg):
    result = thalweg(*QUICK, "--against", "gloo", "--type", "int64", "--op", "min").json()
    assert all(row["wrong"] == 0 for row in result["rows"])
    assert rows_of(result, "gloo").keys() == rows_of(result, "thalweg").keys()
    assert facts_of(result, "gloo")["version"].startswith("PyTorch")


@pytest.mark.parametrize("ranks, type_name, op", [(2, "float32", "sum"), (4, "float64", "max"), (8, "int32", "product")])
def test_against_bare(thalweg, ranks, type_name, op):
    """Covers fewer elements than ranks, both ways to reduce, and halves of different sizes."""
    sizes = [8, 24, 2**14, 2**14 + 8, 2**20, 2**20 + 24]
    result = thalweg("bench", "allreduce", "--quick", "--json", "--sizes", ",".join(f"{size}B" for size in sizes), "--against", "bare",
                     "--ranks", ranks, "--type", type_name, "--op", op).json()
    ours, bare = rows_of(result, "thalweg"), rows_of(result, "bare")
    assert list(bare) == sizes
    assert all(row["wrong"] == 0 and row["transport"] == "tcp" for row in result["rows"])
    for size, row in ours.items():
        assert row["ratio_bare"] == pytest.approx(bare[size]["p50_us"] / row["p50_us"])
        assert row["ratio_p99_bare"] == pytest.approx(bare[size]["p99_us"] / row["p99_us"])
    facts = facts_of(result, "bare")
    assert facts["version"].startswith("Linux") and "halving-doubling" in facts["settings"]
    assert facts["idle_cpu"] < 0.05


def test_slowest_rank_counts_and_wrong_results_fail(thalweg, fake_gloo):
    fake_gloo()
    done = thalweg(*QUICK, "--against", "gloo")
    result = json.loads(done.out)
    assert done.code == 1
    rows = rows_of(result, "gloo")
    assert [row["wrong"] for row in rows.values()] == [3, 0]
    assert all(row["p50_us"] == row["p99_us"] == 2000 for row in rows.values())
    assert facts_of(result, "gloo")["version"] == "fake 7" and facts_of(result, "gloo")["idle_cpu"] == 0.25


def test_table(thalweg, fake_gloo):
    fake_gloo()
    done = thalweg("bench", "allreduce", "--quick", "--sizes", "1KiB", "--against", "gloo")
    lines = done.out.splitlines()
    assert "# gloo, tcp (fake 7)" in done.out
    assert sum(line.split()[:4] == ["1024", "256", "float32", "sum"] for line in lines) == 2
    gloo = [line.split() for line in lines if line.startswith(" ")][1]
    assert gloo[4:] == ["2000.0", "2000.0", "0.001", "0.001", "3"]
    assert lines[-1] == "# wrong elements: 3 FAILED"


@pytest.mark.parametrize("act", ["sys.exit('the peer is unwell')", "control.send(b'failed the peer is unwell')"])
def test_a_rank_that_dies_or_fails(thalweg, fake_gloo, act):
    fake_gloo(f"if rank == 1: {act}")
    start = time.monotonic()
    done = thalweg(*QUICK, "--against", "gloo")
    assert done.code == 2 and "gloo" in done.err and "rank 1" in done.err and "the peer is unwell" in done.err
    assert time.monotonic() - start < 10


def test_without_torch(thalweg, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
    python.chmod(0o755)
    monkeypatch.setenv("THALWEG_PYTHON", str(python))
    done = thalweg(*QUICK, "--against", "gloo")
    assert done.code == 2 and "PyTorch is not installed" in done.err


@needs_namespaces
@pytest.mark.parametrize("ranks, peers", [(2, ["openmpi", "bare"]), (3, []), (4, ["bare"])])
def test_netns(thalweg, ranks, peers):
    """1 MiB takes 8.4 ms at 1 Gb/s; each rank needs 2 (n - 1) / n of that. Peers run on the same network."""
    against = ["--against", ",".join(peers)] if peers else []
    result = thalweg(*QUICK, "--ranks", ranks, "--netns", "--rate", "1G", "--loss", "0.1%", *against).json()
    assert result["rate_gbps"] == 1 and result["loss"] == 0.001
    for library in ["thalweg", *peers]:
        row = rows_of(result, library)[2**20]
        assert row["wrong"] == 0
        assert row["p50_us"] > 2**20 * 8e-3 * 2 * (ranks - 1) / ranks * 0.98
    assert not rows_of(result, "openmpi-shm")


@needs_namespaces
@pytest.mark.parametrize("transports, rates", [("tcp,dlcp", [100, 100]), ("tcp", [160, 40])])
def test_several_devices(thalweg, transports, rates):
    """Rates in Mb/s. Two equal devices are faster than one could be; a slow device gets less than half of the data."""
    result = thalweg("bench", "allreduce", "--quick", "--json", "--sizes", "4MiB", "--netns", "--nics", len(rates), "--rate",
                     ",".join(f"{rate}M" for rate in rates), "--transport", transports).json()
    assert "with 2 devices" in result["network"]
    assert [row["transport"] for row in result["rows"]] == transports.split(",")
    bits = 4 * 2**23
    alike = rates[0] == rates[1]
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["p50_us"] < 0.75 * (bits / rates[0] if alike else bits / 2 / rates[1])
        assert row["p50_us"] > 0.9 * bits / sum(rates)


@needs_namespaces
def test_bare_is_no_limit_of_several_devices(thalweg):
    done = thalweg("bench", "allreduce", "--quick", "--netns", "--nics", 2, "--against", "bare")
    assert done.code == 2 and "one device" in done.err


@needs_namespaces
def test_congestion_controls(thalweg):
    """Runs with each congestion control that the system allows, by name."""
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    result = thalweg("bench", "allreduce", "--quick", "--json", "--sizes", "64KiB", "--netns",
                     "--congestion-control", ",".join(allowed)).json()
    assert [row["congestion_control"] for row in result["rows"]] == allowed
    assert [library["congestion_control"] for library in result["libraries"]] == allowed
    done = thalweg("bench", "allreduce", "--quick", "--netns", "--congestion-control", "no-such")
    assert done.code == 2 and "tcp_allowed_congestion_control" in done.err


@needs_namespaces
def test_topology_beside_the_simulator(thalweg):
    result = thalweg("bench", "allreduce", "--quick", "--json", "--sizes", "64KiB", "--topology", TREE, "--scheme", "rat", "ring",
                     "--transport", "tcp,dlcp", "--simulate").json()
    assert result["ranks"] == 4
    rows = {(row["transport"], row["scheme"]): row for row in result["rows"]}
    assert set(rows) == {(t, s) for t in ("tcp", "dlcp") for s in ("rat", "ring")}
    # At least half of a tensor crosses the uplink in each direction.
    limit_us = 64 * 1024 * 8 / 20
    for (_, scheme), row in rows.items():
        assert row["wrong"] == 0
        assert 0.9 * limit_us <= row["p50_us"], "the uplink is not as slow as it should be"
        assert limit_us / 2 <= row["simulated_us"] <= 20 * limit_us


def test_bad_flags(thalweg):
    for flags, word in ([("--ranks", "1"), "ranks"], [("--ranks", "31"), "ranks"],
                        [("--sizes", "1KiB,7B"), "sizes"], [("--sizes", "0B"), "sizes"],
                        [("--sizes", "1"), "sizes"], [("--type", "float8"), "float64"],
                        [("--op", "mean"), "product"], [("--transport", "udp"), "tcp"],
                        [("--against", "nccl"), "gloo"],
                        [("--against", "bare", "--ranks", "3"), "power of two"], [("--rate", "1G"), "netns"],
                        [("--congestion-control", "reno"), "netns"],
                        [("--nics", "2"), "netns"], [("--netns", "--nics", "9"), "from 1 to 8"],
                        [("--netns", "--nics", "2", "--rate", "1G,1G,1G"), "one each, 2"], [("--streams", "0"), "streams"],
                        [("--netns", "--nics", "2", "--rate", "1G,2G", "--transport", "dlcp"), "one rate"],
                        [("--netns", "--loss", "1"), "loss"], [("--netns", "--rate", "fast"), "rate"],
                        [("--bound", "1%"), "dlcp"], [("--transport", "dlcp", "--bound", "2"), "bound"],
                        [("--transport", "dlcp", "--bound", "1%", "--op", "max"), "sums of floats"],
                        [("--scheme", "no-such"), "no-such"],
                        [("--topology", TREE, "--ranks", "3"), "4 hosts"],
                        [("--topology", TREE, "--rate", "1G"), "rate"],
                        [("--topology", TREE, "--simulate"), "--scheme"],
                        [("--scheme", "ring", "--simulate"), "--topology"],
                        [("--topology", "leaf-spine:racks=2,hosts=2,spines=2"), "two ways"]):
        done = thalweg("bench", "allreduce", "--quick", *flags)
        assert done.code == 2, flags
        assert word in done.err, flags


@pytest.fixture
def short_folder():
    """A folder with a short name: names of sockets have at most 108 bytes, and pytest's own folders are deep."""
    with tempfile.TemporaryDirectory(prefix="tb-", dir="/tmp") as folder:
        yield Path(folder)


def processes_with(variable):
    """Processes with this in their environment. Daemons of mpirun are not found as children of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # it has ended
    return found


def started(folder, *flags):
    """Starts a benchmark and waits until all its ranks have met: it then removes its folder."""
    process = subprocess.Popen([*BENCH, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(folder)})
    deadline = time.monotonic() + 20
    while not list(folder.glob("thalweg-bench-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    while list(folder.glob("thalweg-bench-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def test_a_bare_rank_that_dies(short_folder):
    process = started(short_folder, "--against", "bare")
    bare = [pid for pid in processes_with(f"TMPDIR={short_folder}")
            if b"--bare" in Path(f"/proc/{pid}/cmdline").read_bytes() and pid in processes_with("THALWEG_RANK=1")]
    assert len(bare) == 1
    os.kill(bare[0], signal.SIGKILL)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 2 and "bare over tcp" in error and "rank 1" in error
    assert not processes_with(f"TMPDIR={short_folder}")


@pytest.mark.parametrize("network", [[], pytest.param(["--netns"], marks=needs_namespaces)])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_leaves_nothing(short_folder, network, how):
    process = started(short_folder, "--against", "openmpi,bare", *network)
    variable = f"TMPDIR={short_folder}"
    # At least: the benchmark and its guardian, two of our ranks, two bare ranks, mpirun with its
    # two ranks.
    assert len(processes_with(variable)) >= 2 + 2 + 2 + 3
    process.send_signal(how)
    process.wait(timeout=20)
    deadline = time.monotonic() + 10
    while left := processes_with(variable):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert not list(short_folder.glob("thalweg-bench-*"))
