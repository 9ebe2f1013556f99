"""What users set: the schema with every key, reading a configuration, the command line."""
