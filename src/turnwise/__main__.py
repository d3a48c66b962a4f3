"""`python -m turnwise`: the command line."""

from turnwise.cli.main import main

if __name__ == "__main__":
    main()
