"""A rank of `thalweg bench allreduce --against gloo`: torch.distributed over Gloo.

    gloo_rank.py TYPE OP STORE      with RANK and WORLD_SIZE in the environment

src/lab/bench/allreduce/rank.h describes the messages that it gets and sends, and its checks.
"""
import datetime
import os
import socket
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"PyTorch is not installed for {sys.executable} ({error}): tools/setup installs it, "
             "THALWEG_PYTHON names another Python")

PERIOD = 1009
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
       "max": dist.ReduceOp.MAX}
LIMIT = datetime.timedelta(seconds=60)


def contribution(op, rank):
    mixed = (torch.arange(PERIOD, dtype=torch.int64) * 31 + rank * 17) % PERIOD
    return 1 + mixed % (2 if op == "product" else 5)


def expectation(op, ranks):
    all_ranks = torch.stack([contribution(op, rank) for rank in range(ranks)])
    return {"sum": all_ranks.sum(0), "product": all_ranks.prod(0), "min": all_ranks.amin(0),
            "max": all_ranks.amax(0)}[op]


class Rank:
    def __init__(self, type_name, op):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.type, self.op = getattr(torch, type_name), OPS[op]
        self.own = contribution(op, self.rank).to(self.type)
        self.expected = expectation(op, self.ranks).to(self.type)
        self.neutral = torch.full((PERIOD,), 0 if op == "sum" else 1, dtype=self.type)

    @staticmethod
    def tiled(pattern, elements):
        return pattern.repeat(elements // PERIOD + 1)[:elements]

    def wrong(self, tensor, pattern):
        return int((tensor != self.tiled(pattern, tensor.numel())).sum())

    def check(self, tensor):
        tensor.copy_(self.tiled(self.own, tensor.numel()))
        dist.all_reduce(tensor, self.op)
        return self.wrong(tensor, self.expected)

    def measure(self, elements, warm_up, calls):
        tensor = torch.empty(elements, dtype=self.type)
        wrong = self.check(tensor)
        tensor.copy_(self.tiled(self.neutral, elements))
        for _ in range(warm_up):
            dist.all_reduce(tensor, self.op)
        times = []
        for _ in range(calls):
            start = time.perf_counter_ns()
            dist.all_reduce(tensor, self.op)
            times.append(time.perf_counter_ns() - start)
        wrong += self.wrong(tensor, self.neutral)
        wrong += self.check(tensor)
        return " ".join(map(str, ["measured", wrong, *times]))

    @staticmethod
    def idle(milliseconds):
        before = time.process_time()
        time.sleep(milliseconds / 1000)
        return f"idle {(time.process_time() - before) / (milliseconds / 1000):.6f}"

    def serve(self, control):
        control.send(f"hello {self.rank} PyTorch {torch.__version__}".encode())
        while message := control.recv(1 << 17).decode():
            verb, *numbers = message.split()
            answer = {"measure": self.measure, "idle": self.idle}[verb](*map(int, numbers))
            control.send(answer.encode())


def main():
    type_name, op, store = sys.argv[1:]
    torch.set_num_threads(1)
    rank = Rank(type_name, op)
    dist.init_process_group("gloo", store=dist.FileStore(store, rank.ranks), rank=rank.rank,
                            world_size=rank.ranks, timeout=LIMIT)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(os.environ["THALWEG_BENCH_CONTROL"])
    try:
        rank.serve(control)
    except Exception as error:  # any exception, so that the benchmark can show it
        control.send(f"failed {error}".encode())
        raise
    # Skips the destructor of the store, which fails if the store's file is gone.
    os._exit(0)


main()
