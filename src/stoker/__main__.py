"""`python -m stoker` is the `stoker` command."""

from stoker.cli import main

raise SystemExit(main())
