"""Play with trained networks outside a run: people in a terminal or a browser, and programs by GTP and UCI."""
