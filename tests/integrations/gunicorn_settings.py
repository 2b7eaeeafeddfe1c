"""gunicorn's configuration in the tests."""

from bookkeeper.integrations.gunicorn import post_fork, worker_exit

__all__ = ["post_fork", "worker_exit"]
graceful_timeout = 60
control_socket_disable = True
