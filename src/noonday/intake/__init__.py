"""Intake: accepts what people ask for, checks it, and writes it to the store in one transaction.

Nothing here waits for a scheduler. Every change to a job is a pure decision over a snapshot of the job (`edits.py`), which
the store takes under the job's lock and applies whole or not at all; the hint to the hot index and the flag for workers
follow after the commit, and are only ever copies of what the store already knows.
"""
