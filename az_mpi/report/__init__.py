"""What people see of a run: the console, metrics, the status, the HTML report."""
