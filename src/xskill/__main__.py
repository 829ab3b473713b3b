"""`python -m xskill` is `xskill`."""

from xskill.cli import main

raise SystemExit(main())
