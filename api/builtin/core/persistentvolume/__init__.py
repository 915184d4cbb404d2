"""Rules of PersistentVolume."""
