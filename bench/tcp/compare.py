"""Compares one stream of the kernel's CUBIC over the testbed with the simulated CUBIC.

    python bench/tcp/compare.py [--runs 10] [CASE …]

Two hosts send through two switches, whose link is the slowest (CASES). Needs root and build/release/thalweg. Prints for
each case the median, the lowest and the highest time from the first byte to the last at the receiver, and how many segments
were sent again on the mean: simulated with and without selective acknowledgements and HyStart, and by the kernel as it is,
without RACK and probes, and without selective acknowledgements. A case with loss is simulated with 40 seeds. All
cases take about six minutes.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "build/release/thalweg"
NAME = f"tcp{os.getpid()}"
LIMIT_S = 120  # of any command
SEEDS = 40

# Rates in Mb/s, the delay of each of three links in microseconds, the buffer of a port in kB, the size in bytes.
CASES = {
    "overrun": {"host": 50, "middle": 20, "delay": 5000, "buffer": 60, "size": 4_000_000, "loss": 0},
    "overrun-short": {"host": 100, "middle": 50, "delay": 1000, "buffer": 30, "size": 8_000_000, "loss": 0},
    "overrun-small": {"host": 100, "middle": 50, "delay": 5000, "buffer": 30, "size": 8_000_000, "loss": 0},
    "loss-short": {"host": 100, "middle": 50, "delay": 1000, "buffer": 1000, "size": 8_000_000, "loss": 0.005},
    "loss-long": {"host": 50, "middle": 20, "delay": 5000, "buffer": 1000, "size": 4_000_000, "loss": 0.005},
}
AS_IT_IS = {"tcp_no_metrics_save": 1, "tcp_recovery": 1, "tcp_early_retrans": 3, "tcp_sack": 1}
KERNELS = {
    "kernel": {},
    "kernel without RACK and probes": {"tcp_recovery": 0, "tcp_early_retrans": 0},
    "kernel without SACK": {"tcp_sack": 0},
}

TOPOLOGY = """\
name: two-switches
defaults: {{rate: {host}M, delay: {delay}us, buffer: {buffer}kB}}
hosts: [{{name: a}}, {{name: b}}]
switches: [{{name: left}}, {{name: right}}]
links:
  - {{between: [a, left]}}
  - {{between: [b, right]}}
  - {{between: [left, right], rate: {middle}M}}
"""
SCENARIO = """\
topology: {topology}
transport: {{kind: cubic, mss: 1448B, header: 52B, sack: {sack}, hystart: {hystart}, rto_min: 200ms, rto_initial: 1s}}
network: {{discipline: strict-priority}}
seed: {seed}
until: 600s
flows: [{{from: a, to: b, size: {size}B}}]
faults: [{{at: 0ms, link: [left, right], loss: {loss}}}]
"""
# Prints the bytes and the time from the first to the last.
RECEIVE = """
import socket, time
listener = socket.create_server(("10.77.0.2", 9), reuse_port=True)
print("ready", flush=True)
peer, _ = listener.accept()
got = len(peer.recv(1))
start = time.monotonic()
while block := peer.recv(1 << 20):
    got += len(block)
print(got, time.monotonic() - start)
"""
# Prints tcpi_total_retrans, which is behind 8 bytes and 23 numbers of struct tcp_info.
SEND = """
import socket, struct, sys
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
s.connect(("10.77.0.2", 9))
s.sendall(bytes(int(sys.argv[1])))
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(struct.unpack_from("I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 100)[0])
"""


def bed(command, *arguments, check=True):
    done = subprocess.run([PROGRAM, "testbed", command, "--name", NAME, *map(str, arguments)], capture_output=True,
                          text=True, timeout=LIMIT_S)
    if check and done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def transfer(size):
    """Returns the time of a transfer over the testbed and the number of segments sent again."""
    with subprocess.Popen([PROGRAM, "testbed", "exec", "--name", NAME, "1", "--", sys.executable, "-c", RECEIVE],
                          stdout=subprocess.PIPE, text=True) as receiver:
        if receiver.stdout.readline() != "ready\n":
            sys.exit("the receiver did not start")
        again = bed("exec", 0, "--", sys.executable, "-c", SEND, size)
        got, took = receiver.stdout.read().split()
    if int(got) != size:
        sys.exit(f"{got} bytes of {size} arrived")
    return float(took), int(again)


def simulate(case, topology, seed, sack, hystart):
    """Returns the same of the simulator, whose times begin when the first byte leaves."""
    scenario = topology.with_name("scenario.yaml")
    scenario.write_text(SCENARIO.format(topology=topology, seed=seed, sack=sack, hystart=hystart, **case))
    done = subprocess.run([PROGRAM, "sim", "run", scenario, "--json"], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    return result["flow_completion_ms"]["max"] / 1e3 - 3e-6 * case["delay"], result["retransmissions"]


def show(what, values):
    times = sorted(took for took, _ in values)
    print(f"  {what:34}{statistics.median(times):8.3f} s {times[0]:8.3f} {times[-1]:8.3f}"
          f"{statistics.mean(again for _, again in values):8.1f}", flush=True)


def measure(name, runs, folder):
    case = CASES[name]
    print(name, case, flush=True)
    topology = folder / "topology.yaml"
    topology.write_text(TOPOLOGY.format(**case))
    for sack in ("off", "on"):
        for hystart in ("off", "on"):
            seeds = range(1, SEEDS + 1) if case["loss"] else [1]
            show(f"simulated, sack {sack}, hystart {hystart}",
                 [simulate(case, topology, seed, sack, hystart) for seed in seeds])
    bed("up", topology)
    try:
        if case["loss"]:
            bed("set", "link", "left-right", f"loss={100 * case['loss']}%")
        for what, changes in KERNELS.items():
            for host in (0, 1):
                bed("exec", host, "--", "sysctl", "-qw",
                    *[f"net.ipv4.{key}={value}" for key, value in (AS_IT_IS | changes).items()])
            show(what, [transfer(case["size"]) for _ in range(runs)])
        print("  frames late:", json.loads(bed("stats", "--json"))["late"], flush=True)
    finally:
        bed("down", check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES), default=list(CASES))
    parser.add_argument("--runs", type=int, default=10, help="transfers of the kernel for each of its settings (10)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown or arguments.runs < 1:
        parser.error(f"CASE: {unknown[0]}; allowed are {', '.join(CASES)}" if unknown else "--runs: at least 1")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases:
            measure(name, arguments.runs, Path(folder))


if __name__ == "__main__":
    main()
