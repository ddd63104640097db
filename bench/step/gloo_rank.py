"""A rank of `thalweg bench step --against gloo`: torch.distributed over Gloo.

The benchmark's process starts it with the variables that torch.distributed needs. Its first line of
input is a JSON object: `layerwise`, and `buckets` in the order of the backward pass, each a list of
elements, forward seconds and backward seconds. It prints its version when the ranks have met. Every
further line of input is a turn, "WARM_UP TIMED"; it plays those steps as
src/lab/bench/step/own_player.cc does, and prints "WRONG MS MS …", the times of the timed steps.
"""
import datetime
import json
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"PyTorch is not installed for {sys.executable} ({error}): tools/setup installs it, "
             "THALWEG_PYTHON names another Python")

LIMIT = datetime.timedelta(seconds=600)
TOLERANCE = 1e-3


def values(elements):
    """The same on every rank, so an average does not change them."""
    return (1 + torch.arange(elements) % 61).float() / 64


def sleep_until(moment):
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


class Player:
    def __init__(self, layerwise, buckets):
        self.layerwise = layerwise
        elements, self.forward_s, self.backward_s = zip(*buckets)
        self.expected = [values(count) for count in elements]
        self.tensors = [tensor.clone() for tensor in self.expected]
        self.flying = []  # the first buckets of a step, which have been sent
        self.ranks = dist.get_world_size()

    def wait_for(self, first):
        """Waits until the buckets from `first` on are back."""
        while len(self.flying) > first:
            self.flying.pop().wait()

    def wait_for_start(self):
        """Waits until the next step may begin."""
        self.wait_for(len(self.tensors) - 1 if self.layerwise else 0)

    def forward(self):
        until = time.perf_counter()
        for bucket in reversed(range(len(self.tensors))):
            if len(self.flying) > bucket:
                self.wait_for(bucket)
                until = max(until, time.perf_counter())
            until += self.forward_s[bucket]
            if self.layerwise or bucket == 0:
                sleep_until(until)

    def backward(self):
        until = time.perf_counter()
        for bucket, tensor in enumerate(self.tensors):
            until += self.backward_s[bucket]
            sleep_until(until)
            tensor.div_(self.ranks)  # as DDP does; Gloo has no average
            self.flying.append(dist.all_reduce(tensor, async_op=True))

    def play(self, warm_up, timed):
        starts = []
        for _ in range(warm_up + timed):
            self.wait_for_start()
            starts.append(time.perf_counter())
            self.forward()
            self.backward()
        self.wait_for_start()
        starts.append(time.perf_counter())
        self.wait_for(0)
        wrong = sum(int((~((tensor - expected).abs() <= TOLERANCE)).sum())
                    for tensor, expected in zip(self.tensors, self.expected))
        times = [1e3 * (end - start) for start, end in zip(starts[warm_up:], starts[warm_up + 1:])]
        return " ".join([str(wrong), *(f"{ms:.6f}" for ms in times)])


def main():
    plan = json.loads(sys.stdin.readline())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=LIMIT)
    player = Player(**plan)
    dist.barrier()
    print(f"PyTorch {torch.__version__}", flush=True)
    for line in sys.stdin:
        print(player.play(*map(int, line.split())), flush=True)


main()
