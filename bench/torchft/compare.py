"""Compares ProcessGroupThalweg with torchft's ProcessGroupGloo, in turns, on this machine.

    python bench/torchft/compare.py [--ranks 4] [--rounds 20] [--trainings 3]

First every rank of a group is a process: each round makes the group anew with both classes and
times configure(), the first allreduce after it, and one of --megabytes. Then
examples/torchft_digits.py trains with both, kills two of four replicas and adds one. Prints medians
as a table. The slowest rank of a round counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torchft.process_group import ProcessGroupGloo, ReconfigureOptions  # noqa: E402

from thalweg.torchft import ProcessGroupThalweg  # noqa: E402

CLASSES = {"gloo": ProcessGroupGloo, "thalweg": ProcessGroupThalweg}
POLL_S = 0.0005


class Ranks:
    """What the processes of a group tell each other beside the group."""

    def __init__(self, rank, size, port):
        self.rank, self.size = rank, size
        self.store = dist.TCPStore("localhost", port, is_master=False)

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

    Then the seconds of CPU that the process used for the first two, which other load changes little.
    """
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
    ranks.meet(f"large/{name}")
    large_began = time.perf_counter()
    group.allreduce([large], dist.ReduceOp.SUM).wait()
    return (configured - began, first - configured, first - began, time.perf_counter() - large_began,
            cpu_configured - cpu_began, cpu_first - cpu_configured)


def rank_of_group(rank, size, port, arguments):
    torch.set_num_threads(1)
    ranks = Ranks(rank, size, port)
    groups = {name: one() for name, one in CLASSES.items()}
    large = torch.ones(arguments.megabytes * 250_000)
    for turn in range(arguments.rounds + 1):
        for name, group in groups.items():
            large.fill_(1)
            times = one_round(group, f"{name}/{turn}", ranks, large)
            ranks.store.set(f"times/{name}/{turn}/{rank}", json.dumps(times))
    ranks.meet("end")


def compare_groups(arguments):
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    mp.spawn(rank_of_group, (arguments.ranks, store.port, arguments), nprocs=arguments.ranks)
    rows = ("configure()", "first allreduce, of 4 KB", "configure() and first allreduce",
            f"allreduce of {arguments.megabytes} MB", "CPU of configure()", "CPU of the first allreduce")
    result = {row: {} for row in rows}
    for name in CLASSES:
        slowest = []
        for turn in range(1, arguments.rounds + 1):  # the first round also makes what stays
            of_ranks = [json.loads(store.get(f"times/{name}/{turn}/{r}")) for r in range(arguments.ranks)]
            slowest.append([max(times) for times in zip(*of_ranks, strict=True)])
        for row, values in zip(rows, zip(*slowest, strict=True), strict=True):
            result[row][name] = statistics.median(values)
    return result


def compare_trainings(arguments):
    rows = {"step_s": "step of 4 replicas", "kill_to_step_s": "kill to next finished step",
            "join_to_step_s": "join to next finished step"}
    found = {name: [] for name in CLASSES}
    for _ in range(arguments.trainings):
        for name in CLASSES:
            with tempfile.NamedTemporaryFile() as file:
                subprocess.run([sys.executable, str(ROOT / "examples/torchft_digits.py"), "--backend", name,
                                "--heartbeat-ms", str(arguments.heartbeat_ms), "--steps", "1", "--json", file.name],
                               check=True, timeout=600, stdout=subprocess.DEVNULL,
                               env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
                found[name].append(json.loads(Path(file.name).read_text(encoding="utf-8")))
    return {label: {name: statistics.median(one[row] for one in found[name]) for name in CLASSES}
            for row, label in rows.items()} if arguments.trainings else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--trainings", type=int, default=3)
    parser.add_argument("--heartbeat-ms", type=int, default=300)
    arguments = parser.parse_args()
    if min(arguments.ranks - 1, arguments.rounds, arguments.megabytes, arguments.trainings + 1) < 1:
        parser.error("--ranks must be above 1, --rounds and --megabytes above 0, --trainings 0 or more")
    result = compare_groups(arguments) | compare_trainings(arguments)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.ranks} ranks, "
          f"{arguments.rounds} rounds, {arguments.trainings} trainings")
    print("\n| median, ms | Gloo | Thalweg | Gloo / Thalweg |\n|---|---|---|---|")
    for row, times in result.items():
        gloo, ours = times["gloo"] * 1e3, times["thalweg"] * 1e3
        print(f"| {row} | {gloo:.1f} | {ours:.1f} | {gloo / ours:.2f} |")


if __name__ == "__main__":
    main()
