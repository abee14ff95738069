"""The paper's tables: what is run for them, and pages made of the files that the runs leave."""
