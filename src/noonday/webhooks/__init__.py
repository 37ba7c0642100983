"""Webhooks: one HTTP call to a URL that a user chose, protected against SSRF, and judged.

Who decides. `urls` and `headers` refuse invalid calls when a task is created. `addresses` defines which IP addresses may be
called. `dialing` checks every address that is really dialled, whatever the URL contains and whatever DNS returned before.
`calling` makes the call and returns an `Exchange`; it decides nothing. `judging` decides from the exchange alone whether the
call succeeded, is retried, or failed permanently.

What may be trusted, and for how long. A URL is never trusted, not even after the check at creation, because DNS may change. A
DNS result is trusted for a few seconds, and only the address that was checked is dialled. An open connection is trusted while
it is open, because its address was checked when it was dialled. A receiver is not trusted: its headers, its body and its time
are limited.

What each failure does. Before the request is sent, nothing has happened at the receiver. After that its effect is unknown: a
timeout or a reset is recorded as such, and the call is repeated under the same id.
"""
