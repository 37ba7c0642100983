"""Commands that are suggested for an unknown one."""

from collections.abc import Callable, Iterable, Mapping

from noonday.model.errors import nearest

MEANT: Mapping[str, tuple[str, ...]] = {
    "add": ("create", "set", "job create"),
    "change": ("set", "job change", "create --unique-key KEY", "job create --unique-key KEY"),
    "delete": ("cancel", "end", "job cancel"),
    "describe": ("show", "job show"),
    "edit": ("change", "set", "job change", "create --unique-key KEY", "job create --unique-key KEY"),
    "enqueue": ("create", "job create"),
    "get": ("show", "job show"),
    "history": ("executions", "job executions"),
    "info": ("show", "job show"),
    "log": ("executions", "job executions"),
    "logs": ("executions", "job executions"),
    "ls": ("list", "job list"),
    "modify": ("change", "set", "job change", "create --unique-key KEY", "job create --unique-key KEY"),
    "new": ("create", "job create"),
    "ps": ("list", "top"),
    "remove": ("delete", "cancel", "end", "job cancel"),
    "rm": ("delete", "cancel", "end", "job cancel"),
    "run": ("up", "trigger"),
    "schedule": ("create", "job create"),
    "server": ("up",),
    "start": ("up", "trigger"),
    "stats": ("show", "top"),
    "status": ("top", "show"),
    "stop": ("pause", "cancel", "job pause"),
    "submit": ("create", "job create"),
    "unpause": ("resume",),
    "update": ("change", "set", "job change", "create --unique-key KEY", "job create --unique-key KEY"),
    "version": ("--version",),
}
"""Commands that a word may mean, in a group or in `noonday`. The first that exists is suggested."""

DESTRUCTIVE = frozenset(
    {"ack", "archive", "cancel", "delete", "disable", "end", "migrate", "pause", "remove", "replay", "resend", "retry"}
)
"""Commands that stop, remove or repeat something. They are suggested for a word that means them, never for a similar one."""


def suggestion(word: str, commands: Iterable[str], exists: Callable[[str], bool], inside: str | None) -> str | None:
    """Return the command of a group that an unknown word means: by its meaning, by its name elsewhere, or by similarity.

    `exists` tells whether the group has a command, such as `job create`. `inside` is the command of that name in a subgroup.
    """
    meant = next((each for each in MEANT.get(word.lower(), ()) if exists(each.partition(" --")[0])), None)
    return meant or inside or nearest(word, [name for name in commands if name not in DESTRUCTIVE])
