from noonday.model import fence


def test_claims_and_revocations_are_kept_as_long_as_a_dispatch_can_start() -> None:
    assert fence.ACKED_FOR_MS >= fence.START_WITHIN_MS
    assert fence.CLAIMS_KEPT_MS >= fence.ACKED_FOR_MS + fence.CLAIM_MS
    assert fence.REVOKED_FOR_MS >= fence.START_WITHIN_MS


def test_orphan_recovery_leaves_time_for_a_start_at_the_last_moment_to_be_reported() -> None:
    assert fence.ORPHANED_AFTER_MS >= fence.START_WITHIN_MS + 2 * fence.CLAIM_MS


def test_dispatch_stamped_far_from_now_must_not_start() -> None:
    now_ms = 1_893_456_000_000
    for distance, is_out in ((0, False), (fence.START_WITHIN_MS, False), (fence.START_WITHIN_MS + 1, True)):
        assert fence.is_out_of_time(now_ms - distance, now_ms) is is_out
        assert fence.is_out_of_time(now_ms + distance, now_ms) is is_out
