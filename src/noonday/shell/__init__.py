"""Commands of the operating system as jobs: the built-in handler `shell.run`.

It is off by default, because a command may do whatever the user may that runs the worker. The operator allows it, and lists the
tenants that may use it; the worker checks the tenant of each dispatch, which a job cannot choose.

A command has a process group of its own, and an environment of its own: nothing of the server's environment, such as tokens and
keys, is inherited. When the command ends, is cancelled or times out, what is left of its group is killed. If the worker dies, a
guard in the group notices that its pipe is closed, and kills the group, so that no command runs twice at once.
"""
