"""Doubles of providers: real servers on real sockets that take messages, keep them in an outbox, and misbehave on command.

Who decides. A double answers as its protocol states, and accepts by default. A recipient changes that in two ways: its
address follows a pattern (`patterns`), or a script was set for it (`scripts`), which wins. Everything else of the answer is
checked as the provider would: credentials, sizes, fields.

What may be trusted, and for how long. Credentials and the certificate are made at each start and are valid for that process
only. The doubles listen on the loopback. They send receipts to loopback addresses only.

What each failure does. The outbox is in memory: it ends with the process. Accepted messages beyond its bounds replace the
oldest ones.
"""
