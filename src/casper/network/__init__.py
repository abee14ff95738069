"""The parts of CASPER's network, and what the training asks of any network."""
