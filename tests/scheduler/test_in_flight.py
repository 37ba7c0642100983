"""Entries that are claimed and not yet fired."""

import msgspec

from noonday.scheduler.in_flight import InFlight
from tests.support.factories import POOL, TENANT, entry


def test_claimed_entries_are_counted_by_pool_and_tenant_until_their_batch_is_removed() -> None:
    in_flight = InFlight()
    batch = in_flight.add([entry(), entry(), entry(pool="web")], 1.0)
    assert len(in_flight) == 3
    assert in_flight.by_pool_and_tenant() == {(POOL, TENANT): 2, ("web", TENANT): 1}
    in_flight.remove(batch)
    assert (len(in_flight), in_flight.by_pool_and_tenant()) == (0, {})


def test_batch_that_is_removed_again_takes_nothing_from_another_one() -> None:
    in_flight, one = InFlight(), entry()
    first, second = in_flight.add([one], 1.0), in_flight.add([one], 2.0)
    in_flight.remove(first)
    in_flight.remove(first)
    assert len(in_flight) == 1
    assert one in in_flight
    in_flight.remove(second)
    assert one not in in_flight


def test_entry_is_named_by_key_number_and_time() -> None:
    in_flight, one = InFlight(), entry()
    in_flight.add([one], 1.0)
    assert msgspec.structs.replace(one, due_ms=one.due_ms + 5) in in_flight
    assert msgspec.structs.replace(one, number=2) not in in_flight


def test_oldest_batch_tells_the_age() -> None:
    in_flight = InFlight()
    assert in_flight.oldest_sec(10.0) == 0
    in_flight.add([entry()], 4.0)
    in_flight.add([entry()], 9.0)
    assert in_flight.oldest_sec(10.0) == 6.0
