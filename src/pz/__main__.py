"""The start of a process, as ``pz`` or ``python -m pz``: nothing is imported before Ctrl-C is dealt with."""

from __future__ import annotations

import gc
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line. An interrupt before it is even there ends the process without a stack trace."""
    # What is imported stays; looking through it for garbage again and again is a twentieth of a short run.
    gc.set_threshold(200_000, 20, 20)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where the parent had it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pz.cli.main import main as run

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
