"""Plain data that every other part speaks in."""
