"""`python -m unspool`."""

import sys

from unspool.cli import main

sys.exit(main())
