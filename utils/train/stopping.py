"""Stop when asked, at the end of an update: Ctrl-C, a notebook's stop button, or a machine that is taken away."""

import signal
import threading

SIGNALS = ("SIGINT", "SIGTERM")


class Stop:
    """Within the block the first signal is remembered in `asked`; a second one ends the block at once."""

    def __init__(self):
        self.asked = None
        self.before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # only there can signals be met
            for name in SIGNALS:
                number = getattr(signal, name)
                self.before[number] = signal.signal(number, self._remember)
        return self

    def _remember(self, number, frame):
        if self.asked is not None:
            self.__exit__()
            raise KeyboardInterrupt
        self.asked = f"stopped by {signal.Signals(number).name}"

    def __exit__(self, *error):
        for number, handler in self.before.items():
            signal.signal(number, handler)
