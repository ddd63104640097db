"""One rank of `thalweg bench gpu` (thalweg.lab.bench.gpu_allreduce starts it).

    python -m thalweg.lab.bench.gpu_allreduce_rank CONFIGURATION

CONFIGURATION is JSON: rank (default: RANK of the environment), ranks, host and port of the store,
device (cuda or cpu), sizes in bytes, model (null: none), libraries, rounds, turn_s and output, a file to which rank 0
writes its results. What follows a + in the name of a library, as in nccl+plugin, is a setting of
the environment.
"""
import json
import os
import sys
import time
from pathlib import Path

WARM_UP = 5  # calls before the first turn of a library
MOST_CALLS = 20  # in a sample
SAMPLE_S = 5e-4  # about how long the calls of a sample take together, if MOST_CALLS allows
MOST_SAMPLES = 200  # in a turn
LEAST_SAMPLES = 3
WARM_UP_STEPS = 2  # of training, at the beginning of each turn
STEPS = 6  # of training, in a turn
ALONE = "alone"  # training steps without communication
COPIES = "copies"  # a copy to pinned memory and one back, without a network
HOST = "host"  # Thalweg with tensors of pinned host memory: the network without copies


def shape_of_turn(call_s, turn_s):
    """Returns how many calls a sample has, and how many samples a turn has."""
    calls = max(1, min(MOST_CALLS, int(SAMPLE_S / call_s)))
    samples = max(LEAST_SAMPLES, min(MOST_SAMPLES, int(turn_s / (call_s * calls))))
    return calls, samples


class Rank:
    """The groups of a rank, and what is measured with them."""

    def __init__(self, configuration):
        import torch
        import torch.distributed as dist

        import thalweg  # noqa: F401

        self._torch, self._dist = torch, dist
        self._configuration = configuration
        self._rank, self._ranks = configuration["rank"], configuration["ranks"]
        self._on_gpu = configuration["device"] == "cuda"
        torch.set_num_threads(1)
        self._device = torch.device("cpu")
        if self._on_gpu:
            self._device = torch.device("cuda", self._rank % torch.cuda.device_count())
            torch.cuda.set_device(self._device)
        self.store = dist.TCPStore(configuration["host"], configuration["port"], self._ranks,
                                   is_master=self._rank == 0)
        dist.init_process_group("gloo", store=self.store, rank=self._rank, world_size=self._ranks)
        self._groups = {name: dist.new_group(backend=name.partition("+")[0])
                        for name in configuration["libraries"]}
        if "thalweg" in self._groups:
            self._groups[HOST] = dist.new_group(backend="thalweg")

    def measure_size(self, size):
        """Returns the results of all libraries for tensors of `size` bytes; they take turns."""
        values = self._torch.zeros(size // 4, device=self._device)
        pinned = self._torch.zeros(size // 4, pin_memory=self._on_gpu)
        libraries = self._configuration["libraries"]
        bodies = {name: self._allreduce(values, name) for name in libraries}
        if "thalweg" in libraries:
            bodies[HOST] = self._allreduce(pinned, HOST)
            bodies[COPIES] = self._copy(values, pinned)
        results = {}
        for name, body in bodies.items():
            if name not in (HOST, COPIES):
                self._check_sum(name, size)
            calls, samples = self._shape(body)
            results[name] = {"calls": calls, "samples": samples, "times_s": []}
        names = list(bodies)
        for turn in range(self._configuration["rounds"]):
            for i in range(len(names)):
                name = names[(i + turn) % len(names)]
                result = results[name]
                before = self._phases()
                result["times_s"] += self._turn(bodies[name], result["calls"], result["samples"])
                if name == "thalweg":
                    self._add_phases(result, before)
        return results

    def measure_steps(self, model):
        """Returns the times of training steps with each library; they take turns. ALONE does not communicate."""
        from thalweg.lab.bench.gpu_training import training

        steps = {name: training(model, self._device, self._groups[name])
                 for name in self._configuration["libraries"]}
        if "thalweg" in steps:
            steps[ALONE] = training(model, self._device, None)
        results = {name: {"calls": 1, "times_s": []} for name in steps}
        names = list(steps)
        for turn in range(self._configuration["rounds"]):
            for i in range(len(names)):
                name = names[(i + turn) % len(names)]
                self._dist.barrier()
                for _ in range(WARM_UP_STEPS):
                    steps[name]()
                self._synchronize()
                results[name]["times_s"] += [self._sample(steps[name], 1) for _ in range(STEPS)]
        return results

    def _allreduce(self, tensor, name):
        group = self._groups[name]
        return lambda: self._dist.all_reduce(tensor, group=group)

    def _copy(self, values, pinned):
        def copies():
            pinned.copy_(values, non_blocking=True)
            values.copy_(pinned, non_blocking=True)
        return copies

    def _check_sum(self, name, size):
        """Whole numbers, whose sum is exact; another one in every place and on every rank."""
        torch, ranks = self._torch, self._ranks
        places = (torch.arange(size // 4, device=self._device) % 1000).float()
        values = places + self._rank
        self._dist.all_reduce(values, group=self._groups[name])
        if not torch.equal(values, places * ranks + sum(range(ranks))):
            sys.exit(f"{name}: the sum of {size} bytes is wrong")

    def _synchronize(self):
        if self._on_gpu:
            self._torch.cuda.synchronize()

    def _shape(self, body):
        """Warms up. All ranks return what rank 0 has measured."""
        for _ in range(WARM_UP):
            body()
        self._synchronize()
        self._dist.barrier()
        call_s = self._sample(body, WARM_UP)
        shape = self._torch.tensor(shape_of_turn(call_s, self._configuration["turn_s"]))
        self._dist.broadcast(shape, 0)
        return [int(count) for count in shape]

    def _turn(self, body, calls, samples):
        self._dist.barrier()
        body()
        self._synchronize()
        return [self._sample(body, calls) for _ in range(samples)]

    def _sample(self, body, calls):
        """Returns the seconds that a call takes, on average over `calls`."""
        began = time.perf_counter()
        for _ in range(calls):
            body()
        self._synchronize()
        return (time.perf_counter() - began) / calls

    @staticmethod
    def _phases():
        from thalweg import _C
        return _C.staging_phases()

    def _add_phases(self, result, before):
        """Adds what the phases of Thalweg's calls took since `before`."""
        sums = result.setdefault("phases", dict.fromkeys([*before, "calls"], 0))
        sums["calls"] += 1 + result["calls"] * result["samples"]  # a turn has one that is not timed
        for name, value in self._phases().items():
            sums[name] += value - before[name]

    def end(self):
        self.store.add("ended", 1)
        while self._rank == 0 and self.store.add("ended", 0) < self._ranks:
            time.sleep(0.01)  # the store is in rank 0's process
        self._dist.destroy_process_group()


def main():
    configuration = json.loads(sys.argv[1])
    configuration.setdefault("rank", int(os.environ.get("RANK", 0)))
    # Ranks that name different hosts talk over NCCL's network, even on one GPU.
    os.environ["NCCL_HOSTID"] = f"host{configuration['rank']}"
    rank = Rank(configuration)
    results = {"sizes": {size: rank.measure_size(size) for size in configuration["sizes"]}}
    if configuration["model"] is not None:
        results["steps"] = rank.measure_steps(configuration["model"])
    if configuration["rank"] == 0:
        Path(configuration["output"]).write_text(json.dumps(results))
    rank.end()


if __name__ == "__main__":
    main()
