"""Settings from flags and variables, without the file of the working directory."""

from pathlib import Path
from typing import Any

import pytest

from noonday.model.errors import BadSettings
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings

SECRET = "a secret of more than thirty-two bytes"
NO_FILE = Path("/dev/null")
MAIL = {"email.host": "mail.example.com", "email.sender": "Noonday <noonday@example.com>"}


def load(flags: dict[str, Any] | None = None, env: dict[str, str] | None = None, toml: Path = NO_FILE) -> Settings:
    return load_settings(flags or {}, env or {}, toml)


def complaint(flags: dict[str, Any] | None = None, env: dict[str, str] | None = None, toml: Path = NO_FILE) -> str:
    with pytest.raises(BadSettings) as caught:
        load(flags, env, toml)
    return caught.value.detail
