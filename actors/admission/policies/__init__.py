"""Admission policies: the plugins that apply ValidatingAdmissionPolicies and MutatingAdmissionPolicies to writes."""
