"""thalweg.plan and thalweg.sim: the program's answers as Python's values, its refusals as exceptions."""
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from thalweg import _program, plan, sim  # noqa: E402

NETWORK = "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G"
PROGRAM = ROOT / "build/release/thalweg"
SMALL = {"name": "small", "topology": "single-switch:hosts=2,host=10G", "transport": {"kind": "newreno"},
         "network": {"port_buffer": "1MB"}, "jobs": [{"tensor": "1MB", "scheme": "ring", "iterations": 1}]}


def program(*words):
    done = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_best__is_that_of_the_program():
    found = plan.best(topology=NETWORK, size="97MB")
    told = program("plan", "best", "--topology", NETWORK, "--size", "97MB")
    assert found.scheme == told["scheme"] and found.predicted_ms == told["predicted_ms"] and found.numbers == told
    assert found.reason == told["reason"] and found.candidates == told["candidates"]
    assert str(found).startswith(f"{told['scheme']}: ") and told["reason"] in str(found)


def test_command_of_the_page__prints_the_best_plan():
    code = f"import thalweg.plan as p; print(p.best(topology={NETWORK!r}, size='97MB'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "THALWEG_BACKEND": "0"})
    assert " ms for 97MB on leaf-spine:" in done.stdout


def test_plan__draws_itself_and_is_proved():
    network = plan.Topology.of("single-switch", hosts=4, host="10G")
    assert str(network) == "single-switch:hosts=4,host=10G"
    ring = plan.plan(network, 1_000_000, "ring")
    assert ring.scheme == "ring" and ring.steps == 6 and ring.size == "1000000B"
    picture = xml.etree.ElementTree.fromstring(ring._repr_svg_())
    assert picture.tag.endswith("svg")
    assert json.loads(ring.timeline)["traceEvents"] and "<algo" in ring.msccl and ring.dot.startswith("digraph")
    assert plan.verify(ring) and plan.verify(ring.transfers, network).correct


def test_verify__says_what_is_wrong(tmp_path):
    broken = dict(plan.plan("two-racks", "1MB", "ring").transfers)
    broken["transfers"] = broken["transfers"][:-1]
    verdict = plan.verify(broken)
    assert not verdict and "ends without the contribution of rank" in verdict.error
    (tmp_path / "plan.json").write_text(json.dumps(broken))
    assert plan.verify(tmp_path / "plan.json").error == verdict.error


def test_compare_and_schemes__have_every_scheme():
    rows = plan.compare(NETWORK, "97MB")
    names = {scheme.name for scheme in plan.schemes()}
    assert {row["scheme"] for row in rows} <= names and len(rows) > 5
    assert all(row["verified"] for row in rows)
    assert rows._repr_html_().count("<tr>") == len(rows) + 1
    rat = next(scheme for scheme in plan.schemes() if scheme.name == "rat")
    assert "allreduce" in rat.collectives and "trees" in {parameter.name for parameter in rat.parameters}


def test_compare__only_some_schemes_and_also_by_packets():
    network = "single-switch:hosts=4,host=10G"
    rows = plan.compare(network, "64KiB", schemes=["ring", "rat:trees=2"], simulate=True)
    words = ("--topology", network, "--size", "64KiB", "--scheme", "ring", "--scheme", "rat:trees=2", "--simulate")
    assert rows == program("plan", "compare", *words) and [row["scheme"] for row in rows] == ["ring", "rat:trees=2"]
    assert all(row["simulated_ms"] > row["limit_ms"] for row in rows)
    assert [row["scheme"] for row in plan.compare(network, "64KiB", schemes="ring")] == ["ring"]


def test_cost_model__dearer_messages_make_every_plan_slower():
    usual, dear = (plan.compare(NETWORK, "64KiB", **cost) for cost in ({}, {"alpha": "1ms", "follow_up": "500us"}))
    slower = {row["scheme"]: row["predicted_ms"] for row in dear}
    assert all(slower[row["scheme"]] > row["predicted_ms"] for row in usual)
    assert plan.plan(NETWORK, "64KiB", "ring", alpha="1ms").predicted_ms > plan.plan(NETWORK, "64KiB", "ring").predicted_ms
    assert plan.best(NETWORK, "64KiB", alpha="1ms").predicted_ms > plan.best(NETWORK, "64KiB").predicted_ms


# What the program's options are in Python, where it is no parameter of the same name.
OTHERWISE = {"--json": "always", "--help": "help()", "--help-all": "help()", "--plan": "Plan.transfers", "--xml": "Plan.msccl",
             "--svg": "Plan.svg", "--dot": "Plan.dot", "--timeline": "Plan.timeline", "--transfers": "Plan.transfers",
             "--scheme": "schemes", "--set": "settings", "--sweep": "sweep()", "--trace": "Result.timeline",
             "--plot": "Result.svg", "--csv": "Rows.frame()"}
# The program alone does these: strategies of synchronization, the time of a choice, chosen chunks in a drawing, the flows of a run.
PROGRAM_ONLY = {"--strategies", "--strategy", "--model", "--agree-within", "--slow", "--slow-factor", "--seed", "--in-switch",
                "--time", "--tree", "--flows"}


@pytest.mark.parametrize("command,functions", [("plan show", [plan.plan]), ("plan best", [plan.best]),
                                               ("plan compare", [plan.compare]), ("plan verify", [plan.verify]),
                                               ("sim run", [sim.run, sim.sweep])])
def test_options_of_the_program__are_in_python(command, functions):
    shown = subprocess.run([PROGRAM, *command.split(), "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    options = set(re.findall(r"^ +(?:-\w,? ?)?(--[a-z][a-z-]*)", shown, re.MULTILINE))
    assert {"--json", "--help"} <= options
    parameters = {name for function in functions for name in inspect.signature(function).parameters}
    missing = {option for option in options - OTHERWISE.keys() - PROGRAM_ONLY
               if option.removeprefix("--").replace("-", "_") not in parameters}
    assert missing == set(), f"{command}: Python has no parameter for these"


@pytest.mark.parametrize("ask,words", [
    (lambda: plan.best("leaf-spin:racks=2", "97MB"), "did you mean 'leaf-spine:racks=2'?"),
    (lambda: plan.best(NETWORK, "97"), "97"),
    (lambda: plan.plan(NETWORK, "97MB", "rign"), "did you mean 'ring'?"),
    (lambda: plan.verify("/nowhere/plan.json"), "/nowhere/plan.json"),
    (lambda: sim.run("/nowhere/scenario.yaml"), "/nowhere/scenario.yaml"),
    (lambda: sim.run(sim.Scenario.of({**SMALL, "tranport": {}})), "tranport"),
])
def test_what_the_program_refuses__is_an_exception_with_its_words(ask, words):
    with pytest.raises(plan.ProgramError) as error:
        ask()
    assert words in str(error.value) and error.value.exit_code == 2


def test_run__is_that_of_the_program():
    result = sim.run("loss", {"seed": 2})
    told = program("sim", "run", "loss", "--set", "seed=2")
    assert result.numbers == told and result.finished and result.jobs == told["jobs"] and result["loss"] == told["loss"]


def test_scenario__from_a_dict_is_run_and_drawn():
    scenario = sim.Scenario("loss").changed({"jobs.0.scheme": "halving-doubling"})
    text = (ROOT / "scenarios/loss.yaml").read_text()
    by_text = sim.run(sim.Scenario(text=text), {"jobs.0.scheme": "halving-doubling"})
    assert by_text.numbers == sim.run(scenario).numbers != sim.run("loss").numbers
    if importlib.util.find_spec("matplotlib"):
        assert xml.etree.ElementTree.fromstring(by_text._repr_svg_()).tag.endswith("svg")
    with pytest.raises(ValueError, match="one of both"):
        sim.Scenario()


def test_sweep__gives_a_row_for_every_point():
    rows = sim.sweep("loss", {"seed": [1, 2], "jobs.0.scheme": ["ring", "halving-doubling"]}, jobs=2)
    assert [(row["seed"], row["jobs.0.scheme"]) for row in rows] == [
        (1, "ring"), (1, "halving-doubling"), (2, "ring"), (2, "halving-doubling")]
    for row in rows:
        alone = sim.run("loss", {name: row[name] for name in ("seed", "jobs.0.scheme")})
        assert row["simulated_ms"] == alone.simulated_ms
        assert row["mean_iteration_ms"] == alone.jobs[0]["mean_iteration_ms"]
    if importlib.util.find_spec("pandas"):
        assert list(rows.frame()["seed"]) == [1, 1, 2, 2]
    else:
        with pytest.raises(ImportError, match="pip install pandas"):
            rows.frame()
    with pytest.raises(ValueError, match="axes"):
        sim.sweep("loss", {})


def test_program__that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("THALWEG_PROGRAM", "/nowhere/thalweg")
    with pytest.raises(plan.ProgramError, match="THALWEG_PROGRAM: /nowhere/thalweg"):
        plan.schemes()
    monkeypatch.delenv("THALWEG_PROGRAM")
    assert _program.program() == str(PROGRAM)


def test_time_limit__is_an_exception():
    with pytest.raises(TimeoutError, match="thalweg sim run: not done after"):
        sim.run("loss", timeout=0.001)
