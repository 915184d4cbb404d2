"""Delivery of events: watch cursors, watcher groups, the dispatcher and replays."""
