"""The basics that all packages use: whole files, signals, waiting, errors, exit codes; the registry of plug-ins."""
