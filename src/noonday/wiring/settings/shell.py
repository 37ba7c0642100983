"""Settings of the built-in handler that runs commands."""

from typing import Annotated

from msgspec import Meta

from noonday.wiring.settings.section import Section, comma_separated


class ShellSettings(Section, frozen=True, kw_only=True):
    """Commands of the operating system as jobs (`shell.run`)."""

    allow: Annotated[
        bool,
        Meta(
            description="Run the commands of jobs with handler `shell.run`, with the rights of the user that runs this process."
        ),
    ] = False
    tenants: Annotated[
        str,
        Meta(min_length=1, description="Tenants whose jobs may run commands, such as `default,ops`."),
    ] = "default"
    concurrency: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum number of concurrent commands of one process.")
    ] = 10
    output_bytes: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Bytes that are kept of the end of each output of a command."),
    ] = 16_384

    @property
    def allowed_tenants(self) -> tuple[str, ...]:
        return comma_separated(self.tenants)
