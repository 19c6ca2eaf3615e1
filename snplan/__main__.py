"""`python -m snplan`: the same as the `snplan` command."""

import sys

from snplan.cli import main

if __name__ == "__main__":
    sys.exit(main())
