"""`thalweg reproduce e2e`: digits trained over testbeds as the papers had them, with one library after the other.

    python -m thalweg.e2e [--quick] [--json] [--output FOLDER] experiments/e2e/dlcp.yaml …

A file of experiments/e2e says what network comes up and what is trained over it (docs/testbed.md has the fields). The ranks
are those of thalweg/e2e_rank.py. Prints step times, what the network lost, and accuracy; FOLDER gets a plot for each file.
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
    sys.exit(f"thalweg reproduce: PyYAML is not installed for {sys.executable}; tools/setup installs it")

from thalweg import figure
from thalweg.testbed import PROGRAM, ROOT, Testbed, TestbedError, end, end_on_signals, percentile

LIBRARIES = {"gloo": "Gloo", "ps": "parameter server", "thalweg": "Thalweg", "dlcp": "Thalweg, bound 1 %",
             "atp": "Thalweg, ATP", "rat": "Thalweg, RAT", "dssync": "Thalweg, DS-Sync"}
SHORT = {"Thalweg": "exact", "parameter server": "PS"}  # in plots
PS_PORT = 7900
PS_CONFIG = "workers: {workers}\nlisten: {listen}\nmode: synchronous\noptimizer: momentum\nrate: 0.05\nmomentum: 0.9\n"


class SpecError(ValueError):
    """A field of an experiment's file."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One file."""

    name: str
    title: str
    topology: str                # a file below the project's folder, or a shorthand
    libraries: tuple
    steps: int                   # that are timed, with each library
    limit_s: int                 # for all of them
    line_rate_gbps: float        # of a host, as scaled
    about: str = ""
    scale: float = 1.0
    network: tuple = ()          # settings of the switches, KEY=VALUE
    hosts: str = ""              # that train: 0-3,5-8; all if none
    racks: tuple = ()            # ranks that train in each rack
    plan_topology: str = ""      # the network as a shorthand, for rat; rank i is host i
    jobs: int = 1
    aggregate: str = ""          # the switch that sums, for atp
    loss: dict = dataclasses.field(default_factory=dict)        # link: share
    background: tuple = ()       # pairs of hosts: the first sends to the second all the while
    stall: dict = dataclasses.field(default_factory=dict)       # every_ms, for_ms
    probes: int = 0
    quick: dict = dataclasses.field(default_factory=dict)       # fields that are others with --quick; none: not run then


def read_experiment(path, quick):
    """None: the file is not for a first look."""
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
            raise SpecError(f"{path}: {name}: {value!r}; {'a list' if kind is tuple else kind.__name__} is allowed")
    missing = [name for name, field in known.items()
               if name not in fields and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]
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
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(host) is int and host >= 0 for host in pair):
            raise SpecError(f"{path}: background: {pair!r}; pairs of hosts are allowed")
    name = f"{Path(path).parent.name}/{Path(path).stem}"
    return Experiment(name=name, **{field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()})


def topology_of(experiment):
    path = ROOT / experiment.topology
    return str(path) if path.exists() else experiment.topology


def start_servers(bed, experiment, network, folder):
    """A parameter server a job, beside its first worker. Their addresses."""
    hosts = ranks_of(experiment.hosts, len(network["hosts"]))
    workers = len(hosts) // experiment.jobs
    addresses = []
    for job in range(experiment.jobs):
        host = hosts[job * workers]
        addresses.append(f"{network['hosts'][host]['address']}:{PS_PORT + job}")
        config = Path(folder) / f"ps{job}.yaml"
        config.write_text(PS_CONFIG.format(workers=workers, listen=addresses[-1]))
        bed.execute(host, [bed.program, "ps", "--config", config], stdout=subprocess.DEVNULL)
    return addresses


def ranks_of(text, count):
    """[0, 1, 2, 3, 6] of "0-3,6"."""
    if not text:
        return list(range(count))
    parts = [part.partition("-") for part in text.split(",")]
    return [host for first, dash, last in parts for host in range(int(first), int(last if dash else first) + 1)]


def start_background(bed, experiment, network):
    """Flows of somebody else, by TCP, as fast as they go, as long as the testbed is up."""
    if experiment.background and not shutil.which("iperf3"):
        raise TestbedError("iperf3 is not installed; tools/setup installs it")
    if any(host >= len(network["hosts"]) for pair in experiment.background for host in pair):
        raise SpecError(f"{experiment.name}: background: the network has {len(network['hosts'])} hosts")
    for i, (sender, receiver) in enumerate(experiment.background):
        port = 5201 + i
        bed.execute(receiver, ["iperf3", "-s", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        bed.execute(sender, ["sh", "-c", "trap 'kill $!; exit' TERM; until { iperf3 -c "
                             f"{network['hosts'][receiver]['address']} -p {port} -t 86400 & wait $!; }}; do sleep 0.2; done"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(experiment, program):
    """Brings the testbed up, trains, and takes it down: the lines of JSON that ranks printed."""
    options = ["--scale", experiment.scale]
    for setting in experiment.network:
        options += ["--set", setting]
    if experiment.aggregate:
        options += ["--aggregate", experiment.aggregate]
    with tempfile.TemporaryDirectory() as folder, \
            Testbed(topology_of(experiment), name=f"e2e{os.getpid()}", options=options, program=program) as bed:
        network = bed.stats()
        for link, share in experiment.loss.items():
            bed.set(link, f"loss={share}")
        servers = start_servers(bed, experiment, network, folder) if "ps" in experiment.libraries else []
        start_background(bed, experiment, network)
        spec = {"libraries": experiment.libraries, "steps": experiment.steps, "control": bed.folder, "jobs": experiment.jobs,
                "racks": experiment.racks, "topology": experiment.plan_topology, "line_rate_gbps": experiment.line_rate_gbps,
                "servers": servers, "probes": experiment.probes, "stall": experiment.stall}
        environment = {name: value for name, value in os.environ.items() if name != "THALWEG_BACKEND"}
        process = bed.run([sys.executable, "-m", "thalweg.e2e_rank", json.dumps(spec)], limit=experiment.limit_s,
                          hosts=experiment.hosts, env=environment)
        try:
            return hear(process, experiment)
        finally:
            end(process)


def hear(process, experiment):
    results, other = [], []
    for line in process.stdout:
        if not line.startswith("{"):
            other.append(line)
            continue
        try:
            results.append(json.loads(line))
        except ValueError:  # the words of another rank in between
            raise TestbedError(f"{experiment.name}: a rank's line cannot be read: {line}") from None
        if "library" in results[-1]:
            row = summary(results[-1])
            print(f"{experiment.name}: {row['library']}: {row['p50_ms']:.0f} ms a step", file=sys.stderr, flush=True)
    if process.wait() != 0:
        raise TestbedError(f"{experiment.name}: the ranks ended with {process.returncode}:\n{''.join(other)[-4000:]}")
    return results


def summary(result):
    steps = result["steps"]
    return {"library": LIBRARIES[result["library"]], "job": result["job"], "steps": len(steps),
            "p50_ms": 1e3 * percentile(steps, 0.5), "p99_ms": 1e3 * percentile(steps, 0.99),
            "mean_ms": 1e3 * sum(steps) / len(steps), "packets": result["sent"], "lost": result["lost"],
            "accuracy": result["accuracy"]}


def probe_summary(times):
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    return {"probes": len(times), "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "ratio": p99 / p50}


def outcome(experiment, results):
    """What --json has of an experiment."""
    rows = [summary(result) for result in results if "library" in result]
    gloo = {row["job"]: row for row in rows if row["library"] == LIBRARIES["gloo"]}
    for row in rows:
        base = gloo.get(row["job"])
        row["gloo_p50_over_ours"] = base["p50_ms"] / row["p50_ms"] if base else None
        row["gloo_mean_over_ours"] = base["mean_ms"] / row["mean_ms"] if base else None
    probe = next((result["probe"] for result in results if "probe" in result), None)
    return {"experiment": experiment.name, "title": experiment.title, "rows": rows,
            "probe": {key: probe_summary(times) for key, times in probe.items()} if probe else None, "plots": []}


def ratio(value):
    return "-" if value is None else f"{value:.2f}"


def table(found):
    lines = [f"{found['experiment']}: {found['title']}", ""]
    for key, row in (found["probe"] or {}).items():
        lines.append(f"small allreduces, {key}: p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, ratio {row['ratio']:.2f}")
    lines.append(f"{'':20}{'job':>4}{'p50 ms':>9}{'p99 ms':>9}{'mean ms':>9}{'Gloo/it':>9}{'of mean':>9}{'lost':>8}{'accuracy':>10}")
    for row in found["rows"]:
        share = 100 * row["lost"] / max(1, row["packets"])
        lines.append(f"{row['library']:20}{row['job']:4}{row['p50_ms']:9.0f}{row['p99_ms']:9.0f}{row['mean_ms']:9.0f}"
                     f"{ratio(row['gloo_p50_over_ours']):>9}{ratio(row['gloo_mean_over_ours']):>9}{share:7.2f}%{row['accuracy']:10.1%}")
    return "\n".join(lines)


def plot(found):
    rows = found["rows"]
    several = any(row["job"] for row in rows)
    names = [SHORT.get(row["library"], row["library"].removeprefix("Thalweg, ")) + (f" {row['job']}" if several else "") for row in rows]
    return {"title": found["title"], "columns": 1, "panels": [
        {"kind": "bars", "title": "milliseconds a step", "y_label": "ms", "categories": names, "series": [
            {"name": "p50", "y": [row["p50_ms"] for row in rows]}, {"name": "p99", "y": [row["p99_ms"] for row in rows]}]},
        {"kind": "bars", "title": "digits of the test that are right", "y_label": "%", "categories": names,
         "series": [{"name": "accuracy", "y": [100 * row["accuracy"] for row in rows]}]}]}


def main(words=None):
    parser = argparse.ArgumentParser(prog="thalweg reproduce e2e", description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path, help="folder for the plots; none are drawn without")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    arguments = parser.parse_args(words)
    end_on_signals()
    try:
        experiments = [read_experiment(path, arguments.quick) for path in arguments.files]
        experiments = [one for one in experiments if one is not None]
        if not experiments:
            raise SpecError("--quick: none of these experiments has a 'quick'")
        all_found = []
        for experiment in experiments:
            found = outcome(experiment, run(experiment, arguments.program))
            if arguments.output:
                arguments.output.mkdir(parents=True, exist_ok=True)
                path = arguments.output / f"{experiment.name.replace('/', '-')}.svg"
                figure.draw(plot(found), str(path))
                found["plots"].append(str(path))
            if not arguments.json:
                print(table(found), *(f"plot: {path}" for path in found["plots"]), "", sep="\n", flush=True)
            all_found.append(found)
    except (SpecError, TestbedError, OSError, figure.FigureError, subprocess.TimeoutExpired) as error:
        print(f"thalweg reproduce: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(all_found[0] if len(all_found) == 1 else all_found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
