"""`python -m graphflow` runs the command `graphflow`."""

import sys

from graphflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
