"""A study as it stands in its store: what there is to run, and what has become of it."""
