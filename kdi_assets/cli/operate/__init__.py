"""For operating: `kdi status`, `freshness`, `doctor`, `metrics`, `upkeep`, `erase`, `sql`, `driver`, `jars`."""
