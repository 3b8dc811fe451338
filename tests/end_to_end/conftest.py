"""The fixtures of service processes."""

from tests.processes import run_service, with_provider

__all__ = ["run_service", "with_provider"]
