"""`thalweg bench gpu`: allreduces of GPU tensors by Thalweg, NCCL and Gloo (docs/bench-gpu.md).

    python -m thalweg.lab.bench.gpu_allreduce [--against nccl,gloo] [--ranks 2,4]
                                              [--sizes 1KiB,1MiB] [--json]
"""
import argparse
import difflib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from thalweg.lab.bench.gpu_allreduce_rank import COPIES, HOST
from thalweg.lab.bench.mps import Mps
from thalweg.lab.bench.ranks import wait_for_ranks
from thalweg.lab.testbed import percentile

PROGRAM = "thalweg bench gpu"
PEERS = ("nccl", "gloo")
KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
LARGEST = 1 << 30
MOST_RANKS = 16
UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6,
         "GB": 10**9}
PHASES = ("enqueue", "arrive", "start", "operation", "back")
# Ranks that name different hosts talk over NCCL's sockets, even on one GPU.
NCCL_OVER_SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1",
                     "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET_PLUGIN": "none"}


class BadInput(Exception):
    """An option that is wrong, or something that this machine lacks."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        _, unknown, words = message.partition("unrecognized arguments: ")
        if unknown:
            word = words.split()[0].split("=")[0]
            near = difflib.get_close_matches(word, self._option_string_actions, 1)
            message = f"'{word}' is not one of its options" + (
                f"; did you mean '{near[0]}'?" if near else "")
        raise BadInput(message)


def report(message, as_json):
    """Prints an error on stderr and, with as_json, as JSON on stdout. Returns the exit code."""
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": f"{PROGRAM}: {message}", "exit_code": 2}, indent=2), flush=True)
    return 2


def bytes_of(text):
    """Returns the bytes that a size such as 64KiB or 4MB means."""
    match = re.fullmatch(r"(\d{1,12})\s*([A-Za-z]*)", text)
    factor = UNITS.get(match[2].upper()) if match else None
    size = int(match[1]) * factor if factor else 0
    if size < 4 or size > LARGEST or size % 4 != 0:
        raise BadInput(f"--sizes: {text}; multiples of 4 bytes up to 1GiB are allowed, such as 1KiB")
    return size


def name_of(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse(words):
    parser = _Parser(prog=PROGRAM, allow_abbrev=False,
                     description="allreduces of GPU tensors by Thalweg and its peers, in one run",
                     epilog=f"Example: {PROGRAM} --against nccl --ranks 2 --sizes 1KiB,1MiB --json")
    parser.add_argument("--against", default="nccl,gloo",
                        help="peers: nccl, gloo, both or none (nccl,gloo)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (2,4)")
    parser.add_argument("--sizes", help="sizes of tensors, such as 1KiB,1MiB (1KiB to 64MiB)")
    parser.add_argument("--rounds", type=int, default=5,
                        help="turns of each library with each size (5)")
    parser.add_argument("--turn", type=float, default=0.1, help="about how long a turn is, in s")
    parser.add_argument("--timeout", type=float, default=300.0,
                        help="limit for one number of ranks, in s")
    parser.add_argument("--device", default="cuda",
                        help="cpu measures tensors of the host, on a machine without a GPU (cuda)")
    parser.add_argument("--no-mps", action="store_true", help="do not start MPS")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    parser.add_argument("--out", type=Path, help="file for all numbers, as JSON")
    arguments = parser.parse_args(words)
    check(arguments)
    return arguments


def check(arguments):
    """Turns lists into lists, and raises BadInput for what is not allowed."""
    for name, low, high in (("rounds", 1, 1000), ("turn", 0.001, 60), ("timeout", 1, 86400)):
        value = getattr(arguments, name)
        if not low <= value <= high:
            raise BadInput(f"--{name}: {value:g}; from {low:g} to {high:g} is allowed")
    if arguments.device not in ("cuda", "cpu"):
        raise BadInput(f"--device: {arguments.device}; cuda and cpu are allowed")
    peers = [] if arguments.against == "none" else arguments.against.split(",")
    for peer in peers:
        if peer not in PEERS or peers.count(peer) > 1:
            raise BadInput(f"--against: {arguments.against}; nccl, gloo, both or none is allowed")
    if arguments.device == "cpu" and "nccl" in peers:
        raise BadInput("--against: nccl; with --device cpu only gloo and none are allowed")
    if arguments.out is not None and not arguments.out.parent.is_dir():
        raise BadInput(f"--out: {arguments.out}; there is no folder {arguments.out.parent}")
    counts = []
    for word in arguments.ranks.split(","):
        if not re.fullmatch(r"\d{1,3}", word) or not 2 <= int(word) <= MOST_RANKS:
            raise BadInput(f"--ranks: {word}; numbers from 2 to {MOST_RANKS} are allowed")
        counts.append(int(word))
    arguments.against, arguments.ranks = peers, counts
    arguments.sizes = SIZES if arguments.sizes is None else [
        bytes_of(word.strip()) for word in arguments.sizes.split(",")]


def machine(arguments):
    """Returns what the results depend on. Raises BadInput if something is missing."""
    try:
        import torch
    except ImportError as problem:
        raise BadInput(f"PyTorch cannot be loaded by {sys.executable}: {problem}; tools/setup "
                       "installs it, THALWEG_PYTHON names another Python") from problem
    facts = {"device": "cpu", "gpus": 0, "cores": os.cpu_count(), "torch": torch.__version__}
    if arguments.device == "cpu":
        return facts
    if not torch.cuda.is_available():
        raise BadInput("there is no GPU that PyTorch can use; nothing was measured "
                       "(--device cpu measures tensors of the host)")
    facts.update(device=torch.cuda.get_device_name(), gpus=torch.cuda.device_count())
    if "nccl" in arguments.against:
        if not torch.distributed.is_nccl_available():
            raise BadInput("--against: nccl; this PyTorch has no NCCL")
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(arguments, ranks, mps):
    """Runs the ranks, and returns rank 0's results: by size, by library."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        common = {"ranks": ranks, "port": _free_port(), "device": arguments.device,
                  "sizes": arguments.sizes, "libraries": ["thalweg", *arguments.against],
                  "rounds": arguments.rounds, "turn_s": arguments.turn, "output": str(output)}
        logs = [Path(folder) / f"rank{rank}" for rank in range(ranks)]
        processes = []
        for rank, path in enumerate(logs):
            # Shared memory is off, so that all libraries use the network, here loopback.
            environment = {**os.environ, **NCCL_OVER_SOCKETS, **mps.environment,
                           "NCCL_HOSTID": f"host{rank}", "GLOO_SOCKET_IFNAME": "lo",
                           "THALWEG_SHARED_MEMORY": "0", "OMP_NUM_THREADS": "1"}
            with path.open("w") as log:
                processes.append(subprocess.Popen(
                    [sys.executable, "-m", "thalweg.lab.bench.gpu_allreduce_rank",
                     json.dumps({**common, "rank": rank})],
                    env=environment, stdout=log, stderr=subprocess.STDOUT))
        wait_for_ranks(PROGRAM, processes, arguments.timeout,
                       f"--timeout {arguments.timeout:g} s",
                       lambda rank: logs[rank].read_text(errors="replace"))
        return json.loads(output.read_text())


def numbers_of(result, size):
    """Returns what is shown of one library's times with tensors of `size` bytes."""
    p50 = statistics.median(result["times_s"])
    return {"p50_us": round(1e6 * p50, 1),
            "p99_us": round(1e6 * percentile(result["times_s"], 0.99), 1),
            "gb_per_s": round(size / p50 / 1e9, 3), "samples": len(result["times_s"]),
            "calls_per_sample": result["calls"]}


def row_of(ranks, size, results):
    """Returns the row of one size: every library's numbers, and peer / Thalweg by p50 and p99."""
    row = {"ranks": ranks, "bytes": size}
    for name, result in results.items():
        row[name] = numbers_of(result, size)
    for part in ("p50", "p99"):
        row[f"ratio_{part}"] = {
            peer: round(row[peer][f"{part}_us"] / row["thalweg"][f"{part}_us"], 2)
            for peer in PEERS if peer in results}
    phases = results["thalweg"].get("phases", {})
    if phases.get("parts"):
        calls = phases["calls"]
        row["phases_us"] = {name: round(phases[f"{name}_ns"] / calls / 1e3, 2) for name in PHASES}
        row["parts_per_call"] = round(phases["parts"] / calls, 2)
    return row


def table(rows):
    """Returns the lines of the table for one number of ranks."""
    peers = list(rows[0]["ratio_p50"])
    head = f"{'size':>8}{'Thalweg':>10}{'p99':>10}{'GB/s':>8}{'host':>10}{'copies':>9}"
    names = {"nccl": "NCCL", "gloo": "Gloo"}
    for peer in peers:
        head += f"{names[peer]:>10}{'p99':>10}{'GB/s':>8}{'ratio':>7}{'of p99':>8}"
    lines = [head]
    for row in rows:
        ours = row["thalweg"]
        line = (f"{name_of(row['bytes']):>8}{ours['p50_us']:10.1f}{ours['p99_us']:10.1f}"
                f"{ours['gb_per_s']:8.2f}{row[HOST]['p50_us']:10.1f}{row[COPIES]['p50_us']:9.1f}")
        for peer in peers:
            theirs = row[peer]
            line += (f"{theirs['p50_us']:10.1f}{theirs['p99_us']:10.1f}{theirs['gb_per_s']:8.2f}"
                     f"{row['ratio_p50'][peer]:7.2f}{row['ratio_p99'][peer]:8.2f}")
        lines.append(line)
    return lines


def phase_lines(rows):
    """Returns where the time of Thalweg's calls goes, one line for each size."""
    rows = [row for row in rows if "phases_us" in row]
    if not rows:
        return []
    lines = ["where a call's time goes, µs (docs/bench-gpu.md):",
             f"{'size':>8}" + "".join(f"{name:>11}" for name in (*PHASES, "elsewhere"))]
    for row in rows:
        parts = [row["phases_us"][name] for name in PHASES]
        # Parts of one call overlap, so their sum says nothing about the rest.
        rest = f"{row['thalweg']['p50_us'] - sum(parts):11.1f}" if row["parts_per_call"] < 2 else ""
        lines.append(f"{name_of(row['bytes']):>8}" + "".join(f"{us:11.1f}" for us in parts) + rest)
    return lines


def measure(arguments, facts):
    """Runs everything, shows tables unless JSON is wanted, and returns the whole report."""
    shared = arguments.device == "cuda" and max(arguments.ranks) > facts["gpus"]
    rows = []
    with Mps(wanted=shared and not arguments.no_mps) as mps:
        facts["mps"] = bool(mps.environment)
        if shared and mps.problem:
            print(f"{PROGRAM}: without MPS ({mps.problem}) the ranks on a GPU take turns of "
                  "milliseconds, which all times contain", file=sys.stderr)
        if not arguments.json:
            print(", ".join(f"{name} {value}" for name, value in facts.items()))
        for ranks in arguments.ranks:
            results = run_ranks(arguments, ranks, mps)
            some = [row_of(ranks, int(size), result) for size, result in results.items()]
            rows += some
            if not arguments.json:
                print(f"\n{ranks} ranks: µs an allreduce, median; ratios are peer / Thalweg")
                print("\n".join([*table(some), *phase_lines(some)]), flush=True)
    return {**facts, "rounds": arguments.rounds, "turn_s": arguments.turn, "rows": rows}


def main(words=None):
    words = sys.argv[1:] if words is None else words
    try:
        arguments = parse(words)
        facts = machine(arguments)
    except BadInput as problem:
        return report(problem, "--json" in words)
    text = json.dumps(measure(arguments, facts), indent=1)
    if arguments.json:
        print(text, flush=True)
    if arguments.out is not None:
        try:
            arguments.out.write_text(text + "\n")
        except OSError as problem:
            return report(f"--out: {problem}", arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
