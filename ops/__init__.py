"""Composition root, command line, settings, certificates, embedded Postgres, logs. Nobody imports this folder."""
