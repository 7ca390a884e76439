"""``python -m lmhead_native``: the same command line as ``lmhead-native``."""

from __future__ import annotations

import sys

from lmhead_native.cli import main

sys.exit(main())
