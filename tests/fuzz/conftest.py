"""The fixture of service processes."""

from tests.processes import run_service

__all__ = ["run_service"]
