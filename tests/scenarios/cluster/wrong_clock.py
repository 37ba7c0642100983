"""`noonday` on a machine whose clock is wrong: `python -m tests.scenarios.cluster.wrong_clock SECONDS serve ...`."""

import sys
import time

from noonday.cli.main import main

_time, _time_ns = time.time, time.time_ns


def set_clock(off_sec: float) -> None:
    time.time = lambda: _time() + off_sec
    time.time_ns = lambda: _time_ns() + round(off_sec * 1e9)


if __name__ == "__main__":
    set_clock(float(sys.argv.pop(1)))
    main()
