"""Parsers of your own over the trials of a study; see stoker.report.examine."""

from stoker.report.examine import Examiner, Experiment, latest_log

__all__ = ["Examiner", "Experiment", "latest_log"]
