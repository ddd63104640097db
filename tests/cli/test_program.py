"""The program itself: what it says where a subcommand is due."""
import pytest


@pytest.mark.parametrize("arguments,words", [
    (["plam"], ["thalweg: 'plam'", "plan", "sim", "reproduce", "bench", "tune"]),
    (["plan", "shwo"], ["thalweg plan: 'shwo'", "show", "compare", "best", "verify", "schemes"]),
    (["--fast"], ["thalweg: '--fast'", "plan"]),
    (["tune"], ["thalweg tune: a subcommand is required", "thresholds"]),
])
def test_no_such_subcommand(thalweg, arguments, words):
    done = thalweg(*arguments)
    assert done.code == 2
    for word in words:
        assert word in done.err, done.err


def test_missing_option_is_still_named(thalweg):
    done = thalweg("plan", "best")
    assert done.code == 2 and "--topology is required" in done.err, done.err
