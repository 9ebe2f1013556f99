"""What signals ask of a rank. The standard library only: it is there before anything that takes long to load."""

import signal


class Stopped(Exception):
    """The run was asked to stop; what is finished is stored. Raised on every rank at the same place."""


class Requests:
    """What this rank was asked for by signals and has not yet told the others: `save`, `stop`."""

    def __init__(self):
        self.save = self.stop = False

    def listen(self):
        """Take USR1 as a request to save, and USR2, TERM and INT as one to stop. A second INT interrupts at once."""
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True))
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "stop", True))
        signal.signal(signal.SIGINT, self._interrupt)

    def hear(self, total):
        """Take over what any rank was asked for: to stop is remembered, to save is answered by whoever sees `total`."""
        self.stop = self.stop or total.stop > 0
        self.save = self.save and not total.save

    def _interrupt(self, *_):
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
