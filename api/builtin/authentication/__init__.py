"""TokenReviews and SelfSubjectReviews, which are not stored."""
