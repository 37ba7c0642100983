"""Scripts: how the doubles treat the next calls for a recipient."""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence

from noonday.doubles.behaviour import Behaviour

MAX_RECIPIENTS = 10_000
MAX_CALLS = 100


class Scripts:
    """Behaviours by recipient, each for one call, in order. A recipient without a script behaves as its address says."""

    def __init__(self) -> None:
        self._by_recipient: OrderedDict[str, deque[Behaviour]] = OrderedDict()

    def put(self, recipient: str, behaviours: Sequence[Behaviour]) -> None:
        """Set the behaviours of the next calls for a recipient. Beyond MAX_RECIPIENTS, the oldest script is dropped."""
        self._by_recipient.pop(recipient.lower(), None)
        if behaviours:
            self._by_recipient[recipient.lower()] = deque(behaviours[:MAX_CALLS])
        if len(self._by_recipient) > MAX_RECIPIENTS:
            self._by_recipient.popitem(last=False)

    def clear(self) -> None:
        """Remove all scripts."""
        self._by_recipient.clear()

    def take(self, recipient: str, by_pattern: Callable[[str], Behaviour]) -> Behaviour:
        """Return the behaviour of one call, and use it up."""
        script = self._by_recipient.get(recipient.lower())
        if script is None:
            return by_pattern(recipient)
        behaviour = script.popleft()
        if not script:
            del self._by_recipient[recipient.lower()]
        return behaviour

    def left(self) -> Mapping[str, Sequence[Behaviour]]:
        """Return the behaviours that are not used up, by recipient."""
        return {recipient: tuple(script) for recipient, script in self._by_recipient.items()}
