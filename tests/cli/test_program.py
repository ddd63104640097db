"""The program itself: its errors for wrong subcommands, and completion."""
import re
import shutil
import subprocess

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


def completed(thalweg, *words):
    """The completions that bash offers for the last of these words."""
    script = thalweg("completion", "bash").out
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _thalweg; echo \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True).stdout.split()


def test_completion(thalweg):
    assert {"plan", "testbed", "run"} <= set(completed(thalweg, "thalweg", ""))
    assert completed(thalweg, "thalweg", "plan", "com") == ["compare"]
    assert "--topology" in completed(thalweg, "thalweg", "plan", "compare", "--size", "1MB", "--t")
    assert completed(thalweg, "thalweg", "run", "-n", "2", "--", "pl") == []
    assert "rank" not in completed(thalweg, "thalweg", "bench", "")  # for the program itself
    assert thalweg("completion", "tcsh").code == 2


def test_completion__fish(thalweg):
    script = thalweg("completion", "fish").out
    lines = script.splitlines()
    assert any(line.startswith("complete -c thalweg -n '__thalweg_at thalweg' -f -a plan -d ") for line in lines)
    shown = [line for line in lines if line.startswith("complete -c thalweg -n '__thalweg_at thalweg plan show' ")]
    assert any(" -l topology -r -d " in line for line in shown)  # takes a value
    assert any(" -l json -d " in line for line in shown)  # a flag
    assert any("-s n -l ranks -r" in line for line in lines)
    assert "allreduce-rank" not in script  # for the program itself
    # Every text in quotes ends on its line, with quotes inside escaped.
    for line in lines:
        if line.startswith("complete "):
            assert re.sub(r"\\.", "", line).count("'") == 4, line
    fish = shutil.which("fish")
    if fish:
        asked = f"{script}\ncomplete -C 'thalweg plan com'"
        found = subprocess.run([fish, "--no-config", "-c", asked], check=True, capture_output=True, text=True).stdout
        assert found.startswith("compare\t"), found


def test_man_page__has_every_subcommand_and_option(thalweg):
    page = thalweg("man").out
    assert page.startswith(".TH THALWEG 1")
    for words in (".SS thalweg plan compare", ".SS thalweg testbed up", ".B \\-\\-topology", ".SS thalweg bench allreduce"):
        assert words in page, words
    lines = page.splitlines()
    assert all(line.split()[0] in {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I"} for line in lines if line.startswith("."))
