"""``python3 -m libs.setup [python | servers | spark]``: see ``libs.setup.run``."""

import sys

from libs.setup.run import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
