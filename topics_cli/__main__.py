"""`python -m topics_cli`: the same program as `topics`."""

import sys

from topics_cli.app import main

sys.exit(main())
