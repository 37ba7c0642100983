"""A whole cluster on servers of its own, users who send every kind of request, and a seeded script of faults.

`script` decides the faults of a seed, `site` has the servers and the connections to them, `seats` the processes, `faults`
carries out the faults, `users` make the load, `run` plays one run from start to quiet, `report` describes it. See
docs/chaos.md.
"""
