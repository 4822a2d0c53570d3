"""``python -m klaw`` is the command ``klaw``."""

import sys

from klaw.cli.main import main

sys.exit(main())
