"""The numbered SQL files that make the database schema, and schema.sql, which they must add up to. No Python here."""
