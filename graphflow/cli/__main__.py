"""`python -m graphflow.cli` is the command `graphflow`."""

import sys

from graphflow.cli import main

sys.exit(main())
