"""The rules of PodTemplate, and what all kinds share that make pods of a template."""
