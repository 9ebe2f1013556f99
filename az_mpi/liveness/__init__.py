"""Who is alive: the watchdog, hang detection, heartbeats."""
