"""`python -m noonday` is the command line."""

from noonday.cli.entry import main

main()
