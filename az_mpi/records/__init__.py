"""People's games as files of other programs: SGF and PGN."""
