"""Rules of PersistentVolumeClaim."""
