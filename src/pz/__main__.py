"""``python -m pz``."""

from pz.cli.main import main

main()
