"""Hosts on this machine, for benchmarks: network namespaces around a bridge, each with one device. Needs root, and
the tools of iproute2 and nftables."""
import contextlib
import os
import shutil
import subprocess

DEVICE = "tw0"
PARTS = 1_000_000  # losses are in whole parts of it


def _do(*words):
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr.strip() or run.stdout.strip()}")


def _inside(namespace, *words):
    _do("ip", "netns", "exec", namespace, *words)


def missing():
    """Why there can be no such hosts here; None: there can."""
    tools = [tool for tool in ("ip", "tc", "nft") if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} not found: run tools/setup"
    return None if os.geteuid() == 0 else "network namespaces need root"


def address(host):
    return f"10.77.0.{host + 1}"


@contextlib.contextmanager
def hosts(count, gbps, loss):
    """The names of namespaces whose links carry `gbps` each way, and lose packets with probability `loss` at their
    receiving end. Gone in the end, however it comes."""
    names = [f"tw-bench-{os.getpid()}-{i}" for i in range(count + 1)]
    hub, *ends = names
    try:
        for name in names:
            _do("ip", "netns", "add", name)
        _inside(hub, "ip", "link", "add", "bridge", "type", "bridge")
        _inside(hub, "ip", "link", "set", "bridge", "up")
        for host, name in enumerate(ends):
            port = f"port{host}"
            _do("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", port, "netns", hub)
            _inside(hub, "ip", "link", "set", port, "master", "bridge", "up")
            _inside(name, "ip", "addr", "add", f"{address(host)}/24", "dev", DEVICE)
            _inside(name, "ip", "link", "set", DEVICE, "up")
            _inside(name, "ip", "link", "set", "lo", "up")
            for namespace, device in ((name, DEVICE), (hub, port)):
                _inside(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{gbps}gbit", "burst",
                        "128k", "latency", "50ms")
            if loss > 0:
                _inside(name, "nft", f"add table inet lossy; add chain inet lossy in {{ type filter hook input priority "
                        f"0; }}; add rule inet lossy in iif {DEVICE} numgen random mod {PARTS} < {round(loss * PARTS)} "
                        "drop")
        yield ends
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
