"""Compares ProcessGroupThalweg with torchft's ProcessGroupGloo, in turns, on this machine.

    python bench/torchft/compare.py [--ranks 4] [--rounds 10] [--gbps 1] [--trainings 1]

Every rank of a group is a process on a host of its own: a network namespace with a link of --gbps (root is
needed; `--gbps 0` takes the loopback device). Each round makes the group anew with both classes and times
configure(), the first allreduce after it, and a step: an allreduce of --megabytes, the gradients of a model
of that size. Then a newcomer, the last rank, gets --megabytes of state: from all others by StateTransport, and
from rank 0 over the group with both classes and over HTTP, as torchft does it by default. Then examples/torchft_digits.py trains with both on the
loopback device, kills two of four replicas and adds one. Prints medians as a table, and JSON with --json. The
slowest rank of a round counts. The defaults take three to four minutes on 16 cores.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

CLASSES = ("gloo", "thalweg")
PORT = 29610  # of the store by which the ranks meet; it is on rank 0's host
POLL_S = 0.0005
LIMIT = timedelta(seconds=60)
ROUND_ROWS = ("configure()", "first allreduce, of 4 KB", "configure() and first allreduce", "step", "CPU of configure()",
              "CPU of the first allreduce", "second allreduce, of 4 KB")


# A rank --------------------------------------------------------------------------------------------

class Ranks:
    """What the processes of a group tell each other beside the group."""

    def __init__(self, rank, size, host):
        import torch.distributed as dist
        self.rank, self.size = rank, size
        self.store = dist.TCPStore(host, PORT, is_master=rank == 0, wait_for_workers=False)

    def exchange(self, name, text):
        """Returns the texts of all ranks."""
        self.store.set(f"{name}/{self.rank}", text)
        return [self.store.get(f"{name}/{rank}").decode() for rank in range(self.size)]

    def meet(self, name):
        self.store.add(name, 1)
        while self.store.add(name, 0) < self.size:
            time.sleep(POLL_S)


def one_round(group, name, ranks, large):
    """Returns the seconds of configure(), of the first allreduce, of both, and of a large one.

    Then the seconds of CPU that the process used for the first two, which other load changes little. Then the seconds of a
    second small allreduce: what the first one takes longer is what making streams costs.
    """
    import torch
    import torch.distributed as dist
    from torchft.process_group import ReconfigureOptions

    options = ReconfigureOptions()
    options.uuid = int(name.split("/")[1]) + 1
    options.handles = ranks.exchange(f"handle/{name}", group.get_reconfigure_handle())
    small = torch.ones(1024)
    ranks.meet(f"start/{name}")
    cpu_began, began = time.process_time(), time.perf_counter()
    group.reconfigure(options).wait()
    cpu_configured, configured = time.process_time(), time.perf_counter()
    group.allreduce([small], dist.ReduceOp.SUM).wait()
    cpu_first, first = time.process_time(), time.perf_counter()
    if not bool((small == ranks.size).all()):
        raise SystemExit(f"{name}: the sum is wrong")
    ranks.meet(f"second/{name}")
    second_began = time.perf_counter()
    group.allreduce([small], dist.ReduceOp.SUM).wait()
    second = time.perf_counter() - second_began
    ranks.meet(f"large/{name}")
    large.fill_(1)
    large_began = time.perf_counter()
    group.allreduce([large], dist.ReduceOp.SUM).wait()
    seconds = time.perf_counter() - large_began
    if not bool((large == ranks.size).all()):
        raise SystemExit(f"{name}: the sum of the step is wrong")
    return (configured - began, first - configured, first - began, seconds, cpu_configured - cpu_began,
            cpu_first - cpu_configured, second)


def heal_once(make, name, ranks, layers):
    """Rank 0 sends the state to the last rank. Returns the seconds that it takes there; 0 elsewhere."""
    import torch

    transport = make()
    state = {"model": {f"layer{i}": part for i, part in enumerate(layers)}, "torchft": {"step": 1}}
    if hasattr(transport, "share") and ranks.rank < ranks.size - 1:
        transport.share(lambda: state)
    metadata = ranks.exchange(f"metadata/{name}", transport.metadata())
    ranks.meet(f"heal/{name}")
    began = time.perf_counter()
    seconds = 0.0
    if ranks.rank == 0:
        transport.send_checkpoint([ranks.size - 1], step=1, state_dict=state, timeout=LIMIT)
    elif ranks.rank == ranks.size - 1:
        got = transport.recv_checkpoint(0, metadata[0], step=1, timeout=LIMIT)
        seconds = time.perf_counter() - began
        if not all(torch.equal(got["model"][key], value) for key, value in state["model"].items()):
            raise SystemExit(f"{name}: the state is wrong")
    ranks.meet(f"healed/{name}")
    transport.disallow_checkpoint()
    if name.split("/")[0] != "survivors":  # that one stays with its group
        transport.shutdown()
    return seconds


def rank_of_group(arguments):
    import torch
    from torchft.checkpointing.http_transport import HTTPTransport
    from torchft.checkpointing.pg_transport import PGTransport
    from torchft.process_group import ProcessGroupGloo

    from thalweg.state_transport import StateTransport
    from thalweg.torchft import ProcessGroupThalweg

    torch.set_num_threads(1)
    ranks = Ranks(arguments.rank, arguments.ranks, arguments.store)
    towards = f"{arguments.store}:9"
    groups = {"gloo": ProcessGroupGloo(), "thalweg": ProcessGroupThalweg(towards=towards)}
    survivors = StateTransport(groups["thalweg"], LIMIT) if arguments.heals else None
    large = torch.ones(arguments.megabytes * 250_000)
    times = {name: [] for name in groups}
    for turn in range(arguments.rounds + 1):  # the first round also makes what stays
        for name, group in groups.items():
            times[name].append(one_round(group, f"{name}/{turn}", ranks, large))
    large.copy_(torch.arange(len(large)) % 1000)
    layers = [part.clone() for part in large.chunk(16)]  # each with memory of its own, as parameters have
    heals = {name: [] for name in ("survivors", *groups, "http")}
    for turn in range(arguments.heals):
        for name in heals:
            def make(name=name):
                if name == "survivors":
                    return survivors
                if name == "http":
                    return HTTPTransport(timeout=LIMIT, num_chunks=0)
                return PGTransport(groups[name], LIMIT, torch.device("cpu"))
            heals[name].append(heal_once(make, f"{name}/{turn}", ranks, layers))
    ranks.meet("end")
    print(json.dumps({"times": times, "heals": heals}), flush=True)
    ranks.meet("told")
    if ranks.rank == 0:
        time.sleep(0.5)  # its store serves the others


# The parent ----------------------------------------------------------------------------------------

@contextlib.contextmanager
def hosts(arguments):
    """Yields for each rank how a command is run on its host, and the address of rank 0's."""
    if arguments.gbps == 0:
        yield [[]] * arguments.ranks, "127.0.0.1"
        return
    from thalweg.lab import namespaces
    with namespaces.hosts(arguments.ranks, arguments.gbps) as names:
        if arguments.newcomer_gbps:
            namespaces.shape(names, arguments.ranks - 1, arguments.newcomer_gbps)
        # torchft tells others its host's name, so a host is called by its address.
        yield [["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"',
                namespaces.address(host)] for host, name in enumerate(names)], namespaces.address(0)


def compare_groups(arguments):
    with hosts(arguments) as (prefixes, store):
        environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "GLOO_SOCKET_IFNAME": "tw0" if arguments.gbps else "lo"}
        processes = [subprocess.Popen(
            [*prefix, sys.executable, __file__, *sys.argv[1:], "--rank", str(rank), "--store", store], text=True,
            stdout=subprocess.PIPE, env=environment) for rank, prefix in enumerate(prefixes)]
        try:
            told = [json.loads(one.communicate(timeout=480)[0].splitlines()[-1]) for one in processes]
        finally:
            for one in processes:
                one.kill()
                one.wait()
    result = {row: {} for row in ROUND_ROWS}
    for name in CLASSES:
        slowest = [[max(values) for values in zip(*turn, strict=True)]
                   for turn in zip(*(one["times"][name][1:] for one in told), strict=True)]
        for row, values in zip(ROUND_ROWS, zip(*slowest, strict=True), strict=True):
            result[row][name] = statistics.median(values)
    heals = {name: statistics.median(values) for name, values in told[-1]["heals"].items()} if arguments.heals else {}
    return result, heals


def compare_trainings(arguments):
    rows = {"step_s": "step of 4 replicas of examples/torchft_digits.py", "kill_to_step_s": "kill to next finished step",
            "join_to_step_s": "join to next finished step"}
    found = {name: [] for name in CLASSES}
    for _ in range(arguments.trainings):
        for name in CLASSES:
            with tempfile.NamedTemporaryFile() as file:
                subprocess.run([sys.executable, str(ROOT / "examples/torchft_digits.py"), "--backend", name,
                                "--heal", "survivors" if name == "thalweg" else "http",
                                "--heartbeat-ms", str(arguments.heartbeat_ms), "--steps", "1", "--json", file.name],
                               check=True, timeout=600, stdout=subprocess.DEVNULL,
                               env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
                found[name].append(json.loads(Path(file.name).read_text(encoding="utf-8")))
    return {label: {name: statistics.median(one[row] for one in found[name]) for name in CLASSES}
            for row, label in rows.items()} if arguments.trainings else {}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--gbps", type=float, default=1.0, help="of each host's link; 0: one host, the loopback device")
    parser.add_argument("--newcomer-gbps", type=float, help="of the newcomer's link, if it is another rate")
    parser.add_argument("--heals", type=int, default=3, help="newcomers that get the state, each way")
    parser.add_argument("--trainings", type=int, default=1)
    parser.add_argument("--heartbeat-ms", type=int, default=300)
    parser.add_argument("--json", help="write the result there")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)  # how the parent starts a rank
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if min(arguments.ranks - 1, arguments.rounds, arguments.megabytes, arguments.trainings + 1, arguments.heals + 1) < 1:
        parser.error("--ranks must be above 1, --rounds and --megabytes above 0, --heals and --trainings 0 or more")
    if not 0 <= arguments.gbps <= 100:
        parser.error(f"--gbps: {arguments.gbps:g}; from 0 to 100 is allowed")
    if arguments.newcomer_gbps is not None and not (arguments.gbps and 0 < arguments.newcomer_gbps <= 100):
        parser.error(f"--newcomer-gbps: {arguments.newcomer_gbps:g}; above 0 and up to 100 is allowed, with --gbps above 0")
    return arguments


def show(arguments, rows, heals):
    network = f"hosts with links of {arguments.gbps:g} Gb/s" if arguments.gbps else "one host"
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.ranks} ranks, {network}, {arguments.rounds} rounds, "
          f"{arguments.megabytes} MB, {arguments.trainings} trainings")
    print("\n| median, ms | Gloo | Thalweg | Gloo / Thalweg |\n|---|---|---|---|")
    for row, times in rows.items():
        gloo, ours = times["gloo"] * 1e3, times["thalweg"] * 1e3
        print(f"| {row} | {gloo:.1f} | {ours:.1f} | {gloo / ours:.2f} |")
    bits = arguments.megabytes * 8e6
    if arguments.gbps:
        # Each rank sends and receives 2 (n - 1) / n of the tensor.
        print(f"\nThe links allow {2 * (arguments.ranks - 1) / arguments.ranks * bits / arguments.gbps / 1e6:.0f} ms a step.")
    if not heals:
        return
    link = arguments.newcomer_gbps or arguments.gbps
    print(f"\n| a newcomer gets {arguments.megabytes} MB | ms | Gb/s | of its link, {link:g} Gb/s |\n|---|---|---|---|")
    for name, label in (("survivors", "from all others, by StateTransport"), ("thalweg", "over ProcessGroupThalweg"),
                        ("gloo", "over ProcessGroupGloo"), ("http", "over HTTP")):
        rate = bits / heals[name] / 1e9
        of_link = f"{rate / link:.2f}" if link else ""
        print(f"| {label} | {heals[name] * 1e3:.0f} | {rate:.2f} | {of_link} |")


def main():
    arguments = parse()
    if arguments.rank is not None:
        rank_of_group(arguments)
        return
    if arguments.gbps:
        from thalweg.lab import namespaces
        if why := namespaces.missing():
            raise SystemExit(f"{why}; or `--gbps 0`")
        namespaces.own_world()
    rows, heals = compare_groups(arguments)
    rows |= compare_trainings(arguments)
    show(arguments, rows, heals)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"rows": rows, "heals": heals, "cores": os.cpu_count()}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
