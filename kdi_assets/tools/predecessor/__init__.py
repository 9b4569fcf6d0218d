"""kafka-delta-ingest's command line, translated into our documents: `kdi import-kdi`."""
