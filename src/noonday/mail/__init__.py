"""Email: which addresses can be written to, what a message looks like, and one channel that hands it to a mail server.

A message says the same and has the same Message-ID at every attempt, so that whoever gets it twice sees it once. What the
server refuses for good is not tried again; everything else is.
"""
