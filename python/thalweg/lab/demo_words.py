"""What the page of `make demo` says about its numbers: the first line, and why where Thalweg did not win."""

BUSY = 0.85  # above this share of processor time in use, processors and not the network decide
CLEAR = 1.03  # ratios nearer to 1 than this count as equal: repeated runs differ by as much
MEASURES = (("mean_ms", "mean"), ("p50_ms", "median"), ("p99_ms", "p99"))


def ratio(gloo, ours, key):
    return gloo[key] / ours[key]


def _times(value):
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def first_line(gloo, ours, loss):
    """What came out, in one sentence: true whoever won."""
    mean, median, tail = (ratio(gloo, ours, key) for key, _ in MEASURES)
    accuracy = ("the same accuracy" if abs(gloo["accuracy"] - ours["accuracy"]) < 0.005 else
                f"accuracy {ours['accuracy']:.1%} against {gloo['accuracy']:.1%}")
    where = f"with {loss} of the packets between racks lost"
    numbers = f"median {_times(median)}, mean {_times(mean)}, p99 {_times(tail)} (Gloo / Thalweg)"
    if min(mean, median, tail) > CLEAR:
        return (f"Training steps were {_times(mean)} times as fast as over Gloo {where}, "
                f"and at the slowest (p99) {_times(tail)} times; {accuracy}.", numbers)
    won = [name for (key, name) in MEASURES if ratio(gloo, ours, key) > CLEAR]
    if won:
        return (f"Thalweg was ahead of Gloo at the {' and the '.join(won)} of a training step, but not "
                f"everywhere, {where}; {accuracy}.", numbers)
    return f"Thalweg was not faster than Gloo {where}; {accuracy}.", numbers


def why_not(gloo, row):
    """Why a row does not win at median, mean and p99, from what was measured; None if it does."""
    behind = [name for key, name in MEASURES if ratio(gloo, row, key) <= CLEAR]
    if not behind:
        return None
    text = f"{row['library']} is not ahead at the {' and the '.join(behind)}. "
    busy = max(gloo["busy"], row["busy"])
    if busy > BUSY:
        return text + ("The processors were too busy to compare networks: run it again on a machine that does "
                       "nothing else.")
    if not row["planned"]:
        return text + ("It does not know the network, adds up around a ring as Gloo does, and sends as many "
                       "bytes over the links between racks. What is left to win is time lost to repetitions.")
    return text + (f"The processors were {busy:.0%} busy, so the network decided. One run has few steps in its "
                   "tail: run it again before you believe either side.")


def note_on_processors(rows):
    """A warning where processors had little time left; empty otherwise."""
    busy = max(row["busy"] for row in rows)
    if busy <= BUSY:
        return ""
    return (f"This machine's processors were {busy:.0%} busy, other programs included, so the times are not those of the "
            "network alone.")
