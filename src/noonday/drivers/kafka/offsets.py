"""Which messages of a pool's topics are here, handed out and done with: how far each partition may be committed.

Nothing here waits or asks anybody; whoever uses it sees to it that only one thread does so at a time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from noonday.model.firing import LANES
from noonday.model.message import Dispatch

TopicPlace = tuple[str, int]
"""A topic and one of its partitions."""
_MEMORY = 8
"""Over about how many messages the average size of a pack is taken."""


class Track:
    """A partition, from when it was given to us until it is lost."""

    __slots__ = ("_packs", "_waiting", "lane", "lost", "mean_pack", "next", "position", "said")

    def __init__(self, lane: int, start: int | None) -> None:
        self.lane = lane
        self.next = start
        """The offset after the last message that came. None: we do not know yet where we are."""
        self.position = start
        """The offset of the first message that is not handed out whole."""
        self.mean_pack = 0.0
        self.lost = False
        self.said: tuple[int, int, int] | None = None
        """What was last committed: offset, position, concurrency of whoever has it."""
        self._packs: deque[Pack] = deque()
        self._waiting: deque[Pack] = deque()
        """Those that are not handed out whole, in order."""

    def add(self, offset: int, dispatches: list[Dispatch], size: int) -> "Pack":
        """A message came. One without dispatches is done with from the beginning."""
        pack = Pack(self, offset, dispatches, size)
        self._packs.append(pack)
        self.next = offset + 1
        if not self._waiting:
            self.position = offset if dispatches else self.next
        if dispatches:
            self._waiting.append(pack)
            self.mean_pack += (len(dispatches) - self.mean_pack) / (_MEMORY if self.mean_pack else 1)
        return pack

    @property
    def first(self) -> "Pack | None":
        """The first message that is not handed out whole."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> Iterable["Pack"]:
        return self._waiting

    def first_is_handed_out(self) -> None:
        """The whole of the first that waited."""
        self._waiting.popleft()
        self.position = self._waiting[0].offset if self._waiting else self.next

    def done_to(self) -> int | None:
        """Everything before this offset is done with."""
        packs = self._packs
        while packs and not packs[0].left:
            packs.popleft()
        return packs[0].offset if packs else self.next


class Pack:
    """A message, and how much of it is handed out and done with."""

    __slots__ = ("dispatches", "left", "offset", "size", "taken", "track")

    def __init__(self, track: Track, offset: int, dispatches: list[Dispatch], size: int) -> None:
        self.track = track
        self.offset = offset
        self.dispatches = dispatches
        self.size = size
        self.taken = 0
        self.left = len(dispatches)
        """How many are not done with."""


class Shelf:
    """Everything of one pool that is here: what waits to be handed out, by lane, and what is handed out, by name."""

    def __init__(self) -> None:
        self._tracks: dict[TopicPlace, Track] = {}
        self._heads: tuple[list[tuple[int, int, Track]], ...] = tuple([] for _ in LANES)
        """By lane a heap of the partitions that have something to hand out: the due time of the first of it, and a serial number.
        So partitions are merged by due time, and each of them stays in its own order."""
        self._serial = 0
        self._out: dict[tuple[str, int], Pack | list[Pack]] = {}
        """A list, for a dispatch that came more than once."""
        self.waiting = 0
        """How many dispatches wait to be handed out."""
        self.bytes = 0
        """What the messages have in which they came."""
        self.closed = False
        """Partitions change hands: until it is known which are still ours, nothing is handed out."""

    @property
    def tracks(self) -> Mapping[TopicPlace, Track]:
        return self._tracks

    def gain(self, place: TopicPlace, lane: int, start: int | None) -> None:
        self.lose([place])
        self._tracks[place] = Track(lane, start)

    def lose(self, places: Iterable[TopicPlace]) -> None:
        """Forget what is here of some partitions: others get it, from the offset that was committed."""
        lost = [track for place in places if (track := self._tracks.pop(place, None)) is not None]
        if not lost:
            return
        for track in lost:
            track.lost = True
        for heads in self._heads:
            heads[:] = [head for head in heads if not head[-1].lost]
            heapify(heads)
        waiting = [pack for track in self._tracks.values() for pack in track.waiting]
        self.waiting = sum(len(pack.dispatches) - pack.taken for pack in waiting)
        self.bytes = sum(pack.size for pack in waiting)
        self._out = {name: left for name, packs in self._out.items() if (left := _still_ours(packs)) is not None}

    def add(self, place: TopicPlace, offset: int, dispatches: list[Dispatch], size: int = 0) -> None:
        """A message came. One of a partition that is not ours any more is ignored."""
        track = self._tracks.get(place)
        if track is None:
            return
        if track.next is not None and offset < track.next:
            # The topic was made anew, or the client had to start over: nothing that we knew holds.
            self.gain(place, track.lane, offset)
            track = self._tracks[place]
        has_head = track.first is not None
        track.add(offset, dispatches, size)
        if dispatches:
            if not has_head:
                self._show_head(track)
            self.waiting += len(dispatches)
            self.bytes += size

    def take(self, room: int) -> list[Dispatch]:
        """Up to so many, those of higher lanes first, then those whose message begins with the earliest due time."""
        taken: list[Dispatch] = []
        for heads in self._heads if not self.closed else ():
            while heads and len(taken) < room:
                track = heads[0][-1]
                pack = track.first
                assert pack is not None
                some = pack.dispatches[pack.taken : pack.taken + room - len(taken)]
                self._hand_out(pack, some)
                taken += some
                if pack.taken == len(pack.dispatches):
                    heappop(heads)
                    track.first_is_handed_out()
                    self._show_head(track)
                    self.bytes -= pack.size
        self.waiting -= len(taken)
        return taken

    def _show_head(self, track: Track) -> None:
        """Have a partition take its turn, if something of it waits."""
        if track.first is not None:
            self._serial += 1
            heappush(self._heads[track.lane], (track.first.dispatches[0].due_ms, self._serial, track))

    def done(self, dispatches: Sequence[Dispatch]) -> None:
        """They need not come again, nor any other copy of them that was handed out."""
        pop = self._out.pop
        for dispatch in dispatches:
            packs = pop((dispatch.execution_id, dispatch.number), None)
            if packs.__class__ is Pack:
                packs.left -= 1
            elif packs is not None:
                for pack in packs:  # type: ignore[union-attr]
                    pack.left -= 1

    def _hand_out(self, pack: Pack, dispatches: Sequence[Dispatch]) -> None:
        pack.taken += len(dispatches)
        out = self._out
        for dispatch in dispatches:
            name = (dispatch.execution_id, dispatch.number)
            if name in out:
                before = out[name]
                out[name] = [*before, pack] if isinstance(before, list) else [before, pack]
            else:
                out[name] = pack


def _still_ours(packs: Pack | list[Pack]) -> Pack | list[Pack] | None:
    if isinstance(packs, Pack):
        return None if packs.track.lost else packs
    return [pack for pack in packs if not pack.track.lost] or None
