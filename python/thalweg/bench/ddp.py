"""Step times of DistributedDataParallel over Thalweg and over Gloo, in the same run, on hosts that lose packets.

    python -m thalweg.bench.ddp --loss 0.005 [--ranks 2] [--rate 1] [--bound 0.01] [--json FILE]

Each rank is a process in a network namespace of its own (root). Every variant trains a copy of the same model; they
take turns of some steps each, in the same processes, beginning with another one every time. The time of a step is
that of rank 0, which like all others waits for the gradients of the rest. `limit` is the least that the link allows:
the bytes that a rank must send for an allreduce of the gradients, at the rate of the link, next to no computation.
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

from thalweg.bench.hosts import DEVICE, PARTS, address, hosts, missing

MODELS = ("communication", "computation")
VARIANTS = ("gloo", "thalweg", "thalweg-dlcp")
TURNS = 3


def model_of(name):
    """One whose gradients take longer than its computation at 1 Gb/s, and one the other way round."""
    from torch import nn
    if name == "communication":
        return nn.Sequential(nn.Flatten(), nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256), nn.ReLU(),
                             nn.Linear(256, 10))
    return nn.Sequential(nn.Unflatten(1, (1, 256)), nn.Conv1d(1, 64, 5, padding=2), nn.ReLU(),
                         nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(256, 10))


def rank_main(arguments):
    """A rank: its times of steps, by model and variant, and what the link's limit is."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import thalweg
    import thalweg.torch

    torch.set_num_threads(1)
    rank, size = arguments.rank, arguments.ranks
    store = dist.TCPStore(address(0), 29555, size, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    options = thalweg.Options(line_rate_gbps=arguments.rate)
    groups = {"gloo": dist.group.WORLD, "thalweg": dist.new_group(backend="thalweg", pg_options=options),
              "thalweg-dlcp": dist.new_group(backend="thalweg", pg_options=options)}
    images, digits = torch.randn(32, 256), torch.randint(0, 10, (32,))
    results = {}
    for name in arguments.models:
        trainers = {}
        for variant in VARIANTS:
            torch.manual_seed(0)
            model = DistributedDataParallel(model_of(name), process_group=groups[variant])
            if variant == "thalweg-dlcp":
                state = thalweg.torch.GradientState(groups[variant], loss_bound=arguments.bound, dlcp=True)
                model.register_comm_hook(state, thalweg.torch.reduce_hook)
            trainers[variant] = (model, torch.optim.SGD(model.parameters(), lr=0.01))
        times = {variant: [] for variant in VARIANTS}
        for turn in range(TURNS):
            for i in range(len(VARIANTS)):
                variant = VARIANTS[(i + turn) % len(VARIANTS)]
                model, optimizer = trainers[variant]
                for step in range(arguments.steps + 2):
                    started = time.perf_counter()
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(images), digits).backward()
                    optimizer.step()
                    if step >= 2:  # the first two make connections and plans
                        times[variant].append(time.perf_counter() - started)
        gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        limit = gradient_bytes * 8 * 2 * (size - 1) / size / (arguments.rate * 1e9)
        results[name] = {"bytes": gradient_bytes, "limit_ms": limit * 1e3, "times": times}
    if rank == 0:
        arguments.output.write_text(json.dumps(results))
    store.add("ended", 1)
    while rank == 0 and store.add("ended", 0) < size:  # the store is rank 0's
        time.sleep(0.01)
    dist.destroy_process_group()


def summary(results):
    """Rows for people and programs: medians and 99th percentiles in ms, and Gloo's by ours."""
    rows = []
    for name, result in results.items():
        def of(variant, part, result=result):
            times = sorted(result["times"][variant])
            return 1e3 * (statistics.median(times) if part == "p50" else times[min(len(times) - 1,
                                                                                   int(0.99 * len(times)))])
        for variant in VARIANTS:
            rows.append({"model": name, "bytes": result["bytes"], "limit_ms": round(result["limit_ms"], 2),
                         "variant": variant, "mean_ms": round(1e3 * statistics.mean(result["times"][variant]), 2),
                         "p50_ms": round(of(variant, "p50"), 2), "p99_ms": round(of(variant, "p99"), 2),
                         "ratio_mean": round(statistics.mean(result["times"]["gloo"])
                                             / statistics.mean(result["times"][variant]), 2),
                         "ratio_p50": round(of("gloo", "p50") / of(variant, "p50"), 2),
                         "ratio_p99": round(of("gloo", "p99") / of(variant, "p99"), 2)})
    return rows


def run(arguments):
    with tempfile.TemporaryDirectory() as folder, hosts(arguments.ranks, arguments.rate, arguments.loss) as names:
        output = Path(folder) / "results.json"
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": DEVICE, "THALWEG_INTERFACE": DEVICE, "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "thalweg.bench.ddp", "--ranks", str(arguments.ranks), "--rate",
                 str(arguments.rate), "--bound", str(arguments.bound), "--steps", str(arguments.steps), "--models",
                 *arguments.models, "--output", str(output)]
        processes = [subprocess.Popen(["ip", "netns", "exec", name, *words, "--rank", str(rank)], env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for rank, name in enumerate(names)]
        end = time.monotonic() + arguments.timeout
        try:
            for rank, process in enumerate(processes):
                try:
                    text, _ = process.communicate(timeout=max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    sys.exit(f"thalweg.bench.ddp: rank {rank} has not ended within --timeout {arguments.timeout:g} s")
                if process.returncode != 0:
                    sys.exit(f"thalweg.bench.ddp: rank {rank} ended with {process.returncode}:\n{text[-3000:]}")
        finally:
            for process in processes:
                process.kill()
        return summary(json.loads(output.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1.0, help="of every link, in Gb/s")
    parser.add_argument("--loss", type=float, default=0.0, help="of packets, in [0, 1)")
    parser.add_argument("--bound", type=float, default=0.01, help="of gradients over DLCP, in [0, 1)")
    parser.add_argument("--steps", type=int, default=40, help="of a variant's turn; there are three turns")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="what is longer in their steps")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    parser.add_argument("--json", type=Path, help="also write the rows to a file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        rank_main(arguments)
        return
    for name, low, high in (("loss", 0, 1), ("bound", 0, 1), ("rate", 1e-3, 1e3), ("ranks", 2, 31), ("steps", 1, 1e6),
                            ("timeout", 1, 1e6)):
        value = getattr(arguments, name)
        if not low <= value < high:
            parser.error(f"--{name}: {value}; from {low:g} to below {high:g} is allowed")
    if 0 < arguments.loss < 1 / PARTS:
        parser.error(f"--loss: {arguments.loss:g}; 0, or from {1 / PARTS:g} on is allowed")
    if missing():
        parser.error(f"cannot make hosts: {missing()}")
    rows = run(arguments)
    print(f"{arguments.ranks} ranks, {arguments.rate:g} Gb/s, {arguments.loss:.2%} loss, bound {arguments.bound:g} over "
          "DLCP; ms a step; ratios are Gloo's time by this one's")
    print(f"{'model':15}{'limit':>8}{'variant':>15}{'mean':>9}{'p50':>9}{'p99':>9}{'ratio':>8}{'of p50':>8}{'of p99':>8}")
    for row in rows:
        print(f"{row['model']:15}{row['limit_ms']:8.1f}{row['variant']:>15}{row['mean_ms']:9.1f}{row['p50_ms']:9.1f}"
              f"{row['p99_ms']:9.1f}{row['ratio_mean']:8.2f}{row['ratio_p50']:8.2f}{row['ratio_p99']:8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
