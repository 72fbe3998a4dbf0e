"""What travels to other machines: code, data, and the packages that an agent is made of."""

from __future__ import annotations
