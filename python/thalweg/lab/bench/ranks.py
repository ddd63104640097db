"""Waits for the processes of a benchmark's ranks."""
import sys
import time

_TURN_S = 0.05
_MOST_OUTPUT = 3000  # characters to show of what a failed rank printed


def wait_for_ranks(program, processes, seconds, limit, output=lambda rank: ""):
    """Waits until all processes have ended, and kills those that are left if it fails.

    `processes` are of subprocess or multiprocessing, in the order of ranks. If one ends with an
    error, or not all end within `seconds`, this program exits with an error that names the rank.
    `limit` is how that error calls the time, and `output(rank)` is what a failed rank printed.
    """
    end = time.monotonic() + seconds
    left = dict(enumerate(processes))
    try:
        while left:
            for rank, process in list(left.items()):
                code = process.poll() if hasattr(process, "poll") else process.exitcode
                if code == 0:
                    del left[rank]
                elif code is not None:
                    said = output(rank)[-_MOST_OUTPUT:]
                    sys.exit(f"{program}: rank {rank} ended with {code}"
                             + (f":\n{said}" if said else ""))
            if left and time.monotonic() >= end:
                sys.exit(f"{program}: rank {min(left)} has not ended within {limit}")
            time.sleep(_TURN_S if left else 0)
    finally:
        for process in processes:
            process.kill()
