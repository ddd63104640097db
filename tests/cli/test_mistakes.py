"""Mistyped command lines: each error names what is wrong and what was probably meant."""
import json
import os
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/thalweg"
NETWORK = ("--topology", "two-racks", "--size", "97MB")

# What was typed, the wrong word that the error must name, and the suggestion.
TEN = {
    "option": (("plan", "show", "--toplogy", "two-racks", "--size", "97MB"), "--toplogy", "--topology"),
    "command": (("plan", "shwo", *NETWORK), "shwo", "show"),
    "scheme": (("plan", "show", *NETWORK, "--scheme", "rign"), "rign", "ring"),
    "unit": (("plan", "show", *NETWORK, "--alpha", "10uS"), "10uS", "10us"),
    "file": (("sim", "run", "scenarios/two-job.yaml"), "scenarios/two-job.yaml", "scenarios/two-jobs.yaml"),
    "topology": (("plan", "best", "--topology", "leaf-spin:racks=2", "--size", "1MB"), "leaf-spin:racks=2",
                 "leaf-spine:racks=2"),
    "host": (("job", "list", "--switch", "locahost:7700"), "locahost", "localhost:7700"),
    "size": (("plan", "best", "--topology", "two-racks", "--size", "97M"), "97M", "97MB"),
    "port": (("job", "list", "--switch", "127.0.0.1:77OO"), "127.0.0.1:77OO", "127.0.0.1:7700"),
    "JSON": (("plan", "verify", "{plan}"), '"transfres"', "transfers"),
}


@pytest.fixture
def mistyped_plan(thalweg, tmp_path):
    path = tmp_path / "plan.json"
    assert thalweg("plan", "show", *NETWORK, "--plan", path).code == 0
    path.write_text(path.read_text().replace('"transfers"', '"transfres"'))
    return path


@pytest.mark.parametrize("kind", TEN)
def test_ten_mistakes__are_named_with_a_suggestion(thalweg, mistyped_plan, kind):
    words, wrong, meant = TEN[kind]
    words = [str(mistyped_plan) if word == "{plan}" else word for word in words]
    done = thalweg(*words, timeout=20)
    assert done.code == 2, done.err
    assert wrong in done.err and f"did you mean '{meant}'?" in done.err, done.err
    assert done.out == ""
    # With --json the same error is an object on standard output.
    done = thalweg(*words, "--json", timeout=20)
    assert done.code == 2, done.err
    error = json.loads(done.out)
    assert error["exit_code"] == 2 and f"did you mean '{meant}'?" in error["error"], error


@pytest.mark.parametrize("words,wrong,meant", [
    (("paln",), "paln", "plan"),
    (("plan", "show", "-topology", "x"), "-topology", "--topology"),
    (("plan", "show", "--sise=1MB"), "--sise", "--size"),
    (("plan", "show", *NETWORK, "--collective", "allreduse"), "allreduse", "allreduce"),
    (("plan", "show", *NETWORK, "--scheme", "rat:tres=2"), "tres", "trees"),
    (("plan", "show", "--topology", "leaf-spine:rack=2", "--size", "1MB"), "rack", "racks"),
    (("plan", "show", "--topology", "leaf-spine:host=10g", "--size", "1MB"), "10g", "10G"),
    (("plan", "show", "--topology", "leaf-spine:host=10gbps", "--size", "1MB"), "10gbps", "10Gbps"),
    (("plan", "show", "--topology", "two-rack", "--size", "1MB"), "two-rack", "two-racks"),
    (("plan", "show", "--topology", "topologies/slow-nik.yaml", "--size", "1MB"), "slow-nik",
     "topologies/slow-nic.yaml"),
    (("plan", "best", "--strategies", "--topology", "two-racks", "--model", "resnet5"), "resnet5", "resnet50"),
    (("sim", "run", "los"), "los", "loss"),
    (("sim", "run", "loss", "--set", "job.0.scheme=ring"), "job", "jobs"),
    (("reproduce", "rat/fgi4"), "rat/fgi4", "rat/fig4"),
    (("tune", "thresholds", "--model", "resnet50", "--topology", "two-racks", "--format", "sonik"), "sonik", "sonic"),
    (("tune", "bound", "--modle", "digits-cnn"), "--modle", "--model"),
    (("tune", "bound", "--model", "digit-cnn"), "digit-cnn", "digits-cnn"),
    (("bench", "allreduce", "--against", "glo"), "glo", "gloo"),
    (("run", "--rank", "2", "--", "true"), "--rank", "--ranks"),
    (("job", "list", "--switch", "127.0.0.1"), "127.0.0.1", "127.0.0.1:7700"),
    (("completion", "fsh"), "fsh", "fish"),
])
def test_other_mistakes(thalweg, words, wrong, meant):
    done = thalweg(*words, timeout=60)
    assert done.code == 2, done.err
    assert wrong in done.err and f"did you mean '{meant}'?" in done.err, done.err


def test_nothing_is_suggested_for_what_is_far_from_everything(thalweg):
    for words in (("plan", "frobnicate"), ("plan", "show", "--frobnicate"), ("plan", "show", *NETWORK, "--scheme", "tree")):
        done = thalweg(*words)
        assert done.code == 2 and "did you mean" not in done.err, done.err


def test_unknown_option_is_named_before_a_missing_one(thalweg):
    done = thalweg("plan", "show", "--sized", "1MB")
    assert "'--sized' is not one of its options" in done.err and "required" not in done.err, done.err
    done = thalweg("plan", "show", "--size", "1MB")
    assert "--topology is required" in done.err, done.err


def test_data_files_are_found_by_name(thalweg):
    by_name = thalweg("plan", "best", "--topology", "slow-nic", "--size", "1MB", "--json").json()
    by_path = thalweg("plan", "best", "--topology", "topologies/slow-nic.yaml", "--size", "1MB", "--json").json()
    assert by_name == by_path


def test_set__names_the_line_of_the_file(thalweg):
    lines = (ROOT / "scenarios/loss.yaml").read_text().splitlines()
    jobs = next(i for i, line in enumerate(lines, 1) if line.startswith("jobs:"))
    scheme = next(i for i, line in enumerate(lines, 1) if "scheme:" in line)
    done = thalweg("sim", "run", "loss", "--set", "jobs.0.scheme=rign")
    assert f"line {scheme}:" in done.err and "with jobs.0.scheme=rign" in done.err, done.err
    done = thalweg("sim", "run", "loss", "--set", "jobs.0.schme=ring")  # a new key: the line of its map
    line = int(re.search(r"line (\d+):", done.err)[1])
    assert jobs < line <= scheme and "did you mean 'scheme'?" in done.err, done.err


def test_set__host_of_a_scenario(thalweg, tmp_path):
    scenario = tmp_path / "flow.yaml"
    scenario.write_text("topology: single-switch:hosts=4,host=10G\ntransport: dctcp\nflows:\n"
                        "  - {from: host1, to: host0, size: 1MB}\n")
    done = thalweg("sim", "run", scenario, "--set", "flows.0.from=hots1")
    assert done.code == 2 and "'hots1'" in done.err and "did you mean 'host1'?" in done.err, done.err
    assert "line 4:" in done.err, done.err


@pytest.mark.parametrize("words", [("job", "list", "--switch"), ("top", "--once")])
def test_refused_connection__is_said_at_once(thalweg, words):
    with socket.socket() as closed:  # bound, not listening
        closed.bind(("127.0.0.1", 0))
        began = time.monotonic()
        done = thalweg(*words, f"127.0.0.1:{closed.getsockname()[1]}")
    said = done.err + done.out
    assert done.code in (1, 2) and "connection refused" in said and "within" not in said, said
    assert time.monotonic() - began < 1.5


def test_probe__alone_is_an_error(thalweg):
    done = thalweg("probe")
    assert done.code == 2 and "alone" in done.err and "thalweg run -n" in done.err, done.err


@pytest.mark.parametrize("words", [("plan", "best", "--topology", "two-racks", "--size", "0B"),
                                   ("plan", "compare", "--topology", "two-racks", "--size", "0"),
                                   ("bench", "allreduce", "--sizes", "0B")])
def test_size_zero__is_refused(thalweg, words):
    done = thalweg(*words)
    assert done.code == 2 and "--size" in done.err and done.out == "", done.err


def test_show_and_compare__predict_the_same_and_say_how_chunks_are_cut(thalweg):
    compared = thalweg("plan", "compare", *NETWORK, "--scheme", "rat", "--json").json()[0]
    assert "with --pipeline 1; plan compare" in thalweg("plan", "show", *NETWORK, "--scheme", "rat").out
    for pipeline in (1, compared["pipeline"]):
        shown = thalweg("plan", "show", *NETWORK, "--scheme", "rat", "--pipeline", pipeline, "--json").json()
        assert shown["predicted_ms"] == pytest.approx(compared["predicted_ms"])
    assert shown["fluid_ms"] == pytest.approx(compared["fluid_ms"])


def test_tune__both_take_the_names_of_models(thalweg):
    for name in ("digits-cnn", "digits-resnet", "char-lm"):
        answer = thalweg("tune", "thresholds", "--model", name, "--topology", "two-racks", "--json").json()
        assert answer["model"] == name and len(answer["queues"]) == 7
    done = thalweg("tune", "bound", "--model", "resnet50", timeout=60)
    assert done.code == 2 and "models/resnet50.yaml" in done.err and "no data to train on" in done.err, done.err


def test_json__is_a_flag_of_schemes_and_thresholds(thalweg):
    schemes = thalweg("plan", "schemes", "--json").json()
    assert {"ring", "rat"} <= {one["scheme"] for one in schemes}
    arguments = ("tune", "thresholds", "--model", "resnet50", "--topology", "two-racks")
    assert thalweg(*arguments, "--json").json() == thalweg(*arguments, "--format", "json").json()


def test_json__errors_of_a_command(thalweg):
    done = thalweg("plan", "verify", "/nowhere/plan.json", "--json")
    assert done.code == 2 and "/nowhere/plan.json" in json.loads(done.out)["error"]
    assert "/nowhere/plan.json" in done.err
    # What follows "--" is for another program.
    done = thalweg("run", "-n", "0", "--", "echo", "--json")
    assert done.code == 2 and done.out == "", done.out


def all_commands(thalweg):
    return re.findall(r"^    '(thalweg[^']*)'\)", thalweg("completion", "bash").out, re.MULTILINE)


def test_help__groups_commands_and_gives_examples(thalweg):
    text = thalweg("--help").out
    for heading in ("Explore networks:", "Run jobs:", "Measure and watch:", "Examples:"):
        assert heading in text, text
    assert "Cost model:" in thalweg("plan", "show", "--help").out
    commands = all_commands(thalweg)
    leaves = [one for one in commands if not any(other.startswith(one + " ") for other in commands)]
    assert len(leaves) > 30
    for one in leaves:
        done = thalweg(*one.split()[1:], "--help")
        assert done.code == 0 and "Example" in done.out, one


def test_out__is_the_one_spelling(thalweg):
    for one in all_commands(thalweg):
        assert "--output" not in thalweg(*one.split()[1:], "--help").out, one
    done = thalweg("reproduce", "nothing", "--output", "folder")  # still understood
    assert "'nothing' is not an experiment" in done.err, done.err


def test_files_that_never_end__are_bounded(thalweg, tmp_path):
    """A device, a huge file and a pipe without a writer are errors; a pipe that is written is read."""
    plan, pipe, huge = tmp_path / "plan.json", tmp_path / "pipe", tmp_path / "huge.json"
    assert thalweg("plan", "show", *NETWORK, "--plan", plan).code == 0
    os.mkfifo(pipe)
    with open(huge, "wb") as file:
        file.truncate(2**30 + 1)

    def verify(path):
        return thalweg("plan", "verify", path, "--topology", "two-racks")

    for path, words in {"/dev/zero": "it is a device", huge: "more than 1073741824 bytes", tmp_path: "it is a folder",
                        pipe: "nobody has begun to write"}.items():
        started = time.monotonic()
        answer = verify(path)
        assert answer.code == 2 and words in answer.err and str(path) in answer.err, answer.err
        assert time.monotonic() - started < 20

    def write_slowly():
        text = plan.read_bytes()
        with open(pipe, "wb", buffering=0) as out:
            time.sleep(0.3)
            out.write(text[:100])
            time.sleep(0.3)
            out.write(text[100:])

    writer = threading.Thread(target=write_slowly)
    writer.start()
    assert verify(pipe).code == 0
    writer.join()
    shell = f"{PROGRAM} plan verify <(cat {plan}) --topology two-racks"
    assert subprocess.run(["bash", "-c", shell], timeout=60, check=False).returncode == 0
