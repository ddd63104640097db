"""NCCL's allreduce over the Thalweg plugin and over NCCL's own sockets, by ranks on one GPU, in one run.

    python3 nccl_plugin_on_gpu.py --plugin libnccl-net-thalweg.so [--ranks 2 4] [--json FILE]

Needs python3, PyTorch with NCCL and one GPU. Ranks that name different hosts talk over the network, here loopback. The
script starts MPS in a folder of its own, so that ranks compute at once, and ends it. Sums are checked; NCCL's log must
name the plugin. Every measurement of the one alternates with one of the other, so that both meet the same machine.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = [1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
NETWORKS = ("nccl", "thalweg")


def rank_main(arguments):
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(0)
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", device_id=device)
    for size in sorted({4, 12, 1000 * 4, *SIZES}):
        # Whole numbers, whose sum is exact; another one in every place and on every rank.
        tensor = (torch.arange(size // 4, device=device) % 1000 + rank).float()
        dist.all_reduce(tensor)
        wanted = (torch.arange(size // 4, device=device) % 1000).float() * ranks + sum(range(ranks))
        if not torch.equal(tensor, wanted):
            raise SystemExit(f"rank {rank}: the sum of {size} bytes is wrong")
    results = {}
    for size in SIZES:
        tensor = torch.zeros(size // 4, device=device)
        calls = max(5, min(200, (256 << 20) // size // 4))
        for _ in range(5):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        samples = []
        for _ in range(arguments.repeat):
            dist.barrier(device_ids=[0])
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor)
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - start) / calls * 1e6)
        results[size] = samples
    if rank == 0:
        Path(os.environ["RESULT_FILE"]).write_text(json.dumps(results))
    dist.barrier(device_ids=[0])
    dist.destroy_process_group()


class Mps:
    """NVIDIA's MPS in a folder of its own; without it, ranks on one GPU take turns of milliseconds."""

    def __init__(self, folder):
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
                            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
        self.running = False
        for path in self.environment.values():
            Path(path).mkdir(parents=True)

    def __enter__(self):
        control = shutil.which("nvidia-cuda-mps-control")
        if control is None:
            print("there is no nvidia-cuda-mps-control: without MPS every call waits for time slices of the GPU")
        else:
            started = subprocess.run([control, "-d"], env={**os.environ, **self.environment}, timeout=60)
            self.running = started.returncode == 0
        return self

    def __exit__(self, *_):
        if self.running:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=60,
                           env={**os.environ, **self.environment})


def start_ranks(command, mps, ranks, folder, name, port, settings):
    """Starts a process for each rank, which names a host of its own; returns the processes and their logs."""
    processes, logs = [], []
    for rank in range(ranks):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0",
                       "LOCAL_WORLD_SIZE": str(ranks),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_HOSTID": f"host{rank}",
                       "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo",
                       "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", **settings}
        if mps.running:
            environment.update(mps.environment)
        log = open(folder / f"{name}-{ranks}-{port}-{rank}.log", "w")
        logs.append(Path(log.name))
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    return processes, logs


def wait_for(processes, seconds, meanwhile=lambda: None):
    """Waits until all have ended, and calls `meanwhile` again and again; returns their exit codes. Ends those that
    are late."""
    end = time.monotonic() + seconds
    try:
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            meanwhile()
            time.sleep(0.1)
        return ["still running" if process.poll() is None else process.returncode for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def plugin_settings(plugin):
    library = plugin.resolve()
    return {"NCCL_NET_PLUGIN": "thalweg",
            "LD_LIBRARY_PATH": f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


def run_ranks(arguments, mps, network, ranks, folder, port):
    """Runs the ranks once; returns rank 0's times by size."""
    result = folder / f"{network}-{ranks}-{port}.json"
    settings = plugin_settings(arguments.plugin) if network == "thalweg" else {"NCCL_NET_PLUGIN": "none"}
    processes, logs = start_ranks([sys.executable, __file__, "--rank", "--repeat", str(arguments.repeat)], mps, ranks,
                                  folder, network, port, {**settings, "RESULT_FILE": str(result)})
    codes = wait_for(processes, arguments.timeout)
    text = "".join(log.read_text() for log in logs)
    if any(code != 0 for code in codes) or not result.exists():
        print(text[-6000:])
        raise SystemExit(f"{network}, {ranks} ranks: exit codes {codes}")
    wanted = "Using network Thalweg" if network == "thalweg" else "Using network Socket"
    lines = [line for line in text.splitlines() if "Thalweg" in line or "Using network" in line]
    if wanted not in text:
        print("\n".join(lines))
        raise SystemExit(f"NCCL's log does not say '{wanted}'")
    if arguments.verbose:
        print("\n".join(lines[:6]))
    return {int(size): samples for size, samples in json.loads(result.read_text()).items()}


def median(samples):
    return sorted(samples)[len(samples) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", type=Path, help="libnccl-net-thalweg.so")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=2, help="runs of each network, in turns")
    parser.add_argument("--repeat", type=int, default=5, help="samples of a size in each run")
    parser.add_argument("--timeout", type=int, default=180, help="seconds for one run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true", help="show what NCCL says about its network")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        return rank_main(arguments)
    if arguments.plugin is None or arguments.plugin.name != "libnccl-net-thalweg.so" or not arguments.plugin.exists():
        parser.error("--plugin: the path of libnccl-net-thalweg.so")
    import torch

    if not torch.cuda.is_available():
        print("there is no GPU here: nothing was measured")
        return 0
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    settings = {name: value for name, value in os.environ.items() if name.startswith(("THALWEG_", "NCCL_"))}
    print(f"{torch.cuda.get_device_name()}, NCCL {nccl}, {os.cpu_count()} cores, {settings}")
    report = {"gpu": torch.cuda.get_device_name(), "nccl": nccl, "cores": os.cpu_count(), "settings": settings,
              "runs": []}
    port = 29500 + os.getpid() % 1000
    folder = Path(tempfile.mkdtemp(prefix="thalweg-nccl-"))
    try:
        with Mps(folder) as mps:
            report["mps"] = mps.running
            for ranks in arguments.ranks:
                times = {network: {size: [] for size in SIZES} for network in NETWORKS}
                for _ in range(arguments.rounds):
                    for network in NETWORKS:
                        port += 1
                        for size, samples in run_ranks(arguments, mps, network, ranks, folder, port).items():
                            times[network][size] += samples
                print(f"\n{ranks} ranks: µs an allreduce, median (all sums right)")
                print(f"{'size':>10} {'NCCL':>10} {'Thalweg':>10} {'NCCL / Thalweg':>15}")
                for size in SIZES:
                    ours, theirs = median(times["thalweg"][size]), median(times["nccl"][size])
                    name = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
                    print(f"{name:>10} {theirs:>10.0f} {ours:>10.0f} {theirs / ours:>15.2f}", flush=True)
                    report["runs"].append({"ranks": ranks, "bytes": size, "nccl_us": theirs, "thalweg_us": ours,
                                           "samples": {n: times[n][size] for n in NETWORKS}})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
