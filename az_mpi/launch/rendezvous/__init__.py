"""A job on hosts without ssh: each host's own process meets the others through the shared folder."""
