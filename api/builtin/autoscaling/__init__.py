"""HorizontalPodAutoscaler in its four versions, and the scale subresource's table."""
