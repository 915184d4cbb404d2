"""Explanations: causes of changes, the unusual ones of an incident, trees of objects, and symptoms in statuses."""
