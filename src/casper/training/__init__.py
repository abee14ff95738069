"""What the training loop (`casper.train`) is made of."""
