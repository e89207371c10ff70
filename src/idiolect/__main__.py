"""``python -m idiolect`` is the command line."""

from idiolect.cli import main

if __name__ == "__main__":
    main()
