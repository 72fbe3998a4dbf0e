"""`import stoker` in a training script: the package that its agent runs from, whatever its own Python has.

Agents put the directory above on PYTHONPATH. It holds nothing else, so nothing but Stoker is added.
"""

import os

_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
__path__ = [_PACKAGE]
__file__ = os.path.join(_PACKAGE, "__init__.py")
with open(__file__, encoding="utf-8") as _file:
    exec(compile(_file.read(), __file__, "exec"))
