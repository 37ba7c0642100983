"""Alerts: what people should know of, seen, kept and shown.

Who decides. What goes wrong with an execution is written as an incident in the transaction that settles it (`ledger.settling`),
and a time that is given up in the one that gives it up (`ledger.volley`): so nothing is forgotten in a crash. The `herald` makes
alerts of incidents. What does not happen leaves no trace, and is looked for: the `watcher` looks at what is due and still there,
at what runs longer than usual, and at whose job has succeeded since; `lateness` tells what somebody holds on purpose from what
should have begun. `crowd` keeps an inbox readable when very much goes wrong at once. `model.alert` says what an alert is and what
opens it. People read and acknowledge alerts at the `desk`.

What may be trusted for how long. An incident: until somebody has taken it in, which is one transaction with the alert and with
the happenings that people are told of. What the watcher saw: for a moment; it sees the same again and again, and an occasion
tells what was taken in before.

What each failure does. A herald that dies before its transaction leaves the incidents to the next one, and after it there is
nothing left to do. Several of them, or of watchers, do the same work twice at worst, never the same alert.
"""
