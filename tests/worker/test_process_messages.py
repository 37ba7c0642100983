"""Messages between a worker and its processes."""

from noonday.worker.process_messages import (
    Cancel,
    HandlerEnded,
    HandlerEntered,
    ProgressMessage,
    decode_from_child,
    decode_from_worker,
    packed,
    pop_messages,
)


def test_messages_of_a_child_arrive_unchanged_and_in_order() -> None:
    sent = [HandlerEntered(), ProgressMessage(b"1"), HandlerEnded(observed=True, result=b"2")]
    buffer = bytearray(b"".join(map(packed, sent)))
    assert [decode_from_child(body) for body in pop_messages(buffer)] == sent
    assert buffer == b""


def test_an_incomplete_message_stays_until_the_rest_arrives() -> None:
    whole = packed(ProgressMessage(b"progress"))
    buffer = bytearray(whole + whole[:7])
    assert len(list(pop_messages(buffer))) == 1
    assert buffer == whole[:7]
    buffer += whole[7:]
    assert len(list(pop_messages(buffer))) == 1


def test_a_message_to_a_child_is_read_by_its_kind() -> None:
    buffer = bytearray(packed(Cancel("TIMED_OUT")))
    assert [decode_from_worker(body) for body in pop_messages(buffer)] == [Cancel("TIMED_OUT")]
