"""`python -m casper` is the command `casper`."""

from casper.cli import main

main()
