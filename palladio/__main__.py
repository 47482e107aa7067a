"""The command `python -m palladio`."""

from palladio.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
