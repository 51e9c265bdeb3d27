"""``python -m gimbal`` is ``gimbal``."""

import sys

from gimbal.cli import main

sys.exit(main())
