"""Worker process, started by its parent as `python -m noonday.cli.worker_process FDS worker ...`."""

import sys

from noonday.worker.parent_link import ParentLink


def main() -> None:
    link = ParentLink(*map(int, sys.argv.pop(1).split(",")))
    from noonday.cli.main import main  # The import is slow, so the link to the parent comes first.

    main(prog_name="noonday", obj=link)


if __name__ == "__main__":
    main()
