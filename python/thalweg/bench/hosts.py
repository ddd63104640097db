"""Hosts on this machine, for benchmarks: network namespaces around a bridge, each with one device. Needs root, and
the tools of iproute2, nftables and util-linux.

A program that has called alone() leaves nothing behind, also if it is killed: the names of its namespaces are in a
mount namespace that ends with it, and what start() starts ends with it too.
"""
import contextlib
import os
import shutil
import subprocess
import sys

DEVICE = "tw0"
PARTS = 1_000_000  # losses are in whole parts of it
_OUTSIDE = "THALWEG_BENCH_OUTSIDE"  # the mount namespace from which alone() came


def _do(*words):
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr.strip() or run.stdout.strip()}")


def _inside(namespace, *words):
    _do("ip", "netns", "exec", namespace, *words)


def missing():
    """Why there can be no such hosts here; None: there can."""
    tools = [tool for tool in ("ip", "tc", "nft", "ethtool", "unshare", "setpriv") if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} not found: run tools/setup"
    return None if os.geteuid() == 0 else "network namespaces need root"


def alone():
    """Starts this program anew, as the same process, where nobody else sees the names of its namespaces; returns if
    that was done. To be called before anything that must not be done twice."""
    here = os.readlink("/proc/self/ns/mnt")
    if os.environ.get(_OUTSIDE, here) != here:
        return
    script = 'mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec "$@"'
    os.execvpe("unshare", ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, *sys.orig_argv[1:]],
               {**os.environ, _OUTSIDE: here})


def address(host):
    return f"10.77.0.{host + 1}"


def start(namespace, words, **options):
    """A process of a host, which is killed when the thread that has called this ends."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace, *words], **options)


def congestion_controls():
    """Those of TCP that the system has."""
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
        return file.read().split()


def congestion_control():
    """The one that the system's connections have."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        return file.read().strip()


def shape(namespace, device, gbps):
    """What leaves by a device goes at this rate."""
    _inside(namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{gbps}gbit", "burst", "128k",
            "latency", "50ms")


@contextlib.contextmanager
def hosts(count, gbps, loss=0.0, congestion=None):
    """The names of namespaces whose links carry `gbps` each way, and lose what is sent with probability `loss`, packet
    by packet: they leave a host as they go over a wire, and are merged only where they arrive, as by a network card.
    `congestion`: the congestion control of their TCP (None: the system's). Gone in the end, however it comes."""
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
                shape(namespace, device, gbps)
            if congestion:  # by the route: a namespace's default can only be one that the system allows to everybody
                _inside(name, "ip", "route", "replace", f"{address(-1)}/24", "dev", DEVICE, "scope", "link", "src",
                        address(host), "congctl", congestion)
            _inside(name, "ethtool", "-K", DEVICE, "tso", "off", "gso", "off", "gro", "on")
            if loss > 0:
                _inside(hub, "nft", f"add table netdev {port}; add chain netdev {port} in {{ type filter hook ingress "
                        f"device {port} priority 0; }}; add rule netdev {port} in numgen random mod {PARTS} < "
                        f"{round(loss * PARTS)} drop")
        yield ends
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
