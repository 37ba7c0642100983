"""Noonday beside the schedulers that people would pick instead: the same works, one machine, repetitions in turn.

`python -m bench peers` installs each peer from its own registry, at the version that its `peer.toml` pins, in `var/peers`. It
then repeats each work in turn: a peer, Noonday embedded, Noonday on a cluster, the next peer. A repetition has a store and
processes of its own. `peer.toml` says what the peer is, how it is installed and started, which works it supports, and its
settings.

**The contract.** A peer's program is small and in the peer's own language. The runner starts it with the store in `BENCH_STORE`
(a URL, or a directory for a peer that needs no server), writes orders to its standard input, and reads one answer for each from
its standard output. An order and an answer are each a JSON object on one line. `contract/` has the part that all programs of a
language share. Whatever else a program has to say goes to its standard error.

    {"do": "prepare"}                                   make the tables in an empty store
    {"do": "work", "notes": PATH, "each": BOOL,         run workers; `copies` of each role if the program starts a fleet
     "copies": N}
    {"do": "create", "way": WAY, "jobs": N,             create one-shots with the numbers `first`, `first` + 1, ...; number
     "first": F, "dueMs": T, "stepUs": S,               `first` + i is due at `dueMs` + i * `stepUs` / 1000, rounded down; its
     "waitMs": W}                                       handler notes the time, and waits `waitMs`
    {"do": "crons", "jobs": N}                          crons that fire each minute, at second 0; comes before `work`
    {"do": "started"}                                   how many handlers were called so far
    {"do": "look", "untilMs": T}                        whether anything due until then is not recorded as done yet
    {"do": "count", "first": F, "end": E,               how many of the numbers `first` to `end` - 1 are done; all jobs that
     "sinceMs": T, "untilMs": U}                        are due from T to U have such a number
    {"do": "end"}                                       write the notes, stop, and exit

    {"done": "prepare"}   {"done": "crons"}   {"done": "end"}
    {"done": "work", "pids": {"worker": [PID], "scheduler": [PID]}}
    {"done": "create", "created": N, "sec": X}
    {"done": "started", "started": N}                   null if the program cannot tell, because other processes run the handlers
    {"done": "look", "open": BOOL}
    {"done": "count", "recorded": N, "left": N,         null where the store keeps no history; `lastMs` is when the last
     "lastMs": T}                                        handler ended, as the store notes it
    {"failed": TEXT}                                    the order was not carried out; TEXT says why

WAY is `single` (one caller, one job a call), `callers` (sixteen callers at once, one job a call) or `bulk` (the peer's own way
for many). Times are Unix milliseconds. A program that has no use for an order answers that it is done.

**Notes.** A worker notes each call of a handler: `NUMBER MICROSECONDS` in a line of the file at PATH, and
`NUMBER MICROSECONDS end` when a handler that waits comes to its end. With `each` it writes a line at once, so that `kill -9`
loses none; else at the end.

**Recorded** means the same for everyone: the durable store says done, and has been told to sync. PostgreSQL runs with `fsync` and
`synchronous_commit`, SQLite with `synchronous=FULL`, Redis appends and syncs once a second. Reports mark a peer that keeps no
history, a peer whose store is not durable, and a peer that takes more than ten minutes to load.
"""
