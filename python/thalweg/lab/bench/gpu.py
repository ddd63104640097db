"""Measures how fast Thalweg and Gloo stage and reduce GPU tensors and train with them.

    python -m thalweg.lab.bench.gpu [--ranks 2] [--mib 256] [--rounds 10] [--model resnet50]
                                    [--json FILE]

Each rank is a process. Several ranks may share a GPU, and all measure at the same time. Every rank
measures the same tensor: `copy` moves it to pinned memory and back by two plain copies, one after
the other. `staged` is an allreduce in a group of this rank alone, which moves the same bytes but
uses no network. `gloo` and `thalweg` are allreduces of all ranks. If torchvision is installed,
steps of a model of thalweg.lab.record_models follow, with DDP on random images. Times are medians
of rank 0's times.
"""
import argparse
import importlib.util
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

from thalweg.lab.bench.gpu_training import training
from thalweg.lab.bench.ranks import wait_for_ranks

WARM_UP = 3
SECONDS = 300


def _median_s(rounds, body, torch, dist):
    times = []
    for round_ in range(WARM_UP + rounds):
        dist.barrier()  # in the default group, whose backend is Gloo
        torch.cuda.synchronize()
        started = time.perf_counter()
        body()
        torch.cuda.synchronize()
        if round_ >= WARM_UP:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def _rank(rank, arguments, store, output):
    import torch
    import torch.distributed as dist

    import thalweg  # noqa: F401

    torch.set_num_threads(1)
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                            world_size=arguments.ranks)
    groups = {"gloo": dist.group.WORLD, "thalweg": dist.new_group(backend="thalweg")}
    alone = [dist.new_group([one], backend="thalweg") for one in range(arguments.ranks)][rank]
    values = torch.zeros(arguments.mib * (1 << 20) // 4, device=device)
    host = torch.empty(values.shape, pin_memory=True)

    def copy():
        host.copy_(values, non_blocking=True)
        values.copy_(host, non_blocking=True)

    def measure(body):
        return _median_s(arguments.rounds, body, torch, dist)

    seconds = {"copy": measure(copy),
               "staged": measure(lambda: dist.all_reduce(values, group=alone))}
    for name, group in groups.items():
        seconds[name] = measure(lambda group=group: dist.all_reduce(values, group=group))
    steps = {}
    if arguments.model:
        steps = {name: measure(training(arguments.model, device, group))
                 for name, group in groups.items()}
    if rank == 0:
        output.write_text(json.dumps({"device": torch.cuda.get_device_name(device),
                                      "seconds": seconds, "steps": steps}))
    dist.barrier()
    dist.destroy_process_group()


def summary(results, mib):
    """Returns the row that is printed.

    Rates are in GB/s of the bytes that pass between GPU and host, in both directions together.
    """
    seconds = results["seconds"]
    moved = 2 * mib * (1 << 20)
    rates = {f"{name}_gb_per_s": round(moved / time_s / 1e9, 2)
             for name, time_s in seconds.items()}
    ratios = {"staged_by_copy": round(seconds["copy"] / seconds["staged"], 2),
              "thalweg_by_gloo": round(seconds["gloo"] / seconds["thalweg"], 2)}
    steps = {f"{name}_step_ms": round(1e3 * time_s, 2)
             for name, time_s in results["steps"].items()}
    if steps:
        steps["step_thalweg_by_gloo"] = round(
            results["steps"]["gloo"] / results["steps"]["thalweg"], 2)
    return {"device": results["device"], "mib": mib, **rates, **ratios, **steps}


def run(arguments):
    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        store = Path(folder) / "store"
        ranks = [start.Process(target=_rank, args=(rank, arguments, store, output))
                 for rank in range(arguments.ranks)]
        for process in ranks:
            process.start()
        wait_for_ranks("thalweg.lab.bench.gpu", ranks, SECONDS, f"{SECONDS} s")
        return summary(json.loads(output.read_text()), arguments.mib)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=int, default=256, help="size of the tensor")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--model", default="resnet50",
                        help="a model of thalweg.lab.record_models; empty trains none")
    parser.add_argument("--json", type=Path, help="also write the row to a file")
    arguments = parser.parse_args()
    for name, low, high in (("ranks", 1, 64), ("mib", 1, 8192), ("rounds", 1, 10_000)):
        value = getattr(arguments, name)
        if not low <= value <= high:
            parser.error(f"--{name}: {value}; from {low} to {high} is allowed")
    import torch
    if not torch.cuda.is_available():
        parser.error("there is no GPU that PyTorch can use")
    if importlib.util.find_spec("torchvision") is None:
        print("torchvision is not installed: no training steps", file=sys.stderr)
        arguments.model = ""
    elif arguments.model:
        from thalweg.lab.record_models import RECIPES
        if arguments.model not in RECIPES:
            parser.error(f"--model: {arguments.model}; {', '.join(RECIPES)} are allowed")
    row = run(arguments)
    for key, value in row.items():
        print(f"{key:24}{value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
