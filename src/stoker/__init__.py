"""Stoker runs a study of training runs, described by one YAML file, on the GPUs you have."""

__version__ = "0.1.0"
