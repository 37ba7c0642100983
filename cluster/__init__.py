"""A whole cluster on one machine: the real servers, and one process for each role, restarted when it dies.

`scripts/cluster` is the command. It starts the same `noonday` commands that a fleet runs, and uses only their command line.
"""
