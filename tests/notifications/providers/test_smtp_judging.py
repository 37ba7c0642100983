import pytest

from noonday.model.notifications.sending import OutcomeKind
from noonday.notifications.providers.smtp_judging import SmtpError, SmtpExchange, SmtpStep, judge


def kind_of(exchange: SmtpExchange) -> OutcomeKind:
    return judge(exchange, "<1@a>").kind


def test_only_a_2yz_after_the_content_is_an_acceptance() -> None:
    assert kind_of(SmtpExchange(SmtpStep.BODY, 250, "2.0.0 queued")) is OutcomeKind.ACCEPTED
    assert kind_of(SmtpExchange(SmtpStep.DATA, 250, "ok")) is OutcomeKind.RETRY
    assert kind_of(SmtpExchange(SmtpStep.BODY, 354, "more?")) is OutcomeKind.UNKNOWN


@pytest.mark.parametrize("error", [SmtpError.BROKEN, SmtpError.TIMEOUT, SmtpError.UNREADABLE])
def test_a_missing_reply_is_unknown_once_the_content_leaves(error: SmtpError) -> None:
    for step in SmtpStep:
        expected = OutcomeKind.UNKNOWN if step is SmtpStep.BODY else OutcomeKind.RETRY
        assert kind_of(SmtpExchange(step, error=error)) is expected


def test_a_similar_number_in_the_text_is_not_an_enhanced_code() -> None:
    assert SmtpExchange(SmtpStep.RCPT, 550, "5.1.1 no such user").enhanced == "5.1.1"
    assert SmtpExchange(SmtpStep.RCPT, 550, "5.1.1.7 is your address").enhanced is None
    assert SmtpExchange(SmtpStep.RCPT, 550, "version 5.1.1").enhanced is None


def test_every_reply_at_every_step_has_an_outcome() -> None:
    for step in SmtpStep:
        for code in range(200, 600):
            for text in ("", "5.1.1", "5.7.1", "5.2.2", "4.0.0"):
                outcome = judge(SmtpExchange(step, code, text), "<1@a>")
                assert (outcome.kind is OutcomeKind.ACCEPTED) == (step is SmtpStep.BODY and code < 300)
