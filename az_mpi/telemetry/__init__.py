"""What a run emits while it runs: log lines, metrics, its status, and the calls of users' callbacks. Nothing leaves the
job: these are files of the run and calls within it."""
