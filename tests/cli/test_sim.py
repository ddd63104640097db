"""`thalweg sim run` as a user meets it."""
import csv
from pathlib import Path

import pytest


def test_two_jobs(thalweg):
    result = thalweg("sim", "run", "scenarios/two-jobs.yaml", "--json").json()
    assert result["finished"] is True
    assert [job["name"] for job in result["jobs"]] == ["resnet", "vgg"]
    for job in result["jobs"]:
        assert job["done"] and len(job["iterations_ms"]) == 2 and job["samples_per_s"] > 0
    assert 0 < result["highest_utilisation"] <= 1


def test_link_failure(thalweg, tmp_path):
    flows = tmp_path / "flows.csv"
    result = thalweg("sim", "run", "scenarios/link-failure.yaml", "--json", "--flows", flows).json()
    assert result["finished"] is True
    assert result["drops_fault"] > 0
    rows = list(csv.DictReader(flows.open()))
    assert len(rows) == 4
    assert all(float(r["completion_us"]) >= float(r["oracle_us"]) for r in rows)


def test_loss(thalweg):
    done = thalweg("sim", "run", "scenarios/loss.yaml")
    assert done.code == 0, done.err
    assert "samples/s" in done.out and "p99.9" in done.out


def test_same_seed_same_json(thalweg):
    first = thalweg("sim", "run", "scenarios/link-failure.yaml", "--json").out
    assert first == thalweg("sim", "run", "scenarios/link-failure.yaml", "--json").out


@pytest.mark.parametrize("old,new,words", [
    ("resnet50", "resnet51", ["line 7", "resnet51"]),
    ("scheme: rat", "scheme: rats", ["line 7", "rats", "rat"]),
    ("start: 5ms", "start: 5", ["line 8", "start", "ms"]),
    ("rack1-host3", "rack1-host9", ["line", "rack1-host9"]),
    ("iterations: 2}", "iteration: 2}", ["line 7", "iteration"]),
    ("two-racks", "three-racks", ["line 3", "three-racks"]),
])
def test_bad_scenario(thalweg, tmp_path, old, new, words):
    root = Path(__file__).resolve().parents[2]
    text = (root / "scenarios/two-jobs.yaml").read_text()
    assert old in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(old, new, 1))
    done = thalweg("sim", "run", path)
    assert done.code == 2
    for word in [str(path), *words]:
        assert word in done.err, done.err


def test_output_to_a_device_and_a_link(thalweg, tmp_path):
    """Devices and symbolic links are written to, not replaced by a file; a full disk is an error."""
    done = thalweg("sim", "run", "scenarios/link-failure.yaml", "--flows", "/dev/full")
    assert done.code == 2 and "/dev/full" in done.err
    assert Path("/dev/full").is_char_device()
    link, target = tmp_path / "link.csv", tmp_path / "target.csv"
    link.symlink_to(target)
    assert thalweg("sim", "run", "scenarios/link-failure.yaml", "--flows", link).code == 0
    assert link.is_symlink() and target.read_text().startswith("from,to,")


def test_no_such_file(thalweg):
    assert thalweg("sim", "run", "no/such.yaml").code == 2


def test_aggregation_over_two_levels(thalweg):
    result = thalweg("sim", "run", "scenarios/atp-two-racks.yaml", "--json").json()
    assert result["finished"] and result["failures"] == []
    for job in result["jobs"]:
        counts = job["aggregation"]
        assert job["done"] and counts["completed"] > 1000
        # The switches of two racks aggregate; the third rack's does not, so its worker's packets
        # reach the server alone.
        assert counts["packets_at_servers"] < counts["packets_sent"]
