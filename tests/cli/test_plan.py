"""`thalweg plan` as a user meets it."""
import json
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import msccl_interpreter

TWO_RACKS = "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G"
MB = 1_000_000
PROGRAM = Path(__file__).resolve().parents[2] / "build/release/thalweg"


def test_compare_two_racks(thalweg):
    rows = thalweg("plan", "compare", "--topology", TWO_RACKS, "--size", "97MB", "--json").json()
    by_scheme = {row["scheme"]: row for row in rows}
    assert {"ps", "ring", "butterfly", "halving-doubling", "k-nomial", "double-tree", "hierarchical",
            "blueconnect", "plink", "rat", "rat-weighted"} == by_scheme.keys()
    assert all(row["verified"] is True for row in rows)
    assert all(row["predicted_ms"] >= row["limit_ms"] * (1 - 1e-6) for row in rows)
    assert by_scheme["rat"]["steps"] == 4
    assert by_scheme["rat"]["cross_region_bytes"] == 2 * 97 * MB
    assert by_scheme["ps"]["steps"] == 2
    assert by_scheme["ring"]["steps"] == 14


def test_compare_some(thalweg):
    rows = thalweg("plan", "compare", "--topology", TWO_RACKS, "--size", "1MB", "--scheme",
                   "rat:trees=1", "--scheme", "k-nomial:k=4", "--json").json()
    assert [row["scheme"] for row in rows] == ["rat:trees=1", "k-nomial:k=4"]


def test_best_differs_by_topology(thalweg):
    def best(topology):
        return thalweg("plan", "best", "--topology", topology, "--size", "97MB", "--json").json()

    answers = [best(t) for t in ("single-switch:hosts=8,host=10G", TWO_RACKS,
                                 "leaf-spine:racks=4,hosts=8,spines=2,host=10G,uplink=5G",
                                 "topologies/slow-nic.yaml")]
    assert len({a["scheme"].split(":")[0] for a in answers}) >= 3
    for answer in answers:
        assert answer["reason"]
        times = [c["predicted_ms"] for c in answer["candidates"]]
        assert times[0] == answer["predicted_ms"] <= times[1] * 1.005


@pytest.mark.parametrize("scheme", ["ps", "ring", "butterfly", "halving-doubling", "k-nomial",
                                    "double-tree", "hierarchical", "blueconnect", "plink", "rat"])
def test_show_writes_everything(thalweg, tmp_path, scheme):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("plan", "xml", "svg", "dot", "timeline")}
    arguments = [a for kind, path in files.items() for a in (f"--{kind}", path)]
    done = thalweg("plan", "show", "--topology", TWO_RACKS, "--size", "3072B", "--scheme", scheme,
                   *arguments)
    assert done.code == 0, done.err
    assert "proved" in done.out
    assert ElementTree.parse(files["svg"]).getroot().tag.endswith("svg")
    msccl_interpreter.check(files["xml"].read_text(), seeds=range(3))
    events = json.loads(files["timeline"].read_text())["traceEvents"]
    plan = json.loads(files["plan"].read_text())
    assert sum(e["ph"] == "X" for e in events) == len(plan["transfers"])
    subprocess.run(["grep", "-q", "digraph", files["dot"]], check=True)
    assert thalweg("plan", "verify", files["plan"], "--topology", TWO_RACKS).code == 0


def test_verify_says_no(thalweg, tmp_path):
    path = tmp_path / "plan.json"
    assert thalweg("plan", "show", "--topology", TWO_RACKS, "--size", "1MB", "--scheme", "ring",
                   "--plan", path).code == 0
    plan = json.loads(path.read_text())
    plan["transfers"].pop()
    path.write_text(json.dumps(plan))
    done = thalweg("plan", "verify", path)
    assert done.code == 1
    assert "ends without the contribution of rank" in done.out
    answer = thalweg("plan", "verify", path, "--json")
    assert answer.code == 1
    assert json.loads(answer.out)["verified"] is False


def test_verify_wrong_rank_count(thalweg, tmp_path):
    path = tmp_path / "plan.json"
    thalweg("plan", "show", "--topology", TWO_RACKS, "--size", "1MB", "--plan", path)
    done = thalweg("plan", "verify", path, "--topology", "single-switch:hosts=4,host=10G")
    assert done.code == 2
    assert "8 ranks" in done.err and "4 hosts" in done.err


def test_other_collectives(thalweg):
    for collective in ("reduce", "broadcast", "reduce-scatter", "all-gather", "all-to-all"):
        rows = thalweg("plan", "compare", "--topology", TWO_RACKS, "--size", "1MB", "--collective",
                       collective, "--json").json()
        assert rows, collective


def test_show_of_thousands_of_hosts__tree_by_tree(thalweg):
    arguments = ["plan", "show", "--topology", "leaf-spine:racks=64,hosts=32,spines=4,host=10G,uplink=40G",
                 "--size", "100MB", "--scheme", "rat"]
    shown = thalweg(*arguments, "--transfers", "0", "--json").json()
    assert shown["verified"] and shown["steps"] == 4 and shown["fluid_ms"] is None
    assert shown["chunks"] == 2048 and shown["transfers"] == 2048 * 2 * 2047
    text = thalweg(*arguments, "--transfers", "0").out
    assert "proved" in text and "fluid: not computed" in text
    refused = thalweg(*arguments)
    assert refused.code == 2 and "--transfers 0 sums it up" in refused.err


def test_mixing_of_strategies(thalweg):
    rows = thalweg("plan", "mixing", "--topology", TWO_RACKS, "--size", "97MB", "--slow", "rack0", "--schedule",
                   "--json").json()
    ring, rat, _, gossip, local, asp, ssp, ds_sync = rows
    assert [row["strategy"] for row in rows] == ["ring", "rat", "hierarchical", "gossip", "local-sgd", "asp",
                                                 "ssp", "ds-sync:seed=1,slow=rack0"]
    assert ring["rho"] == gossip["rho"] == 0 and 0 < ds_sync["rho"] < 1
    assert ring["iterations_to_consensus"] == 1 and ds_sync["iterations_to_consensus"] > 1
    assert ring["predicted_ms"] > 1.5 * ds_sync["predicted_ms"]
    assert all(row["table_ms"] > 0 for row in rows if row not in (local, rat))
    assert (local["iterations_to_consensus"], local["longest_ms"]) == (8, ring["longest_ms"])
    assert local["predicted_ms"] == pytest.approx(ring["predicted_ms"] / 8)
    assert [row["staleness"] for row in (ring, asp, ssp)] == [0, None, 3]
    assert local["predicted_ms"] < ds_sync["predicted_ms"]  # it exchanges nothing in most iterations
    # RAT crosses the slow uplink with the least bytes, but the uplink waits for the sums of its rack. DS-Sync's groups
    # do not wait, and its workers agree soon enough.
    assert rat["predicted_ms"] < 0.75 * ring["predicted_ms"]
    assert [row["best"] for row in rows] == [row is ds_sync for row in rows]
    assert all(sorted(sum(groups, [])) == list(range(8)) for groups in ds_sync["schedule"])


def test_mixing_with_a_model__says_which_is_best_and_why(thalweg):
    arguments = ["plan", "mixing", "--topology", TWO_RACKS, "--model", "resnet50", "--agree-within", "20", "--strategy",
                 "ring", "ds-sync:group=rat", "asp:servers=8"]
    ring, ds_sync, asp = thalweg(*arguments, "--json").json()
    assert all(row["iteration_ms"] > row["predicted_ms"] / 2 for row in (ring, ds_sync, asp))
    assert ring["iteration_ms"] > ds_sync["iteration_ms"] and ds_sync["best"]
    text = thalweg(*arguments).out
    assert "ds-sync:group=rat: " in text and "the quickest with workers that agree within 20 iterations" in text
    assert "no strategy named has" in thalweg(*arguments[:-3], "asp").out


RACKS_OF_EIGHT = "leaf-spine:racks=2,hosts=8,spines=1,host=20G,uplink=20G"


def test_best_of_strategies__with_time_and_agreement(thalweg):
    arguments = ["plan", "best", "--strategies", "--topology", RACKS_OF_EIGHT, "--size", "20MB"]
    best = thalweg(*arguments, "--json").json()
    rows = {row["strategy"]: row for row in best["candidates"]}
    assert best["strategy"] == "ds-sync:seed=1" and 0 < best["rho"] < 1 and best["predicted_ms"] > 0
    assert {**rows[best["strategy"]], "reason": best["reason"], "candidates": best["candidates"]} == best
    assert best["predicted_ms"] < rows["ring"]["predicted_ms"]
    text = thalweg(*arguments).out
    assert text.startswith("ds-sync:seed=1\n") and best["reason"] in text
    summed = thalweg(*arguments, "--in-switch", "--json").json()
    rows = {row["strategy"]: row["predicted_ms"] for row in summed["candidates"]}
    # A communicator has one level of switches: over all ranks, eight tensors cross each rack's link. A group of seven
    # in a rack moves 8/7 of the tensor, less than a ring's 12/7.
    assert summed["strategy"] == "ds-sync:seed=1,group=atp"
    assert rows["ds-sync:seed=1,group=atp"] < 0.8 * rows["ds-sync:seed=1"] < rows["atp"]
    # With slow links between racks it no longer pays to average over all ranks at once.
    slow = thalweg(*arguments, "--in-switch", "--slow", "rack0,rack1", "--json").json()
    assert slow["strategy"] == "ds-sync:seed=1,slow=rack0+rack1,group=atp"
    assert thalweg("plan", "best", "--strategies", "--topology", RACKS_OF_EIGHT, "--model", "resnet50",
                   "--json").json()["iteration_ms"] > 0


@pytest.mark.parametrize("arguments, words", [
    ([], ["--size", "--strategies"]),
    (["--model", "resnet50"], ["--model", "--strategies"]),
    (["--strategies", "--collective", "reduce"], ["--collective", "--strategies"]),
    (["--strategies", "--in-switch", "--strategy", "ring"], ["--in-switch", "--strategy"]),
])
def test_best_of_strategies__bad_input(thalweg, arguments, words):
    done = thalweg("plan", "best", "--topology", TWO_RACKS, *arguments)
    assert done.code == 2
    assert all(word in done.err for word in words), done.err


@pytest.mark.parametrize("arguments, words", [
    (["--model", "resnet50", "--size", "1MB"], ["--model", "--size"]),
    (["--model", "resnet51"], ["--model", "resnet51"]),
    (["--agree-within", "0"], ["--agree-within", "0", "1 to"]),
    (["--strategy", "ssp:staleness=x"], ["staleness", "x"]),
    (["--slow", "rack7"], ["--slow", "rack7", "rack0, rack1", "rack0-host0 to rack1-host3"]),
    (["--seed", "2", "--strategy", "ds-sync"], ["--seed: 2", "--strategy", "ds-sync:seed=2"]),
    (["--slow-factor", "0.5"], ["--slow-factor", "0.5", "1 to 1000"]),
    (["--strategy", "ds-sync:groups=ring"], ["groups", "group", "slow", "seed"]),
    (["--strategy", "ds-sync:group=rung"], ["rung", "ring"]),
])
def test_mixing_bad_input(thalweg, arguments, words):
    done = thalweg("plan", "mixing", "--topology", TWO_RACKS, *arguments)
    assert done.code == 2
    assert all(word in done.err for word in words), done.err


BAD = [
    (["--size", "97"], ["--size", "'97'", "MB"]),
    (["--size", "10B"], ["--size", "10B", "4 bytes"]),
    (["--size", "-1MB"], ["--size"]),
    (["--scheme", "rings"], ["rings", "ring", "rat"]),
    (["--scheme", "rat:leaves=3"], ["leaves", "trees", "regions"]),
    (["--scheme", "k-nomial:k=1"], ["k", "'1'", "2"]),
    (["--collective", "allsum"], ["--collective", "allsum", "allreduce"]),
    (["--collective", "reduce", "--root", "8"], ["root", "8", "7"]),
    (["--element-bytes", "0"], ["--element-bytes", "0", "16"]),
    (["--alpha", "10"], ["--alpha", "'10'", "us"]),
    (["--topology", "leaf-spine:racks=2,hosts=0"], ["hosts", "0"]),
    (["--topology", "leaf-spine:racks=2,hosts=4,spine=1"], ["spine", "spines"]),
    (["--topology", "ring:hosts=3"], ["ring:hosts=3", "leaf-spine"]),
    (["--topology", "leaf-spine:racks=2,hosts=4,spines=1,host=10X,uplink=10G"], ["host", "10X"]),
    (["--topology", "no/such/file.yaml"], ["no/such/file.yaml"]),
    (["--topology", "tests"], ["tests"]),
    (["--pipeline", "0"], ["--pipeline", "0"]),
    (["--tree", "99"], ["--tree", "99", "31"]),
    (["--frobnicate"], ["frobnicate"]),
]


@pytest.mark.parametrize("change,words", BAD, ids=[" ".join(change) for change, _ in BAD])
def test_bad_input(thalweg, tmp_path, change, words):
    arguments = {"--topology": TWO_RACKS, "--size": "97MB"}
    rest = list(change)
    if rest[0] in arguments:
        arguments[rest[0]] = rest[1]
        rest = rest[2:]
    svg, plan = tmp_path / "x.svg", tmp_path / "x.json"
    done = thalweg("plan", "show", *[a for pair in arguments.items() for a in pair], *rest,
                   "--svg", svg, "--plan", plan)
    assert done.code == 2, done.out
    for word in words:
        assert word in done.err, done.err
    assert list(tmp_path.iterdir()) == []


BAD_TOPOLOGIES = {
    "unreachable": ("hosts: [{name: a}, {name: b}, {name: lost}]\nswitches: [{name: s}]\nlinks:\n"
                    "  - {between: [a, s], rate: 1G}\n  - {between: [b, s], rate: 1G}\n", ["lost"]),
    "zero rate": ("hosts: [{name: a}, {name: b}]\nlinks:\n  - {between: [a, b], rate: 0G}\n",
                  ["line 3", "rate"]),
    "duplicate": ("hosts:\n  - {name: a}\n  - {name: a}\n", ["line 3", "'a'"]),
    "cycle": ("regions:\n  - {name: x, parent: y}\n  - {name: y, parent: x}\n"
              "hosts: [{name: a}]\n", ["line", "x", "y"]),
    "unknown key": ("hosts: [{name: a, colour: red}]\n", ["line 1", "colour"]),
}


@pytest.mark.parametrize("case", BAD_TOPOLOGIES)
def test_bad_topology_file(thalweg, tmp_path, case):
    text, words = BAD_TOPOLOGIES[case]
    path = tmp_path / "net.yaml"
    path.write_text(text)
    done = thalweg("plan", "compare", "--topology", path, "--size", "1MB")
    assert done.code == 2
    assert done.out == ""
    for word in [str(path), *words]:
        assert word in done.err, done.err


def test_output_to_a_bad_place(thalweg, tmp_path):
    done = thalweg("plan", "show", "--topology", TWO_RACKS, "--size", "1MB", "--svg",
                   tmp_path / "good.svg", "--plan", tmp_path / "no" / "dir" / "p.json")
    assert done.code == 2
    assert "p.json" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["plan", "schemes"], ["bench", "kernels", "--size", "1MiB",
                                                           "--seconds", "0.1"]])
def test_full_disk_is_an_error(command):
    with open("/dev/full", "w") as full:
        process = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE,
                                 text=True, timeout=60)
    assert process.returncode == 2
    assert "standard output" in process.stderr


def test_same_input_same_output(thalweg):
    arguments = ["plan", "best", "--topology", TWO_RACKS, "--size", "1MB", "--json"]
    assert thalweg(*arguments).out == thalweg(*arguments).out


def test_a_thousand_hosts_in_time(thalweg):
    """The limit is 5 s and 2 GB for generating and proving a plan; this also predicts its time."""
    row = thalweg("plan", "show", "--topology",
                  "leaf-spine:racks=32,hosts=32,spines=4,host=10G,uplink=40G", "--size", "97MB",
                  "--scheme", "rat", "--json", timeout=60).json()
    assert row["verified"] is True
    assert row["steps"] == 4
    assert row["cross_region_bytes"] == 2 * 31 * 97 * MB
