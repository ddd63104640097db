"""Hosts on this machine, for benchmarks and examples: network namespaces around a bridge, each with one device. Needs
root, and the tools of iproute2, util-linux, nftables and ethtool."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

DEVICE = "tw0"
PARTS = 1_000_000  # losses are in whole parts of it
_INSIDE = "THALWEG_OWN_WORLD"  # set by own_world() for the program it starts


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


def address(host):
    return f"10.77.0.{host + 1}"


def own_world():
    """To be called before anything else: starts this program anew with processes and mounts of its own, and does not
    return but there. Namespaces and processes made afterwards end with the program however it ends, by SIGKILL too."""
    if os.environ.pop(_INSIDE, None) is None:
        # unshare(1) does not hear SIGTERM, nor does the first process of a world: this one stays, and does.
        world = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork",
                                  "--kill-child", "--mount-proc", *sys.orig_argv], env={**os.environ, _INSIDE: "1"})
        signal.signal(signal.SIGTERM, lambda *_: world.kill())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program itself hears it
        status = world.wait()
        sys.exit(status if status >= 0 else 128 - status)
    os.makedirs("/run/netns", exist_ok=True)
    _do("mount", "-t", "tmpfs", "none", "/run/netns")


def shape(ends, host, gbps, burst="128k", latency="50ms"):
    """The link of one of the namespaces that hosts() gave, both ways: `burst` passes at once, and what would wait
    longer than `latency` is lost."""
    hub = _hub_of(ends[host])
    for namespace, device in ((ends[host], DEVICE), (hub, _port(host))):
        _inside(namespace, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{round(gbps * 1e9)}bit", "burst",
                burst, "latency", latency)


def _hub_of(end):
    return end.rsplit("-", 1)[0] + "-hub"


def _port(host):
    return f"port{host}"


def congestion_controls():
    """Those of TCP that the system has."""
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
        return file.read().split()


def congestion_control():
    """The one that the system's connections have."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        return file.read().strip()


@contextlib.contextmanager
def hosts(count, gbps, loss=0.0, congestion=None, **shaping):
    """The names of namespaces whose links carry `gbps` each way, as shape() makes them, and lose what is sent with
    probability `loss`, packet by packet: packets leave a host as they go over a wire, and are merged only where they
    arrive, as by a network card. `congestion`: the congestion control of their TCP (None: the system's). Gone in the end;
    if the program is killed, only within own_world()."""
    ends = [f"tw-bench-{os.getpid()}-{i}" for i in range(count)]
    hub = _hub_of(ends[0])
    try:
        for name in (hub, *ends):
            _do("ip", "netns", "add", name)
        _inside(hub, "ip", "link", "add", "bridge", "type", "bridge")
        _inside(hub, "ip", "link", "set", "bridge", "up")
        for host, name in enumerate(ends):
            port = _port(host)
            _do("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", port, "netns", hub)
            _inside(hub, "ip", "link", "set", port, "master", "bridge", "up")
            _inside(name, "ip", "addr", "add", f"{address(host)}/24", "dev", DEVICE)
            _inside(name, "ip", "link", "set", DEVICE, "up")
            _inside(name, "ip", "link", "set", "lo", "up")
            shape(ends, host, gbps, **shaping)
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
        for name in (hub, *ends):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
