"""Playing games against oneself."""
