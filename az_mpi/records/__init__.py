"""Games as files of other programs, in and out: SGF, PGN and JSON lines. Text with one game a line is read, too."""
