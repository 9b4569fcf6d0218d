"""Commands of documents: `kdi new`, `import-kdi`, `check`, `check-assets`."""
