"""``python -m libs.cli``: the ``headwater`` command."""

from libs.cli.main import run

if __name__ == "__main__":
    run()
