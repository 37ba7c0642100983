"""Providers: hand a message to a mail server or to the API of a push or SMS service.

Who decides. Each provider consists of two pure functions and a client. `request` builds what is sent from an account and a
message. `judge` decides from the exchange alone which outcome it has. The client transfers bytes and decides nothing.

What may be trusted, and for how long. The host of an account is never trusted: every address that is dialled passes
`Networks`, except for endpoints that the operator runs (`hosts`). A provider's text is not trusted either: it may repeat the
address or the content, so an outcome has the provider's code and a text of ours. A receipt is trusted if its signature
matches.

What each failure does. A failure before the message leaves is a retry. Once it has begun to leave, a missing answer is
*unknown*, because no provider recognizes a repeated request. An answer that blames the account stops that account only.
"""
