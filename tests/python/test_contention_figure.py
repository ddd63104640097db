"""What examples/dssync_contention.py draws of the times it recorded."""
import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from thalweg.lab.figures.check import check  # noqa: E402


def test_times_of_groups__are_those_of_their_quickest_members():
    spec = importlib.util.spec_from_file_location("contention", ROOT / "examples/dssync_contention.py")
    contention = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contention)
    arguments = Namespace(window=2, slow=1, factor=5.0)
    windows = [{"first": 0, "seconds": [[1.0, 0.0], [2.0, 4.0], [5.0, 3.0]], "period": [[[0, 1], [2]], [[0], [1, 2]]]}]
    figure = contention.figure_of(arguments, windows, [(1, "slowed")], [2])
    check(figure)
    times, sizes = figure["panels"]
    assert [series["y"] for series in times["series"]] == [[1000.0, 3000.0], [5000.0, 0.0]]
    assert sizes["series"][0]["y"] == [2, 2]
    assert [mark["label"] for mark in sizes["marks"]] == ["link slowed", "schedule changed"]
