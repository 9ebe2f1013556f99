"""What a run emits while it runs: log lines, metrics, its status, and what users' callbacks are told. Nothing is sent
anywhere."""
