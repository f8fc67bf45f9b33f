"""`python -m graphflow.cli` runs the command `graphflow`."""

import sys

from graphflow.cli import main

sys.exit(main())
