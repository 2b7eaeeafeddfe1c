"""Errors of the alert engine."""


class AlertsError(RuntimeError):
    """Unusable configuration of the engine; the text says what to change."""
