"""Webhooks: one HTTP call to an address that a user chose, made so that it can harm nobody, and judged.

Who decides. `urls` and `headers` refuse at create what can never be called. `addresses` says which addresses may be dialled,
`dialing` asks it about every address that is really dialled, whatever the URL said and whatever the DNS answered before.
`calling` makes the call and tells what happened, as an `Exchange`; it never decides anything. `judging` decides from an
exchange alone whether it succeeded, is tried again, or is over.

What may be trusted for how long. A URL: never, not even one that was checked at create, since names are answered anew. An
answer of the DNS: for a few seconds, and only the very address that was checked is dialled. An open connection: as long as
it is open, since its other end was checked when it was dialled. A receiver: not at all; its headers, its body and its time
have caps.

What each failure does. Before the request was sent, nothing has happened at the receiver. From then on nobody can know: a
timeout or a reset is recorded as such, and the call is made again under the same id.
"""
