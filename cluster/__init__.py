"""A whole cluster on one machine: the real servers, and every role a process of its own, started again when it dies.

`scripts/cluster` is the command. What it starts are the same commands that a fleet would run: nothing here knows more about
Noonday than its command line.
"""
