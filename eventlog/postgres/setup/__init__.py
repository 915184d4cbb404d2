"""Parts that an operator has set up: the URL of a database, its settings, and a pooler before it."""
