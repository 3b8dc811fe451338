"""The settings of a command that does its work and ends."""

from app.settings import Settings, load_settings
from app.telemetry import configure_logging


def load_command_settings() -> Settings:
    """The settings of this process, its logs set up: of a command's, only what is wrong is of interest.

    Raises:
        SettingsError: one line that names what is wrong.
    """
    settings = load_settings()
    level = settings.log.level if settings.log.level in {"DEBUG", "ERROR"} else "WARNING"
    configure_logging(level=level, json_lines=settings.log.json_lines or False)
    return settings
