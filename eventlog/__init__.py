"""The log: contract, write path, tail and in-memory views; the only folder that talks to Postgres."""
