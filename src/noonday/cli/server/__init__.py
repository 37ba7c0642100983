"""Parts of commands that start or examine a server.

A command imports them when it runs, never when it is declared: they need packages that a client does not have.
"""
