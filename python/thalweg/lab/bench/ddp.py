"""Measures steps of data-parallel training with Thalweg and with Gloo on hosts that lose packets.

    python -m thalweg.lab.bench.ddp --loss 0.005 [--ranks 2] [--rate 1] [--bound 0.01]
                                    [--congestion bbr cubic] [--json FILE]

Each rank is a process in a network namespace of its own, which needs root. Every variant trains a
copy of the same model. The variants take turns of some steps each, in the same processes, and each
round of turns begins with another variant. Step times are those of rank 0, which waits for the
gradients of all ranks, as every rank does. `limit` is the shortest time that the link allows: the
bytes that a rank must send for an allreduce of the gradients, at the rate of the link. `compute` is
the median step of the same model without communication, on all ranks at once. On average no step
can be shorter than either.

`gloo` and `thalweg` are DistributedDataParallel. `thalweg-dlcp` is DistributedDataParallel with
thalweg.torch.reduce_hook and a loss bound. `layerwise` is thalweg.torch.LayerWise, whose transfers
also overlap the next forward pass, and `layerwise-dlcp` is the same with a loss bound. Everything
runs once with each congestion control of TCP: the system's, and CUBIC, which is Linux's default.
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

from thalweg.lab.bench.ranks import wait_for_ranks
from thalweg.lab.namespaces import (DEVICE, PARTS, address, congestion_control,
                                    congestion_controls, hosts, missing, own_world)
from thalweg.lab.testbed import percentile

MODELS = ("communication", "mixed", "computation")
VARIANTS = ("gloo", "thalweg", "thalweg-dlcp", "layerwise", "layerwise-dlcp")
ALONE = "alone"  # trains without communication
TURNS = 3
# Size of a DDP bucket. A model of 4 MB then has as many buckets as one of 100 MB has with DDP's
# default of 25 MB.
BUCKET_MB = 1
WARM_UP = 2  # first steps of a turn, which make connections and plans and are not counted
PORT = 29555


def model_of(name, scale):
    """Makes a model by its name, one of MODELS.

    At 1 Gb/s the gradients of `communication` take much longer than its computation. Those of
    `mixed`, the same model with more images per step, take somewhat longer, and those of
    `computation` are faster. `scale` makes the first two about so many times larger; use less than
    1 for slower links.
    """
    from torch import nn
    if name != "computation":
        width = max(1, round(376 * scale**0.5))
        hidden = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(256, width), nn.ReLU(), *hidden, nn.Linear(width, 256),
                             nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(nn.Unflatten(1, (1, 256)), nn.Conv1d(1, 64, 5, padding=2), nn.ReLU(),
                         nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
                         nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
                         nn.Flatten(), nn.Linear(256, 10))


def images_of(name):
    return 192 if name == "mixed" else 32


class _Trainer:
    """Trains a model by one of the variants."""

    def __init__(self, variant, model, groups, bound):
        import torch

        from thalweg.torch import GradientState, LayerWise, reduce_hook
        lossy = variant.endswith("-dlcp")
        group = groups["thalweg-dlcp" if lossy else "gloo" if variant == "gloo" else "thalweg"]
        state = GradientState(group, loss_bound=bound if lossy else 0.0, dlcp=lossy)
        self._loss = torch.nn.functional.cross_entropy
        self._model = model
        self.finish = lambda: None
        if variant.startswith("layerwise"):
            self._optimizer = LayerWise(
                model, lambda parameters: torch.optim.SGD(parameters, lr=0.01), state)
            self.finish = self._optimizer.finish
            self._zero = lambda: None
            return
        if variant != ALONE:
            self._model = torch.nn.parallel.DistributedDataParallel(
                model, process_group=group, bucket_cap_mb=BUCKET_MB)
        if lossy:
            self._model.register_comm_hook(state, reduce_hook)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self._zero = self._optimizer.zero_grad

    def step(self, images, digits):
        self._zero()
        self._loss(self._model(images), digits).backward()
        self._optimizer.step()


def _times(trainers, batch, steps):
    """Returns the step times of every variant. The variants take turns."""
    import torch
    images, digits = torch.randn(batch, 256), torch.randint(0, 10, (batch,))
    times = {variant: [] for variant in trainers}
    for turn in range(TURNS):
        for i in range(len(trainers)):
            variant = list(trainers)[(i + turn) % len(trainers)]
            for step in range(steps + WARM_UP):
                started = time.perf_counter()
                trainers[variant].step(images, digits)
                if step >= WARM_UP:
                    times[variant].append(time.perf_counter() - started)
            trainers[variant].finish()
    return times


def rank_main(arguments):
    """Runs a rank. Rank 0 writes the step times, by model and variant, and the link's limit."""
    import torch
    import torch.distributed as dist

    import thalweg

    torch.set_num_threads(1)
    rank, size = arguments.rank, arguments.ranks
    store = dist.TCPStore(address(0), PORT, size, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    options = thalweg.Options(line_rate_gbps=arguments.rate)
    groups = {"gloo": dist.group.WORLD,
              "thalweg": dist.new_group(backend="thalweg", pg_options=options),
              "thalweg-dlcp": dist.new_group(backend="thalweg", pg_options=options)}
    results = {}
    for name in arguments.models:
        trainers = {}
        for variant in (*arguments.variants, ALONE):
            torch.manual_seed(0)
            model = model_of(name, arguments.scale)
            trainers[variant] = _Trainer(variant, model, groups, arguments.bound)
        gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        limit = gradient_bytes * 8 * 2 * (size - 1) / size / (arguments.rate * 1e9)
        results[name] = {"bytes": gradient_bytes, "limit_ms": limit * 1e3,
                         "times": _times(trainers, images_of(name), arguments.steps)}
    if rank == 0:
        arguments.output.write_text(json.dumps(results))
    store.add("ended", 1)
    while rank == 0 and store.add("ended", 0) < size:  # the store is in rank 0's process
        time.sleep(0.01)
    dist.destroy_process_group()


def summary(results):
    """Returns a row for each model and variant.

    A row has the mean, the median and the 99th percentile of step times in ms, and for each of them
    the ratio Gloo / this variant.
    """
    rows = []
    for name, result in results.items():
        def of(variant, part, result=result):
            times = sorted(result["times"][variant])
            seconds = {"mean": statistics.mean(times), "p50": statistics.median(times),
                       "p99": percentile(times, 0.99)}
            return 1e3 * seconds[part]
        for variant in result["times"]:
            if variant == ALONE:
                continue
            row = {"model": name, "bytes": result["bytes"],
                   "limit_ms": round(result["limit_ms"], 2),
                   "compute_ms": round(of(ALONE, "p50"), 2), "variant": variant}
            for part in ("mean", "p50", "p99"):
                row[f"{part}_ms"] = round(of(variant, part), 2)
                row[f"ratio_{part}"] = round(of("gloo", part) / of(variant, part), 2)
            rows.append(row)
    return rows


def run(arguments, congestion):
    """Runs the benchmark with one congestion control, and returns its rows."""
    with tempfile.TemporaryDirectory() as folder, \
            hosts(arguments.ranks, arguments.rate, arguments.loss, congestion) as names:
        output = Path(folder) / "results.json"
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": DEVICE, "THALWEG_INTERFACE": DEVICE,
                       "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "thalweg.lab.bench.ddp", "--output", str(output)]
        for name in ("ranks", "rate", "bound", "steps", "scale"):
            words += [f"--{name}", str(getattr(arguments, name))]
        words += ["--models", *arguments.models, "--variants", *arguments.variants]
        logs = [Path(folder) / f"rank{rank}" for rank in range(arguments.ranks)]
        processes = []
        for rank, name in enumerate(names):
            with logs[rank].open("w") as log:
                processes.append(subprocess.Popen(
                    ["ip", "netns", "exec", name, *words, "--rank", str(rank)], env=environment,
                    stdout=log, stderr=subprocess.STDOUT))
        wait_for_ranks("thalweg.lab.bench.ddp", processes, arguments.timeout,
                       f"--timeout {arguments.timeout:g} s", lambda rank: logs[rank].read_text())
        rows = summary(json.loads(output.read_text()))
        return [{"congestion": congestion, **row} for row in rows]


def show(rows):
    print(f"{'TCP':6}{'model':15}{'limit':>8}{'compute':>9}{'variant':>16}{'mean':>9}{'p50':>9}"
          f"{'p99':>9}{'ratio':>8}{'of p50':>8}{'of p99':>8}")
    for row in rows:
        print(f"{row['congestion']:6}{row['model']:15}{row['limit_ms']:8.1f}"
              f"{row['compute_ms']:9.1f}{row['variant']:>16}{row['mean_ms']:9.1f}"
              f"{row['p50_ms']:9.1f}{row['p99_ms']:9.1f}"
              f"{row['ratio_mean']:8.2f}{row['ratio_p50']:8.2f}{row['ratio_p99']:8.2f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1.0, help="rate of every link, in Gb/s")
    parser.add_argument("--loss", type=float, default=0.0,
                        help="fraction of packets lost, in [0, 1)")
    parser.add_argument("--bound", type=float, default=0.01,
                        help="loss bound of gradients over DLCP, in [0, 1)")
    parser.add_argument("--steps", type=int, default=40,
                        help="steps per turn of a variant; each has three turns")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS,
                        help="models, named by what takes longer in their steps")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="size of the communication model / its usual 4.2 MB")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS,
                        help="gloo must be among them")
    defaults = {congestion_control()} | ({"cubic"} & set(congestion_controls()))
    parser.add_argument("--congestion", nargs="+", default=sorted(defaults),
                        help="TCP's congestion controls, one run each (default: the system's, and "
                        "cubic)")
    parser.add_argument("--timeout", type=float, default=300.0, help="limit of a run, in seconds")
    parser.add_argument("--json", type=Path, help="also write the rows to a file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return arguments
    for name, low, high in (("loss", 0, 1), ("bound", 0, 1), ("rate", 1e-3, 1e3), ("ranks", 2, 31),
                            ("steps", 1, 1e6), ("scale", 1e-3, 1e3), ("timeout", 1, 1e6)):
        value = getattr(arguments, name)
        if not low <= value < high:
            parser.error(f"--{name}: {value}; from {low:g} to below {high:g} is allowed")
    if 0 < arguments.loss < 1 / PARTS:
        parser.error(f"--loss: {arguments.loss:g}; 0, or from {1 / PARTS:g} on is allowed")
    if "gloo" not in arguments.variants:
        parser.error(f"--variants: {' '.join(arguments.variants)}; gloo must be among them")
    unknown = set(arguments.congestion) - set(congestion_controls())
    if unknown:
        parser.error(f"--congestion: {' '.join(sorted(unknown))}; "
                     f"{', '.join(congestion_controls())} are allowed")
    if missing():
        parser.error(f"cannot make hosts: {missing()}")
    return arguments


def main():
    arguments = parse()
    if arguments.rank is not None:
        rank_main(arguments)
        return
    own_world()
    print(f"{arguments.ranks} ranks, {arguments.rate:g} Gb/s, {arguments.loss:.2%} loss, bound "
          f"{arguments.bound:g} over DLCP; times in ms per step; ratios are Gloo / this variant")
    rows = [row for congestion in arguments.congestion for row in run(arguments, congestion)]
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
