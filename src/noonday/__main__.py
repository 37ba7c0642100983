"""`python -m noonday` is the command line."""

from noonday.cli.main import main

main()
