"""``python -m headwater``."""

from headwater import main

if __name__ == "__main__":
    main()
