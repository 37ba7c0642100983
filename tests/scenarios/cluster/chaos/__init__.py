"""A whole cluster on servers of its own, users who ask for everything, and a seeded script that breaks things.

`script` is what a seed decides, `site` the servers and the wires to them, `seats` the processes, `faults` what is done to both,
`users` the load, `run` one life from start to quiet, `report` what is said of it. See docs/chaos.md.
"""
