"""The rules of PersistentVolume."""
