"""HorizontalPodAutoscaler in its four versions, and the table of the scale subresource."""
