"""The blocks of the network's tower. A new kind is a file here and a line in core/registry.py."""
