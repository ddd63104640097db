"""Runs a list of flows over a network in our simulator and in ns-3, with the same settings."""
import csv
import hashlib
import io
import json
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build/validation"
FRAMING = 2       # bytes that a packet takes on a link beside its own: PPP's in ns-3
HEADER = 40
SEGMENT = 1460    # payload of a full packet
PACKET = SEGMENT + HEADER


@dataclass(frozen=True)
class Flow:
    src: int
    dst: int
    bytes: int
    start_us: float = 0
    path: int | None = None


@dataclass(frozen=True)
class Network:
    """What both simulators are told. `hosts` are the names of the topology's hosts, by rank."""
    topology: str
    hosts: list[str]
    transport: str
    buffer: int                 # bytes that may wait at a switch port
    mark: int | None = None     # bytes above which an arrival is marked
    parameters: dict = field(default_factory=dict)  # of the transport, ours only

    def scenario(self, flows: list[Flow], until: str = "60s") -> str:
        """The scenario as YAML, in the style that JSON and YAML share."""
        # ns-3's queue disc, which marks, does not count the framing; its device queue, which drops, does.
        if self.mark:
            network = {"port_buffer": f"{self.buffer}B", "framing": f"{FRAMING}B", "mark_above": f"{self.mark}B"}
            header = HEADER
        else:
            network = {"port_buffer": f"{self.buffer + FRAMING * (self.buffer // PACKET)}B"}
            header = HEADER + FRAMING
        entries = []
        for flow in flows:
            entry = {"from": self.hosts[flow.src], "to": self.hosts[flow.dst],
                     "size": f"{flow.bytes}B", "at": f"{flow.start_us}us"}
            if flow.path is not None:
                entry["path"] = flow.path
            entries.append(entry)
        return json.dumps({"topology": self.topology, "network": network, "until": until,
                           "transport": {"kind": self.transport, "header": f"{header}B", **self.parameters}, "flows": entries})


@dataclass
class Outcome:
    """`fct_us` in the order of the flows."""
    fct_us: list[float]
    retransmissions: int
    timeouts: int
    marks: int
    drops: int


def run(command: list, text: str | None = None, timeout: float = 600) -> str:
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True,
                          cwd=ROOT, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
    return done.stdout


def run_ours(program: Path, network: Network, flows: list[Flow]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.yaml"
        table = Path(folder) / "flows.csv"
        scenario.write_text(network.scenario(flows))
        result = json.loads(run([program, "sim", "run", scenario, "--flows", table, "--json"]))
        rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert result["finished"] and len(rows) == len(flows)
    # The table is in the order of completion.
    by_key = {}
    for row in rows:
        key = (row["from"], row["to"], int(row["bytes"]), round(float(row["start_us"]), 3))
        by_key.setdefault(key, []).append(row)
    found = [by_key[(network.hosts[f.src], network.hosts[f.dst], f.bytes, round(f.start_us, 3))].pop(0)
             for f in flows]
    return Outcome(fct_us=[float(row["completion_us"]) for row in found],
                   retransmissions=sum(int(row["retransmissions"]) for row in found),
                   timeouts=sum(int(row["timeouts"]) for row in found),
                   marks=result["marks"], drops=result["drops_full"])


def run_peer(peer: Path, lines: str, *options: str) -> dict:
    """What ns3_peer prints for these flows. A result is kept in build/validation/ns3 and used again when the
    same program is asked the same: ns-3 needs minutes for what we do in seconds, and is deterministic."""
    asked = hashlib.sha256(peer.read_bytes() + repr(options).encode() + lines.encode())
    for option in options:
        if Path(ROOT, option).is_file():
            asked.update(Path(ROOT, option).read_bytes())
    kept = RESULTS / "ns3" / f"{asked.hexdigest()[:32]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    text = run([peer, "--flows", "/dev/stdin", *options], lines)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
        file.write(text)
    Path(file.name).rename(kept)
    return json.loads(text)


def run_ns3(peer: Path, network: Network, flows: list[Flow], *options: str) -> Outcome:
    lines = "".join(f"{f.src} {f.dst} {f.bytes} {f.start_us} {f.path or 0}\n" for f in flows)
    mark = ("--mark", f"{network.mark}B") if network.mark else ()
    result = run_peer(peer, lines, "--topology", network.topology, "--transport", network.transport,
                      "--buffer", f"{network.buffer}B", *mark, *options)
    assert result["flows_done"] == len(flows)
    return Outcome(fct_us=[flow["fct_s"] * 1e6 for flow in result["flows"]],
                   retransmissions=result["retransmissions"], timeouts=result["timeouts"],
                   marks=result["marks"], drops=result["drops"])
