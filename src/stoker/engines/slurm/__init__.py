"""Slurm as an engine: an array of jobs, each of them an agent."""

from stoker.engines.slurm.engine import Slurm

__all__ = ["Slurm"]
