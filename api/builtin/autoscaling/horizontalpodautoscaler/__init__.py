"""Rules of HorizontalPodAutoscaler."""
