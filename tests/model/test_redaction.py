"""Headers whose values are removed before they are stored or shown."""

import pytest

from noonday.model.redaction import REDACTED, redacted, redacted_call


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Authorization",
            "Proxy-Authorization",
            "X-Amz-Security-Token",
            "X-Auth",
            "x-auth-user",
            "Cookie",
            "Set-Cookie2",
        ),
        *("X-Api-Key", "Ocp-Apim-Subscription-Key", "X-Gitlab-Token", "X-CSRFToken", "client_secret", "X-SECRET-ID"),
        *("X-Hub-Signature-256", "Stripe-Signature", "webhook-signature", "X-Password", "X-Session-Id"),
    ],
)
def test_value_of_a_secret_is_withheld(name: str) -> None:
    assert redacted([(name, "hidden")]) == ((name, REDACTED),)
    assert "hidden" not in str(redacted_call({"headers": {name: "hidden"}}))


@pytest.mark.parametrize(
    "name",
    ["Content-Type", "X-Idempotency-Key", "noonday-token", "webhook-id", "traceparent", "X-Author", "WWW-Authenticate"],
)
def test_other_values_are_shown(name: str) -> None:
    assert redacted([(name, "shown")]) == ((name, "shown"),)


def test_headers_that_a_user_names_are_withheld_besides() -> None:
    assert redacted([("X-Mine", "a"), ("X-Api-Key", "b")], ["x-mine"]) == (
        ("X-Mine", REDACTED),
        ("X-Api-Key", REDACTED),
    )
