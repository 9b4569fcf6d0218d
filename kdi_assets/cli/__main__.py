"""`python -m kdi_assets.cli` is `kdi`, for programs that start it with their own Python."""

from kdi_assets.cli.main import main

if __name__ == "__main__":
    main()
