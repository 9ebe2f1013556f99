"""The ground that everything stands on: whole files, signals, waiting, errors."""
