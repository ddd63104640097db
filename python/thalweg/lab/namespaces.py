"""Makes hosts on this machine, for benchmarks and examples: network namespaces around a bridge.

Each host has one network device. Needs root, and the tools of iproute2, util-linux, nftables and
ethtool.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

DEVICE = "tw0"
PARTS = 1_000_000  # a loss is a whole number of parts of this
_INSIDE = "THALWEG_OWN_WORLD"  # set by own_world() for the program it starts


def _do(*words):
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr.strip() or run.stdout.strip()}")


def _inside(namespace, *words):
    _do("ip", "netns", "exec", namespace, *words)


def missing():
    """Returns why hosts cannot be made here, or None if they can."""
    tools = [tool for tool in ("ip", "tc", "nft", "ethtool", "unshare", "setpriv")
             if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} not found: run tools/setup"
    return None if os.geteuid() == 0 else "network namespaces need root"


def address(host):
    return f"10.77.0.{host + 1}"


def own_world():
    """Starts this program again in PID and mount namespaces of its own. Call it before all else.

    It returns only in the new process; the old one waits for that and exits. Namespaces and
    processes that are made afterwards end with the program, even if SIGKILL ends it.
    """
    if os.environ.pop(_INSIDE, None) is None:
        # Neither unshare(1) nor the first process of a PID namespace reacts to SIGTERM, so this
        # process stays and ends them.
        world = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid",
                                  "--fork", "--kill-child", "--mount-proc", *sys.orig_argv],
                                 env={**os.environ, _INSIDE: "1"})
        signal.signal(signal.SIGTERM, lambda *_: world.kill())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program itself handles it
        status = world.wait()
        sys.exit(status if status >= 0 else 128 - status)
    os.makedirs("/run/netns", exist_ok=True)
    _do("mount", "-t", "tmpfs", "none", "/run/netns")


def shape(ends, host, gbps, burst="128k", latency="50ms"):
    """Limits the rate of one host's link in both directions. `ends` are the names hosts() yields.

    A burst of up to `burst` passes at once. A packet that would wait longer than `latency` is lost.
    """
    hub = _hub_of(ends[host])
    for namespace, device in ((ends[host], DEVICE), (hub, _port(host))):
        _inside(namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                f"{round(gbps * 1e9)}bit", "burst", burst, "latency", latency)


def _hub_of(end):
    return end.rsplit("-", 1)[0] + "-hub"


def _port(host):
    return f"port{host}"


def congestion_controls():
    """Returns the names of the TCP congestion controls that the system has."""
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
        return file.read().split()


def congestion_control():
    """Returns the name of the TCP congestion control that connections use by default."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        return file.read().strip()


@contextlib.contextmanager
def hosts(count, gbps, loss=0.0, congestion=None, **shaping):
    """Makes `count` hosts, yields the names of their namespaces, and removes them at the end.

    Links carry `gbps` in each direction; `shaping` are further arguments of shape(). Every packet
    that a host sends is lost with probability `loss`. Segmentation offload is off, so a lost packet
    is one that would go over a wire; packets are merged only where they arrive, as a network card
    does. `congestion` names the congestion control of TCP; None is the system's default. If the
    program is killed, the hosts are removed only within own_world().
    """
    ends = [f"tw-bench-{os.getpid()}-{i}" for i in range(count)]
    hub = _hub_of(ends[0])
    try:
        for name in (hub, *ends):
            _do("ip", "netns", "add", name)
        _inside(hub, "ip", "link", "add", "bridge", "type", "bridge")
        _inside(hub, "ip", "link", "set", "bridge", "up")
        for host, name in enumerate(ends):
            port = _port(host)
            _do("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", port,
                "netns", hub)
            _inside(hub, "ip", "link", "set", port, "master", "bridge", "up")
            _inside(name, "ip", "addr", "add", f"{address(host)}/24", "dev", DEVICE)
            _inside(name, "ip", "link", "set", DEVICE, "up")
            _inside(name, "ip", "link", "set", "lo", "up")
            shape(ends, host, gbps, **shaping)
            if congestion:
                # The route sets it. The namespace's default could only be a congestion control that
                # the system allows to all users.
                _inside(name, "ip", "route", "replace", f"{address(-1)}/24", "dev", DEVICE, "scope",
                        "link", "src", address(host), "congctl", congestion)
            _inside(name, "ethtool", "-K", DEVICE, "tso", "off", "gso", "off", "gro", "on")
            if loss > 0:
                _inside(hub, "nft", f"add table netdev {port}; add chain netdev {port} in {{ type "
                        f"filter hook ingress device {port} priority 0; }}; add rule netdev {port} "
                        f"in numgen random mod {PARTS} < {round(loss * PARTS)} drop")
        yield ends
    finally:
        for name in (hub, *ends):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
