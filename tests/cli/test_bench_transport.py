"""`thalweg bench transport` with tiny sizes, so that it never rots. Speeds need a quiet machine."""
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_transport(thalweg):
    result = thalweg("bench", "transport", "--quick", "--json").json()
    assert result["dlcp_gbps"] > 0 and result["raw_udp_gbps"] > 0 and result["tcp_gbps"] > 0
    assert abs(result["ratio_raw"] - result["dlcp_gbps"] / result["raw_udp_gbps"]) < 1e-6
    assert abs(result["ratio_tcp"] - result["dlcp_gbps"] / result["tcp_gbps"]) < 1e-6
    assert abs(result["ratio_keyed"] - result["dlcp_keyed_gbps"] / result["dlcp_gbps"]) < 1e-6
    assert result["dlcp_keyed_gbps"] > 0 and result["dlcp_keyed_cpu_s_per_gb"] > 0
    # An idle endpoint uses almost no processor time.
    assert result["idle_cpu"] < 0.01
    if os.geteuid() != 0:
        assert result["link"] == "loopback" and "root" in result["note"]
        return
    assert [row["loss"] for row in result["lossy"]] == [0, 0.001, 0.005, 0.01]
    for row in result["lossy"]:
        # 1 MiB and the headers of 749 packets at 1 Gb/s.
        assert abs(row["limit_ms"] - (2**20 + 749 * 78) * 8e-6) < 1e-6
        # Faster than the limit only by the part that may be lost.
        assert row["dlcp_p50_ms"] > row["limit_ms"] * (1 - row["loss_bound"]) * 0.98
        assert row["dlcp_p99_ms"] >= row["dlcp_p50_ms"]
        assert row["dlcp_arrived"] >= 1 - row["loss_bound"]


def test_transport_bad_flags(thalweg):
    done = thalweg("bench", "transport", "--bound", "1.5")
    assert done.code == 2
    assert "bound" in done.err


def test_transport_killed_leaves_nothing():
    """When the benchmark is killed, its processes end, and with them its namespaces."""
    process = subprocess.Popen([ROOT / "build/release/thalweg", "bench", "transport"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children = []
    for _ in range(100):
        time.sleep(0.02)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(listed) == 2:
            children = [int(pid) for pid in listed]
            break
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(children) == 2
    for _ in range(100):
        if not any(running(pid) for pid in children):
            return
        time.sleep(0.05)
    raise AssertionError("a process of the benchmark is still there")


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
