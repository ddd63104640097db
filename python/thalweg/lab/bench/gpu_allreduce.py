"""`thalweg bench gpu`: allreduces of GPU tensors by Thalweg, NCCL and Gloo (docs/bench-gpu.md).

    python -m thalweg.lab.bench.gpu_allreduce [--against nccl,gloo] [--ranks 2,4]
                                              [--sizes 1KiB,1MiB] [--json]
"""
import argparse
import difflib
import json
import os
import re
import sys
from pathlib import Path

from thalweg import _program
from thalweg.lab.bench.gpu_networks import Loopback, OnTestbed
from thalweg.lab.bench.gpu_report import (COLLNET, PEERS, PLUGIN, phase_lines, plugin_lines, row_of,
                                          row_of_steps, step_lines, table)
from thalweg.lab.bench.mps import Mps
from thalweg.testbed import TestbedError

PROGRAM = "thalweg bench gpu"
KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
LARGEST = 1 << 30
UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6,
         "GB": 10**9}
LIBRARY = "libnccl-net-thalweg.so"


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


def parse(words):
    parser = _Parser(prog=PROGRAM, allow_abbrev=False,
                     description="allreduces of GPU tensors by Thalweg and its peers, in one run",
                     epilog=f"Example: {PROGRAM} --against nccl --ranks 2 --sizes 1KiB,1MiB --json")
    parser.add_argument("--against", default="nccl,gloo",
                        help=f"peers: {', '.join(PEERS)}, or none (nccl,gloo)")
    parser.add_argument("--testbed", help="one rank on each host of this topology, instead of "
                        "loopback (docs/testbed.md; needs root)")
    parser.add_argument("--loss", default="0%",
                        help="loss of every packet between two hosts of the testbed, as in 0.5%%")
    parser.add_argument("--plugin", type=Path,
                        help=f"{LIBRARY}, for {PLUGIN} and {COLLNET} (beside the program)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (2,4)")
    parser.add_argument("--sizes", help="sizes of tensors, such as 1KiB,1MiB (1KiB to 64MiB)")
    parser.add_argument("--model", help="also training steps of this model with DDP, such as resnet50 "
                        "(needs torchvision)")
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
    check_peers(arguments)
    arguments.loss = loss_of(arguments.loss)
    if arguments.loss > 0 and arguments.testbed is None:
        raise BadInput("--loss: it needs --testbed; loopback loses nothing")
    if arguments.out is not None and not arguments.out.parent.is_dir():
        raise BadInput(f"--out: {arguments.out}; there is no folder {arguments.out.parent}")
    counts = []
    for word in arguments.ranks.split(","):
        most = Loopback.most_ranks
        if not re.fullmatch(r"\d{1,3}", word) or not 2 <= int(word) <= most:
            raise BadInput(f"--ranks: {word}; numbers from 2 to {most} are allowed")
        counts.append(int(word))
    arguments.ranks = counts
    arguments.sizes = SIZES if arguments.sizes is None else [
        bytes_of(word.strip()) for word in arguments.sizes.split(",")]


def check_peers(arguments):
    """Turns --against into a list, and finds the plugin if a peer needs it."""
    peers = [] if arguments.against == "none" else arguments.against.split(",")
    for peer in peers:
        if peer not in PEERS or peers.count(peer) > 1:
            raise BadInput(f"--against: {arguments.against}; {', '.join(PEERS)}, each once, or none is allowed")
        if arguments.device == "cpu" and peer != "gloo":
            raise BadInput(f"--against: {peer}; with --device cpu only gloo and none are allowed")
    if COLLNET in peers and arguments.testbed is None:
        raise BadInput(f"--against: {COLLNET}; it needs a switch that sums: --testbed")
    arguments.against = peers
    if PLUGIN not in peers and COLLNET not in peers:
        return
    if arguments.plugin is None:
        try:
            arguments.plugin = Path(_program.program()).parent / LIBRARY
        except _program.ProgramError as problem:
            raise BadInput(f"--plugin: {problem}") from problem
    if arguments.plugin.name != LIBRARY or not arguments.plugin.is_file():
        raise BadInput(f"--plugin: {arguments.plugin}; the path of a {LIBRARY} is allowed")


def loss_of(text):
    """Returns the share that a percentage such as 0.5% means."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)%", text)
    if not match or float(match[1]) > 50:
        raise BadInput(f"--loss: {text}; a percentage from 0% to 50% is allowed, such as 0.5%")
    return float(match[1]) / 100


def machine(arguments):
    """Returns what the results depend on. Raises BadInput if something is missing."""
    try:
        import torch
    except ImportError as problem:
        raise BadInput(f"PyTorch cannot be loaded by {sys.executable}: {problem}; tools/setup "
                       "installs it, THALWEG_PYTHON names another Python") from problem
    facts = {"device": "cpu", "gpus": 0, "cores": os.cpu_count(), "torch": torch.__version__}
    if arguments.model is not None:
        check_model(arguments.model)
    if arguments.device == "cpu":
        return facts
    if not torch.cuda.is_available():
        raise BadInput("there is no GPU that PyTorch can use; nothing was measured "
                       "(--device cpu measures tensors of the host)")
    facts.update(device=torch.cuda.get_device_name(), gpus=torch.cuda.device_count())
    if any(peer.startswith("nccl") for peer in arguments.against):
        if not torch.distributed.is_nccl_available():
            raise BadInput("--against: nccl; this PyTorch has no NCCL")
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def check_model(name):
    """Raises BadInput unless the model can be trained here."""
    from thalweg.lab.record_models import RECIPES
    if name not in RECIPES:
        raise BadInput(f"--model: {name}; {', '.join(RECIPES)} are allowed")
    try:
        RECIPES[name].build()
    except ImportError as problem:
        raise BadInput(f"--model: {name}; {problem}") from problem


def casts(arguments):
    """Returns sets of ranks: the libraries of each, and its environment.

    NCCL reads its settings once in a process, so each of its networks has ranks of its own.
    """
    sets = [(["thalweg", *(peer for peer in arguments.against if "+" not in peer)], {"NCCL_NET_PLUGIN": "none"})]
    for peer in arguments.against:
        if "+" not in peer:
            continue
        folders = f"{arguments.plugin.resolve().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        environment = {"NCCL_NET_PLUGIN": "thalweg", "LD_LIBRARY_PATH": folders.rstrip(":"), "NCCL_COLLNET_ENABLE": "0"}
        if peer == COLLNET:
            environment |= {"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": "allreduce:collnetchain"}
        sets.append(([peer], environment))
    return sets


def run_ranks(arguments, network, ranks, mps):
    """Runs all sets of ranks, one after the other.

    Returns the results of allreduces, by size and library, and those of training steps, by library.
    """
    results, steps = {str(size): {} for size in arguments.sizes}, {}
    for libraries, environment in casts(arguments):
        configuration = {"ranks": ranks, "device": arguments.device, "sizes": arguments.sizes, "model": arguments.model,
                         "libraries": libraries, "rounds": arguments.rounds, "turn_s": arguments.turn}
        one = network.run(configuration, {**mps.environment, **environment}, arguments.timeout)
        for size, by_library in one["sizes"].items():
            results[size].update(by_library)
        steps.update(one.get("steps", {}))
    return results, steps


def network_of(arguments):
    if arguments.testbed is None:
        return Loopback(PROGRAM)
    return OnTestbed(PROGRAM, arguments.testbed, arguments.loss, COLLNET in arguments.against)


def measure(arguments, facts):
    """Runs everything, shows tables unless JSON is wanted, and returns the whole report."""
    shared = arguments.device == "cuda" and max(arguments.ranks) > facts["gpus"]
    rows, steps = [], []
    with network_of(arguments) as network, Mps(wanted=shared and not arguments.no_mps) as mps:
        if max(arguments.ranks) > network.most_ranks:
            raise BadInput(f"--ranks: {max(arguments.ranks)}; the testbed has {network.most_ranks} hosts")
        facts["mps"] = bool(mps.environment)
        if shared and mps.problem:
            print(f"{PROGRAM}: without MPS ({mps.problem}) the ranks on a GPU take turns of "
                  "milliseconds, which all times contain", file=sys.stderr)
        if not arguments.json:
            print(", ".join(f"{name} {value}" for name, value in facts.items()))
        for ranks in arguments.ranks:
            results, times = run_ranks(arguments, network, ranks, mps)
            some = [row_of(ranks, int(size), result) for size, result in results.items()]
            rows += some
            if times:
                steps.append(row_of_steps(ranks, arguments.model, times))
            if not arguments.json:
                print(f"\n{ranks} ranks: µs an allreduce, median; ratios are peer / Thalweg")
                print("\n".join([*table(some), *plugin_lines(some), *phase_lines(some)]), flush=True)
                if times:
                    print("\n".join(step_lines(steps[-1])), flush=True)
    return {**facts, "testbed": arguments.testbed, "loss": arguments.loss, "rounds": arguments.rounds, "turn_s": arguments.turn, "rows": rows,
            "steps": steps}


def main(words=None):
    words = sys.argv[1:] if words is None else words
    try:
        arguments = parse(words)
        facts = machine(arguments)
        text = json.dumps(measure(arguments, facts), indent=1)
    except (BadInput, TestbedError) as problem:
        return report(problem, "--json" in words)
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
