"""Progress: how far a long program has come, shown as the commands in C++ show it (src/lab/terminal.h).

On a terminal it is one line on standard error that is overwritten: a bar, the time that is left, and
what is being done. Elsewhere it is a plain line every five seconds. NO_COLOR turns colour off.
"""
import math
import os
import shutil
import sys
import time

BAR = 24  # columns
QUIET_S_ON_TERMINAL, QUIET_S = 0.5, 2
BETWEEN_S_ON_TERMINAL, BETWEEN_S = 0.1, 5


def clock_text(seconds):
    """The time as a clock shows it: "0:07", "12:34", "1:02:03"."""
    whole = math.ceil(max(0, seconds))
    minutes = f"{whole // 60}" if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02}"
    return f"{minutes}:{whole % 60:02}"


class Progress:
    """Shows what a program is doing. Most calls of show() print nothing."""

    def __init__(self, stream=None, clock=time.monotonic):
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._terminal and not os.environ.get("NO_COLOR")
        self._began = clock()
        self._next = self._began + (QUIET_S_ON_TERMINAL if self._terminal else QUIET_S)
        self._share = self._whole_s = 0.0
        self._drawn = False

    def show(self, what, share):
        """Says that this share of the work, from 0 to 1, is done."""
        now, share = self._clock(), min(1.0, max(0.0, share))
        left = self._time_left(share, now - self._began)
        if now < self._next:
            return
        self._next = now + (BETWEEN_S_ON_TERMINAL if self._terminal else BETWEEN_S)
        percent = f"{math.floor(100 * share)} %"
        if not self._terminal:
            print(f"{what}: {percent}{left and f', {left}'}", file=self._stream, flush=True)
            return
        full = int(BAR * share)
        dim, end, cyan = ("\033[2m", "\033[0m", "\033[36m") if self._colour else ("", "", "")
        bar = f"{cyan}{'━' * full}{end}{dim}{('━' if self._colour else '─') * (BAR - full)}{end}"
        text = f" {percent:>5}  {left and f'{left}  '}{what}"
        room = max(0, shutil.get_terminal_size().columns - BAR - 1)
        print(f"\r\033[K{bar}{text[:room]}", end="", file=self._stream, flush=True)
        self._drawn = True

    def say(self, line):
        """Prints a line that stays."""
        self.close()
        print(line, file=self._stream, flush=True)

    def close(self):
        """Erases what was drawn on a terminal."""
        if self._drawn:
            print("\r\033[K", end="", file=self._stream, flush=True)
        self._drawn = False

    def _time_left(self, share, elapsed_s):
        """"0:07 left", or "" if too little is done for a guess or the last guess has run out."""
        if share < 0.01 or elapsed_s < 1:
            return ""
        if share > self._share or not self._whole_s:
            self._share, self._whole_s = share, elapsed_s / share
        return f"{clock_text(self._whole_s - elapsed_s)} left" if elapsed_s <= self._whole_s else ""
