"""Whether a machine, a directory and a cluster are what Stoker needs, see `stoker doctor`.

Each module looks at one of them and yields what it found. Nothing here prints, and nothing
that is made for it stays.
"""

from importlib.metadata import version

VERSION = version("stoker")
