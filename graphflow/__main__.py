"""`python -m graphflow` runs the command `graphflow`."""

import sys

from graphflow.cli import run_process

if __name__ == "__main__":
    sys.exit(run_process())
