"""`thalweg tune thresholds` as a user meets it."""
import pytest

RACKS = "leaf-spine:racks=2,hosts=8,spines=2,host=100G,uplink=100G"
BASIC = ("tune", "thresholds", "--model", "resnet50", "--topology", RACKS)


def queues(answer):
    return [(q["threshold_bytes"], q["limit_bytes"]) for q in answer["queues"]]


def test_json(thalweg):
    answer = thalweg(*BASIC, "--format", "json").json()
    assert answer["buffer_bytes"] == 512 * 1024
    assert len(answer["queues"]) == 7
    assert abs(sum(q["share"] for q in answer["queues"]) - 1) < 1e-9
    # The limits add up to the buffer that is not reserved for control, within a byte per queue.
    total = sum(limit for _, limit in queues(answer))
    assert 0.95 * 512 * 1024 - 10 < total <= 0.95 * 512 * 1024
    for q in answer["queues"]:
        assert 0 < q["threshold_bytes"] <= q["limit_bytes"]
        assert 0 <= q["large_loss"] <= q["small_loss"] < 1
    # Urgent queues, which carry the front layers, drop first.
    thresholds = [t for t, _ in queues(answer)]
    assert thresholds == sorted(thresholds)
    assert 0 < answer["mean_load"] < 1


def test_table(thalweg):
    done = thalweg(*BASIC)
    assert done.code == 0, done.err
    assert "conv1" in done.out and "(control)" in done.out


def test_buffer_load_and_queues_count(thalweg):
    usual = thalweg(*BASIC, "--format", "json").json()
    large = thalweg(*BASIC, "--format", "json", "--buffer", "2MiB").json()
    assert all(a[0] > b[0] and a[1] > b[1] for a, b in zip(queues(large), queues(usual)))
    assert large["log_cost"] < usual["log_cost"]
    busy = thalweg(*BASIC, "--format", "json", "--load", "0.98").json()
    assert busy["log_cost"] > usual["log_cost"]
    mean = thalweg(*BASIC, "--format", "json", "--load", "mean").json()
    assert mean["load"] == mean["mean_load"]
    assert len(thalweg(*BASIC, "--format", "json", "--queues", "4").json()["queues"]) == 3


def test_scheme_finds_the_port(thalweg):
    ps = thalweg(*BASIC, "--format", "json", "--scheme", "ps:servers=2").json()
    ring = thalweg(*BASIC, "--format", "json", "--scheme", "ring").json()
    assert ps["port_bytes"] > 2 * ring["port_bytes"]
    assert ps["mean_load"] > ring["mean_load"]


def test_weights(thalweg, tmp_path):
    weights = tmp_path / "weights.yaml"
    weights.write_text("front: 50\nback: 1\nlayers:\n  - {name: conv1, weight: 1000}\n")
    usual = thalweg(*BASIC, "--format", "json").json()
    heavy = thalweg(*BASIC, "--format", "json", "--weights", weights).json()
    assert queues(heavy)[0][0] > queues(usual)[0][0]
    assert queues(heavy)[6][0] < queues(usual)[6][0]


def test_sonic(thalweg):
    config = thalweg(*BASIC, "--format", "sonic", "--port", "Ethernet8").json()
    thresholds = queues(thalweg(*BASIC, "--format", "json").json())
    assert config["SCHEDULER"]["scheduler.dlcp"]["type"] == "STRICT"
    for q, (threshold, _) in enumerate(thresholds, start=1):
        profile = config["QUEUE"][f"Ethernet8|{7 - q}"]["wred_profile"]
        assert config["WRED_PROFILE"][profile]["green_min_threshold"] == str(threshold)


@pytest.mark.parametrize("kind, line", [
    ("cumulus", "nv set qos egress-scheduler default-global traffic-class 0-7 mode strict"),
    ("onyx", "interface ethernet 1/1 qos trust L3"),
    ("thalweg", "  discipline: strict-priority")])
def test_other_formats(thalweg, kind, line):
    done = thalweg(*BASIC, "--format", kind)
    assert done.code == 0, done.err
    assert line in done.out.splitlines()


def test_scenario_section_takes_effect(thalweg, tmp_path):
    """`thalweg sim run` reads and applies what --format thalweg prints."""
    answer = queues(thalweg(*BASIC, "--format", "json").json())
    scenario = tmp_path / "tuned.yaml"

    def result_with(*flags):
        network = thalweg(*BASIC, "--format", "thalweg", *flags).out
        # Three hosts send to one, in queue 1.
        scenario.write_text(
            "topology: single-switch:hosts=4,host=10G\ntransport: dlcp\n" + network + "flows:\n" +
            "".join(f"  - {{from: host{i}, to: host0, size: 1MB}}\n" for i in (1, 2, 3)))
        return thalweg("sim", "run", scenario, "--json").json()

    tuned = result_with()
    assert tuned["drops_selective"] > 0 and tuned["drops_full"] > 0
    # With a larger buffer the queue holds the whole burst.
    assert answer[0][1] < 300_000
    roomy = result_with("--buffer", "512MiB")
    assert roomy["drops_selective"] == roomy["drops_full"] == 0
    done = thalweg(*BASIC, "--format", "thalweg", "--queues", "4")
    assert done.code == 2 and "--queues 4" in done.err


def test_same_input_same_output(thalweg):
    assert thalweg(*BASIC, "--format", "json").out == thalweg(*BASIC, "--format", "json").out


@pytest.mark.parametrize("flags, word", [
    (("--load", "1"), "--load"), (("--load", "0"), "--load"), (("--load", "nan"), "--load"),
    (("--load", "much"), "mean"), (("--queues", "1"), "queues"), (("--queues", "9"), "queues"),
    (("--buffer", "10"), "--buffer"), (("--buffer", "4kB"), "at least"),
    (("--packet", "1B"), "--packet"), (("--small-fraction", "1"), "small-fraction"),
    (("--scheme", "rign"), "--scheme"), (("--format", "ios"), "format"),
    (("--port", "a b"), "port"), (("--weights", "/no/such"), "/no/such")])
def test_bad_flags(thalweg, flags, word):
    done = thalweg(*BASIC, *flags)
    assert done.code == 2, done.out
    assert word in done.err


def test_bad_files(thalweg, tmp_path):
    weights = tmp_path / "w.yaml"
    weights.write_text("front: 1\nbcak: 2\n")
    done = thalweg(*BASIC, "--weights", weights)
    assert done.code == 2 and "line 2" in done.err
    weights.write_text("layers:\n  - {name: nosuch, weight: 1}\n")
    done = thalweg(*BASIC, "--weights", weights)
    assert done.code == 2 and "nosuch" in done.err
    done = thalweg("tune", "thresholds", "--model", "nosuch", "--topology", RACKS)
    assert done.code == 2 and "nosuch" in done.err
    topology = tmp_path / "t.yaml"
    topology.write_text("name: t\nhosts: [a, b]\nswitches: [s]\ndefaults: {rate: 10G}\n"
                        "links:\n  - {between: [a, s]}\n  - {between: [b, s]}\n")
    done = thalweg("tune", "thresholds", "--model", "resnet50", "--topology", topology)
    assert done.code == 2, done.out


def test_bound__starts_the_profiler(thalweg):
    done = thalweg("tune", "bound", "--model", "digits-cnn", "--samples", 64, "--epochs", 1, "--seeds", 1, "--fractions",
                   "50%", "--where", "all", "--json")
    assert done.json()["points"][0]["fraction"] == 0.5


def test_bound__refuses(thalweg, monkeypatch):
    done = thalweg("tune", "bound", "--model", "nosuch")
    assert done.code == 2 and "'nosuch'; digits-cnn" in done.err
    monkeypatch.setenv("THALWEG_PYTHON", "/nowhere/python")
    done = thalweg("tune", "bound", "--model", "digits-cnn")
    assert done.code == 2 and "/nowhere/python" in done.err and "tools/setup" in done.err
