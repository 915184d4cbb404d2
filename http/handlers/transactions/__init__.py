"""Transactions: several changes of one request, committed together or not at all."""
