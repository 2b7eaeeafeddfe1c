"""Errors of the alert engine."""


class AlertsError(RuntimeError):
    """The engine cannot run as it is configured; the text says what to change."""
