"""Games on disk and in memory."""
