"""The parent of `parent_worker`: `python -m tests.worker.parent_program FOLDER`."""

import sys

from noonday.worker.parent import Parent

if __name__ == "__main__":
    command = [sys.executable, "-m", "tests.worker.parent_worker"]
    sys.exit(Parent(command, sys.argv[1:], first_wait_sec=0.05).run())
