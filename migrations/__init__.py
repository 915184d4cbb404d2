"""The numbered SQL files that make the database schema, and their sum, schema.sql, which new databases get."""
