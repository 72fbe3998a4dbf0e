"""The study file: reading it, and telling everything that is wrong with it at once."""
