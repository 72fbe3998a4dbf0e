"""VMs that are processes of this machine, each in a place of its own."""

from __future__ import annotations
