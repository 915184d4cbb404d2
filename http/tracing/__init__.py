"""Tracing: a span for each request, sent to a collector over OTLP (KEP-647)."""
