"""The processes of a benchmark's ranks: all end well, or the program ends."""
import sys
import time

_TURN_S = 0.05
_MOST_OUTPUT = 3000  # characters of a rank that failed


def wait_for_ranks(program, processes, seconds, limit, output=lambda rank: ""):
    """Waits until all of `processes` (of subprocess or multiprocessing, by rank) have ended. The first that ends badly, or `seconds`, end
    this program with an error that names the rank, with its output, or `limit`, what the time is called. No process outlives the call."""
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
                    sys.exit(f"{program}: rank {rank} ended with {code}" + (f":\n{said}" if said else ""))
            if left and time.monotonic() >= end:
                sys.exit(f"{program}: rank {min(left)} has not ended within {limit}")
            time.sleep(_TURN_S if left else 0)
    finally:
        for process in processes:
            process.kill()
