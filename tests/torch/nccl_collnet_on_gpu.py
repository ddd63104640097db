"""NCCL's allreduce summed by a switch (CollNet, docs/nccl.md), by ranks on one GPU, beside NCCL without it.

    python3 nccl_collnet_on_gpu.py --plugin libnccl-net-thalweg.so --switch-command 'thalweg switch' [--json FILE]

Needs python3, PyTorch with NCCL and one GPU. Ranks that name different hosts talk over the network, here loopback.
Cases, of which each checks sums:

    off       the net plugin alone
    chain     NCCL may sum by CollNet only; the switch must have summed
    types     CollNet or rings; types and operations that CollNet does not take must fall back
    own       NCCL chooses
    dies      as chain; the switch is killed after the first half
    away      nobody is at THALWEG_SWITCH: NCCL falls back
    unset     THALWEG_SWITCH is not set: NCCL falls back
"""
import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nccl_plugin_on_gpu import Mps, median, plugin_settings, start_ranks, wait_for

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]
CHAIN = {"NCCL_ALGO": "allreduce:collnetchain"}
CASES = {
    "off": {"NCCL_COLLNET_ENABLE": "0"},
    "chain": CHAIN,
    "types": {"NCCL_ALGO": "allreduce:collnetchain,ring"},
    "own": {},
    "dies": CHAIN,
    "away": {},
    "unset": {},
}
AWAY = "127.0.0.1:1"


def check_sums(dist, torch, device, dtype, elements, operation="sum"):
    """Whole numbers, whose sums are exact; another one in every place and on every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    places = torch.arange(elements, device=device)
    tensor = ((places * 7 + rank * 3) % 30).to(dtype)
    all_ranks = torch.stack([(places * 7 + other * 3) % 30 for other in range(ranks)])
    if operation == "sum":
        dist.all_reduce(tensor)
        wanted = all_ranks.sum(0).to(dtype)
    else:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        wanted = all_ranks.max(0).values.to(dtype)
    if not torch.equal(tensor, wanted):
        wrong = (tensor != wanted).nonzero().flatten()
        raise SystemExit(f"rank {rank}: {operation} of {elements} {dtype} is wrong in {len(wrong)} places, first "
                         f"{wrong[:4].tolist()}: {tensor[wrong[:4]].tolist()}, not {wanted[wrong[:4]].tolist()}")


def check_all(dist, torch, device, others):
    supported = [torch.float32, torch.float16, torch.bfloat16, torch.int32]
    # Tensors of different types and sizes in turns, so that each finds what another left in NCCL's memory.
    for elements in (1, 3, 1000, 100_003, 1 << 20):
        for dtype in supported:
            check_sums(dist, torch, device, dtype, elements)
        if others:
            for dtype in (torch.int64, torch.float64, torch.uint8):
                check_sums(dist, torch, device, dtype, elements)
            check_sums(dist, torch, device, torch.float32, elements, "max")
    # What is not a number stays in its tensor.
    broken = torch.full((100_003,), float("inf"), device=device)
    dist.all_reduce(broken)
    if not torch.isinf(broken).all() and not torch.isnan(broken).all():
        raise SystemExit("a sum of infinities is finite")
    check_sums(dist, torch, device, torch.float32, 99_001)
    # Random numbers, against a sum in double precision. CollNet's error is relative to the block's largest element.
    for dtype, bound in ((torch.float32, 2.0 ** -21), (torch.bfloat16, 2.0 ** -7), (torch.float16, 2.0 ** -9)):
        parts = []
        for other in range(dist.get_world_size()):
            generator = torch.Generator(device=device).manual_seed(other)
            parts.append(torch.randn(300_000, device=device, generator=generator).to(dtype))
        tensor = parts[dist.get_rank()].clone()
        dist.all_reduce(tensor)
        wanted = sum(part.double() for part in parts)
        error = (tensor.double() - wanted).abs().max().item() / wanted.abs().max().item()
        if error > bound:
            raise SystemExit(f"the error of {dtype} is {error}, above {bound}")


def rank_main(arguments):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", device_id=device)
    rank, folder = dist.get_rank(), Path(os.environ["CASE_FOLDER"])
    check_all(dist, torch, device, arguments.case not in ("chain", "dies"))
    if arguments.case == "dies":
        torch.cuda.synchronize()
        if rank == 0:
            (folder / "half").touch()
            while not (folder / "killed").exists():
                time.sleep(0.01)
        check_all(dist, torch, device, False)
    results = {}
    for size in SIZES if arguments.case in ("off", "chain") else []:
        tensor = torch.zeros(size // 4, device=device)
        calls = max(3, min(50, (16 << 20) // size))
        samples = []
        for _ in range(4):
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor)
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - start) / calls * 1e6)
        results[size] = median(samples[1:])
    torch.cuda.synchronize()
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(results))
        time.sleep(1)  # the switch is asked meanwhile what it has summed
    dist.destroy_process_group()


class Switch:
    """A switch process, and what it says of itself."""

    def __init__(self, command, folder):
        config = folder / "switch.yaml"
        config.write_text("control: 127.0.0.1:0\n")
        self.process = subprocess.Popen([*shlex.split(command), "--config", str(config)], stdout=subprocess.PIPE,
                                        text=True)
        line = self.process.stdout.readline()
        if not line.startswith("control "):
            raise SystemExit(f"the switch said '{line}'")
        self.address = line.split()[1]
        self.completed = {}  # by job

    def ask(self):
        host, port = self.address.rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=2) as stream:
                stream.sendall(b'{"op": "stats"}\n')
                answer = json.loads(stream.makefile().readline())
        except (OSError, ValueError):
            return
        for job in answer["jobs"]:
            count = job["counters"].get("completed", 0)
            self.completed[job["job"]] = max(count, self.completed.get(job["job"], 0))

    def end(self):
        self.process.kill()
        self.process.wait()


def run_case(arguments, mps, case, ranks, folder, port):
    """Returns rank 0's times by size, what the switch summed, and lines of NCCL's log."""
    place = folder / f"{case}-{ranks}"
    place.mkdir()
    switch = None if case in ("away", "unset") else Switch(arguments.switch_command, place)
    settings = {**plugin_settings(arguments.plugin), "NCCL_COLLNET_ENABLE": "1", "NCCL_COLLNET_NODE_THRESHOLD": "2",
                "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING", "CASE_FOLDER": str(place), "THALWEG_NCCL_TIMEOUT": "60",
                **CASES[case]}
    if case != "unset":
        settings["THALWEG_SWITCH"] = AWAY if switch is None else switch.address
    command = [sys.executable, __file__, "--rank", "--case", case]
    start = time.monotonic()
    processes, logs = start_ranks(command, mps, ranks, place, case, port, settings)

    def meanwhile():
        if switch is not None:
            switch.ask()
        if case == "dies" and (place / "half").exists() and not (place / "killed").exists():
            switch.process.send_signal(signal.SIGKILL)
            switch.process.wait()
            (place / "killed").touch()

    try:
        codes = wait_for(processes, arguments.timeout, meanwhile)
    finally:
        if switch is not None:
            switch.end()
    text = "".join(log.read_text() for log in logs)
    if arguments.logs:
        with open(arguments.logs, "a") as everything:
            everything.write(f"\n===== {case}, {ranks} ranks\n{text}")
    words = ("Thalweg", "CollNet", "Collnet", "COLLNET", "collnet", "WARN", "Error", "is wrong")
    lines = [line for line in text.splitlines() if any(word in line for word in words)]
    completed = sum(switch.completed.values()) if switch is not None else 0
    result = place / "result.json"
    failed = any(code != 0 for code in codes) or not result.exists()
    print(f"\n{case}, {ranks} ranks: {'exit codes ' + str(codes) if failed else 'all sums right'}, "
          f"{time.monotonic() - start:.0f} s, switch completed {completed}", flush=True)
    if failed:
        print(text[-5000:])
    elif arguments.verbose:
        for line in dict.fromkeys(line.split("NCCL ", 1)[-1] for line in lines[:200]):
            print("   ", line[:170])
    report = {"case": case, "ranks": ranks, "completed": completed, "failed": failed}
    if not failed:
        report["us"] = {int(size): us for size, us in json.loads(result.read_text()).items()}
    return report, text


def judge(report, text):
    """What is wrong with a case that ran; none: nothing."""
    case = report["case"]
    if report["failed"]:
        return "a rank failed"
    # With two ranks each adds its own gradients itself, and nothing is left to sum.
    if case in ("chain", "dies") and report["ranks"] > 2 and report["completed"] == 0:
        return "the switch summed nothing"
    if case in ("off", "away", "unset") and report["completed"] != 0:
        return "the switch summed"
    if case in ("chain", "dies", "types") and "COLLNET/Thalweg" not in text:
        return "NCCL's log does not name COLLNET/Thalweg"
    if case == "away" and "no switch takes the job" not in text:
        return "NCCL's log does not say that there is no switch"
    if case == "unset" and "THALWEG_SWITCH is not set" not in text:
        return "NCCL's log does not say that THALWEG_SWITCH is not set"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", type=Path, help="libnccl-net-thalweg.so")
    parser.add_argument("--switch-command", default="thalweg switch", help="how a switch is started")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one case")
    parser.add_argument("--budget", type=int, default=165, help="seconds after which no case is started")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, help="file to which NCCL's logs are added")
    parser.add_argument("--verbose", action="store_true", help="show what NCCL says about CollNet")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        return rank_main(arguments)
    if arguments.plugin is None or arguments.plugin.name != "libnccl-net-thalweg.so" or not arguments.plugin.exists():
        parser.error("--plugin: the path of libnccl-net-thalweg.so")
    import torch

    if not torch.cuda.is_available():
        print("there is no GPU here: nothing was run")
        return 0
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"{torch.cuda.get_device_name()}, NCCL {nccl}, {os.cpu_count()} cores", flush=True)
    reports, wrong = [], []
    begin = time.monotonic()
    port = 29500 + os.getpid() % 1000
    folder = Path(tempfile.mkdtemp(prefix="thalweg-collnet-"))
    # The cases that matter most come first.
    wanted = [(case, ranks) for case, ranks in [("chain", 2), ("off", 2), ("unset", 2), ("away", 2), ("types", 2),
                                                ("chain", 4), ("off", 4), ("dies", 2), ("own", 2)]
              if case in arguments.cases]
    try:
        with Mps(folder) as mps:
            for case, ranks in wanted:
                if time.monotonic() - begin > arguments.budget:
                    print(f"\n{case}, {ranks} ranks: not run, because the time is over")
                    continue
                port += 1
                report, text = run_case(arguments, mps, case, ranks, folder, port)
                reports.append(report)
                if complaint := judge(report, text):
                    print(f"    WRONG: {complaint}")
                    wrong.append(f"{case}, {ranks} ranks: {complaint}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for ranks in (2, 4):
        times = {report["case"]: report["us"] for report in reports if report["ranks"] == ranks and report.get("us")}
        if {"off", "chain"} <= times.keys():
            print(f"\n{ranks} ranks: µs an allreduce, median")
            print(f"{'size':>10} {'without':>10} {'CollNet':>10}")
            for size in SIZES:
                name = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
                print(f"{name:>10} {times['off'][size]:>10.0f} {times['chain'][size]:>10.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"nccl": nccl, "cores": os.cpu_count(), "runs": reports}, indent=1) + "\n")
    print("\n" + ("wrong: " + "; ".join(wrong) if wrong else "all cases right"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
