"""What `casper.cli` calls: the commands, their options, and what they print."""
