"""`python -m robandit` is the command line."""

import sys

from robandit.cli import main

sys.exit(main())
