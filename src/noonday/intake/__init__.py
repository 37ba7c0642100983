"""Intake: validates requests about jobs, writes them to the store in one transaction, and answers queries.

Nothing here waits for a scheduler. Every change of a job is a pure decision over a snapshot of the job (`edits.py`). The store
takes the snapshot under the job's lock, and applies the change completely or not at all. After the commit, `change_sender.py`
hints due entries to the hot index and signals revocations and fences to workers. These are copies of rows that the store already
has, so losing one delays a job but loses nothing.

Each resource has one service. `services.py` composes them.
"""
