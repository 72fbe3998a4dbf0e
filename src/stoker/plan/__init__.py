"""From sweeps to trials: pure, lazy, and the same on every machine."""
