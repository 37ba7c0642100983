"""JSON Schema constraints for notifications, users and provider accounts; `contract` has those for jobs."""

from noonday.api.schemas import Schema, constrain
from noonday.mail.addresses import ADDRESS
from noonday.mail.addresses import LONGEST as LONGEST_ADDRESS
from noonday.model.notifications.notification import DEDUPE_KEY_CHARS
from noonday.notifications.translating import LOCAL_TIME, TITLE_CHARS, USER_ID
from noonday.notifications.user_service import LOCALE, PHONE

_NOTIFICATION = {
    "user_id": "u-17",
    "channels": ["EMAIL", "SMS"],
    "content": {"title": "Shipped", "text": "Order A-17 is on its way"},
}
_USER = {"zone": "Europe/Berlin", "locale": "de", "email": "a@example.com", "phone": "+4930123456"}
_PROVIDER = {
    "kind": "TWILIO",
    "settings": {"from": "+15005550006"},
    "secrets": {"account_sid": "AC...", "auth_token": "..."},
}


def narrow(components: dict[str, Schema], ref: str, *, instant: str, zone: str) -> None:
    """Add constraints to the generated schemas. `instant` and `zone` are patterns."""
    _narrow_notification(components["NotificationSpec"]["properties"], instant)
    constrain(components["NotificationContent"]["properties"]["title"], ("string",), maxLength=TITLE_CHARS)
    _narrow_batch(components, ref)
    user = components["UserSpec"]["properties"]
    constrain(user["zone"], ("string",), pattern=zone)
    constrain(user["locale"], ("string",), pattern=LOCALE)
    constrain(user["email"], ("string",), pattern=ADDRESS, maxLength=LONGEST_ADDRESS)
    constrain(user["phone"], ("string",), pattern=PHONE)
    components["ProviderSpec"]["properties"]["secrets"]["additionalProperties"] = {"type": "string", "minLength": 1}
    components["NotificationSpec"]["examples"] = [_NOTIFICATION]
    components["UserSpec"]["examples"] = [_USER]
    components["ProviderSpec"]["examples"] = [_PROVIDER]


def _narrow_notification(fields: Schema, instant: str) -> None:
    constrain(fields["user_id"], ("string",), pattern=USER_ID)
    fields["channels"]["uniqueItems"] = True
    for name in ("scheduled_at", "expires_at"):
        constrain(fields[name], ("string",), pattern=instant)
    constrain(fields["local_time"], ("string",), pattern=LOCAL_TIME)
    constrain(fields["dedupe_key"], ("string",), minLength=1, maxLength=DEDUPE_KEY_CHARS)


def _narrow_batch(components: dict[str, Schema], ref: str) -> None:
    accepted, refused = {"$ref": ref.format(name="AcceptedNotification")}, {"$ref": ref.format(name="Problem")}
    requested = components["NotificationBatch"]["properties"]["notifications"]
    requested["items"] = {"$ref": ref.format(name="NotificationSpec")}
    answered = components["NotificationBatchView"]["properties"]["notifications"]
    answered["items"] = {"anyOf": [accepted, refused]}
