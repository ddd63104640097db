"""`thalweg reproduce e2e`: trains digits over testbeds like those of the papers, with each library.

    python -m thalweg.lab.e2e [--quick] [--json] [--output FOLDER] experiments/e2e/dlcp.yaml …

A file of experiments/e2e describes the network and the training (docs/testbed.md lists the fields).
thalweg/lab/e2e_rank.py is the program of each rank. Prints step times, how much the network lost,
and the accuracy. FOLDER gets a plot for each file.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import yaml
except ImportError:
    sys.exit(f"thalweg reproduce: PyYAML is not installed for {sys.executable}; tools/setup "
             "installs it")

from thalweg.lab.figures.draw import FigureError, draw
from thalweg.lab.progress import Progress
from thalweg.lab.testbed import (PROGRAM, ROOT, Testbed, TestbedError, end, end_on_signals,
                                 percentile)

LIBRARIES = {"gloo": "Gloo", "ps": "parameter server", "thalweg": "Thalweg",
             "dlcp": "Thalweg, bound 1 %", "straggler": "Thalweg, stragglers", "atp": "Thalweg, ATP", "rat": "Thalweg, RAT",
             "dssync": "Thalweg, DS-Sync"}
SHORT = {"Thalweg": "exact", "parameter server": "PS"}  # names in plots
PS_PORT = 7900
PS_CONFIG = ("workers: {workers}\nlisten: {listen}\nmode: synchronous\noptimizer: momentum\n"
             "rate: 0.05\nmomentum: 0.9\n")


class SpecError(ValueError):
    """An error in a field of an experiment's file."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The fields of one file."""

    name: str
    title: str
    topology: str                # a file below the project's folder, or a shorthand
    libraries: tuple             # keys of LIBRARIES
    steps: int                   # timed steps with each library
    limit_s: int                 # for the trainings with all libraries together
    line_rate_gbps: float        # rate of a host's link, after scaling
    about: str = ""
    scale: float = 1.0           # as in `thalweg testbed up --scale`: rates are multiplied by it
    network: tuple = ()          # settings of the switches, KEY=VALUE
    hosts: str = ""              # hosts that train: 0-3,5-8; all if empty
    racks: tuple = ()            # for each rack, the ranks that train in it
    plan_topology: str = ""      # the network as a shorthand, for rat; rank i is host i
    jobs: int = 1                # jobs that train at the same time
    aggregate: str = ""          # the switch that sums, for atp
    loss: dict = dataclasses.field(default_factory=dict)  # link: share of packets that it loses
    background: tuple = ()       # pairs of hosts: the first sends to the second all the time
    stall: dict = dataclasses.field(default_factory=dict)  # every_ms, for_ms: hosts that pause
    probes: int = 0              # small allreduces that show the network's tail latency
    # Fields that differ with --quick. A file without any does not run then.
    quick: dict = dataclasses.field(default_factory=dict)


def read_experiment(path, quick):
    """Reads and checks a file. Returns None if it does not run with --quick."""
    try:
        fields = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: {error}") from error
    if not isinstance(fields, dict):
        raise SpecError(f"{path}: a map of fields is allowed")
    if quick:
        if not isinstance(fields.get("quick", {}), dict):
            raise SpecError(f"{path}: quick: a map of fields is allowed")
        if not fields.get("quick"):
            return None
        fields = {**fields, **fields["quick"]}
    known = {field.name: field for field in dataclasses.fields(Experiment) if field.name != "name"}
    for name, value in fields.items():
        if name not in known:
            raise SpecError(f"{path}: '{name}' is unknown; allowed are {', '.join(known)}")
        kind = known[name].type
        good = (int, float) if kind is float else list if kind is tuple else kind
        if not isinstance(value, good) or isinstance(value, bool):
            raise SpecError(f"{path}: {name}: {value!r}; "
                            f"{'a list' if kind is tuple else kind.__name__} is allowed")
    missing = [name for name, field in known.items() if name not in fields
               and field.default is dataclasses.MISSING
               and field.default_factory is dataclasses.MISSING]
    if missing:
        raise SpecError(f"{path}: '{missing[0]}' is missing")
    unknown = [library for library in fields["libraries"] if library not in tuple(LIBRARIES)]
    if unknown or not fields["libraries"]:
        raise SpecError(f"{path}: libraries: {unknown}; allowed are {', '.join(LIBRARIES)}")
    if fields["steps"] < 1 or fields["limit_s"] < 1 or fields.get("jobs", 1) < 1:
        raise SpecError(f"{path}: steps, limit_s, jobs: 1 or more is allowed")
    if not re.fullmatch(r"(\d+(-\d+)?(,\d+(-\d+)?)*)?", fields.get("hosts", "")):
        raise SpecError(f"{path}: hosts: {fields['hosts']!r}; ranks such as 0-3,6 are allowed")
    for pair in fields.get("background", []):
        if (not isinstance(pair, list) or len(pair) != 2
                or not all(type(host) is int and host >= 0 for host in pair)):
            raise SpecError(f"{path}: background: {pair!r}; pairs of hosts are allowed")
    name = f"{Path(path).parent.name}/{Path(path).stem}"
    return Experiment(name=name, **{field: tuple(value) if isinstance(value, list) else value
                                    for field, value in fields.items()})


def topology_of(experiment):
    path = ROOT / experiment.topology
    return str(path) if path.exists() else experiment.topology


def start_servers(bed, experiment, network, folder):
    """Starts a parameter server for each job, on the host of its first worker.

    Returns their addresses.
    """
    hosts = ranks_of(experiment.hosts, len(network["hosts"]))
    workers = len(hosts) // experiment.jobs
    addresses = []
    for job in range(experiment.jobs):
        host = hosts[job * workers]
        addresses.append(f"{network['hosts'][host]['address']}:{PS_PORT + job}")
        config = Path(folder) / f"ps{job}.yaml"
        config.write_text(PS_CONFIG.format(workers=workers, listen=addresses[-1]))
        bed.start(host, [bed.program, "ps", "--config", config], stdout=subprocess.DEVNULL)
    return addresses


def ranks_of(text, count):
    """Returns the numbers that a text means: "0-3,6" is [0, 1, 2, 3, 6]. Empty means all."""
    if not text:
        return list(range(count))
    parts = [part.partition("-") for part in text.split(",")]
    return [host for first, dash, last in parts
            for host in range(int(first), int(last if dash else first) + 1)]


def start_background(bed, experiment, network):
    """Starts TCP flows that send as fast as they can, as long as the testbed is up."""
    if experiment.background and not shutil.which("iperf3"):
        raise TestbedError("iperf3 is not installed; tools/setup installs it")
    if any(host >= len(network["hosts"]) for pair in experiment.background for host in pair):
        raise SpecError(f"{experiment.name}: background: the network has {len(network['hosts'])} "
                        "hosts")
    for i, (sender, receiver) in enumerate(experiment.background):
        port = 5201 + i
        address = network["hosts"][receiver]["address"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        bed.start(receiver, ["iperf3", "-s", "-p", port], **silent)
        bed.start(sender, ["sh", "-c", "trap 'kill $!; exit' TERM; until { iperf3 -c "
                           f"{address} -p {port} -t 86400 & wait $!; }}; do sleep 0.2; done"],
                  **silent)


def run(experiment, program, progress):
    """Brings the testbed up, trains, and takes it down. Returns what the ranks printed as JSON.

    `progress(line, share)` is called after each library, with the share of them that have trained.
    """
    settings = dict(setting.partition("=")[::2] for setting in experiment.network)
    with tempfile.TemporaryDirectory() as folder, \
            Testbed(topology_of(experiment), name=f"e2e{os.getpid()}", scale=experiment.scale,
                    settings=settings, aggregate=experiment.aggregate or (), program=program) as bed:
        network = bed.stats().numbers
        for link, share in experiment.loss.items():
            bed.set(link, loss=share)
        servers = (start_servers(bed, experiment, network, folder)
                   if "ps" in experiment.libraries else [])
        start_background(bed, experiment, network)
        spec = {"libraries": experiment.libraries, "steps": experiment.steps,
                "control": bed.folder, "jobs": experiment.jobs, "racks": experiment.racks,
                "topology": experiment.plan_topology,
                "line_rate_gbps": experiment.line_rate_gbps, "servers": servers,
                "probes": experiment.probes, "stall": experiment.stall}
        environment = {name: value for name, value in os.environ.items()
                       if name != "THALWEG_BACKEND"}
        process = bed.start_job([sys.executable, "-m", "thalweg.lab.e2e_rank", json.dumps(spec)],
                                timeout=experiment.limit_s, hosts=experiment.hosts, prefix=False,
                                env=environment)
        try:
            return hear(process, experiment, progress)
        finally:
            end(process)


def hear(process, experiment, progress):
    """Returns the JSON lines that the ranks print until they end."""
    results, other = [], []
    for line in process.stdout:
        if not line.startswith("{"):
            other.append(line)
            continue
        try:
            results.append(json.loads(line))
        except ValueError:  # the output of another rank got into the line
            raise TestbedError(f"{experiment.name}: a rank's line cannot be read: {line}") from None
        if "library" in results[-1]:
            row = summary(results[-1])
            trained = sum("library" in one for one in results)
            progress(f"{experiment.name}: {row['library']}: {row['p50_ms']:.0f} ms a step",
                     trained / (len(experiment.libraries) * experiment.jobs))
    if process.wait() != 0:
        raise TestbedError(f"{experiment.name}: the ranks ended with {process.returncode}:\n"
                           f"{''.join(other)[-4000:]}")
    return results


def summary(result):
    steps = result["steps"]
    return {"library": LIBRARIES[result["library"]], "job": result["job"], "steps": len(steps),
            "p50_ms": 1e3 * percentile(steps, 0.5), "p99_ms": 1e3 * percentile(steps, 0.99),
            "mean_ms": 1e3 * sum(steps) / len(steps), "packets": result["sent"],
            "lost": result["lost"], "accuracy": result["accuracy"]}


def probe_summary(times):
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    return {"probes": len(times), "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "ratio": p99 / p50}


def outcome(experiment, results):
    """Returns the results of an experiment, as --json prints them."""
    rows = [summary(result) for result in results if "library" in result]
    gloo = {row["job"]: row for row in rows if row["library"] == LIBRARIES["gloo"]}
    for row in rows:
        base = gloo.get(row["job"])
        row["gloo_p50_over_ours"] = base["p50_ms"] / row["p50_ms"] if base else None
        row["gloo_mean_over_ours"] = base["mean_ms"] / row["mean_ms"] if base else None
    probe = next((result["probe"] for result in results if "probe" in result), None)
    return {"experiment": experiment.name, "title": experiment.title, "rows": rows,
            "probe": {key: probe_summary(times) for key, times in probe.items()} if probe else None,
            "plots": []}


def ratio(value):
    return "-" if value is None else f"{value:.2f}"


def table(found):
    lines = [f"{found['experiment']}: {found['title']}", ""]
    for key, row in (found["probe"] or {}).items():
        lines.append(f"small allreduces, {key}: p50 {row['p50_ms']:.1f} ms, "
                     f"p99 {row['p99_ms']:.1f} ms, p99 / p50 = {row['ratio']:.2f}")
    lines.append("Ratios are the time with Gloo / the time with this library.")
    lines.append(f"{'':20}{'job':>4}{'p50 ms':>9}{'p99 ms':>9}{'mean ms':>9}{'p50 ratio':>11}"
                 f"{'mean ratio':>12}{'lost':>8}{'accuracy':>10}")
    for row in found["rows"]:
        share = 100 * row["lost"] / max(1, row["packets"])
        lines.append(f"{row['library']:20}{row['job']:4}{row['p50_ms']:9.0f}{row['p99_ms']:9.0f}"
                     f"{row['mean_ms']:9.0f}{ratio(row['gloo_p50_over_ours']):>11}"
                     f"{ratio(row['gloo_mean_over_ours']):>12}{share:7.2f}%{row['accuracy']:10.1%}")
    return "\n".join(lines)


def plot(found):
    rows = found["rows"]
    several = any(row["job"] for row in rows)
    names = [SHORT.get(row["library"], row["library"].removeprefix("Thalweg, "))
             + (f" {row['job']}" if several else "") for row in rows]
    return {"title": found["title"], "columns": 1, "panels": [
        {"kind": "bars", "title": "milliseconds a step", "y_label": "ms", "categories": names,
         "series": [{"name": "p50", "y": [row["p50_ms"] for row in rows]},
                    {"name": "p99", "y": [row["p99_ms"] for row in rows]}]},
        {"kind": "bars", "title": "digits of the test that are right", "y_label": "%",
         "categories": names,
         "series": [{"name": "accuracy", "y": [100 * row["accuracy"] for row in rows]}]}]}


def main(words=None):
    parser = argparse.ArgumentParser(prog="thalweg reproduce e2e",
                                     description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path, help="folder for plots; without it none are drawn")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    arguments = parser.parse_args(words)
    end_on_signals()
    try:
        experiments = [read_experiment(path, arguments.quick) for path in arguments.files]
        experiments = [one for one in experiments if one is not None]
        if not experiments:
            raise SpecError("--quick: none of these experiments has a 'quick'")
        all_found = []
        progress = Progress()
        for number, experiment in enumerate(experiments):
            def told(line, share, done=number, name=experiment.name):
                progress.say(line)
                progress.show(f"{name}, {done + 1} of {len(experiments)}", (done + share) / len(experiments))

            found = outcome(experiment, run(experiment, arguments.program, told))
            progress.close()
            if arguments.output:
                arguments.output.mkdir(parents=True, exist_ok=True)
                path = arguments.output / f"{experiment.name.replace('/', '-')}.svg"
                draw(plot(found), str(path))
                found["plots"].append(str(path))
            if not arguments.json:
                print(table(found), *(f"plot: {path}" for path in found["plots"]), "", sep="\n",
                      flush=True)
            all_found.append(found)
    except (SpecError, TestbedError, OSError, FigureError, subprocess.TimeoutExpired) as error:
        print(f"thalweg reproduce: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(all_found[0] if len(all_found) == 1 else all_found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
