"""The errors Stoker raises on purpose.

StokerError                 what a user may see; never shown with a traceback
├── UsageError              a wrong option or argument: exit code 2
└── StudyFileError          the study file has problems, all of them listed: exit code 2
"""

from __future__ import annotations


class StokerError(Exception):
    """A failure that its message explains: what, where, and what to do."""

    exit_code = 1


class UsageError(StokerError):
    """The command was called with something that cannot be meant."""

    exit_code = 2
