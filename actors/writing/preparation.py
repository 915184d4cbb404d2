"""What the rules (api/pipeline/pipeline.py) and admission make of a write, on the state this replica's view holds.

Nothing here commits. One thing waits: a creation that admission refuses is shown to it once more when the view is up to
date. Each step may be made again from its beginning, and raises NeedsExternalAnswer where somebody outside must
be asked first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubechronicle.actors.admission.chain import AdmissionChain, Attributes, patiently
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.commits import Proposal, prepare_delete
from kubechronicle.actors.writing.targets import Target, attributes_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.eventlog.entries import Entry

MayCreate = Callable[[], None]
"""Raises StatusError (or NeedsExternalAnswer) where whoever changes an object that is not there may not create it."""


def anybody() -> None:
    """Who asked to create it was allowed to before."""


class Preparing:
    def __init__(self, reads: Reads, admission: AdmissionChain) -> None:
        self._reads = reads
        self._admission = admission

    async def create(
        self, target: Target, obj: dict[str, Any], context: WriteContext, may_create: MayCreate = anybody
    ) -> tuple[bool, Proposal]:
        """Whether the name was generated, and what is to be stored. ``obj`` is used up."""
        accepted = pipeline.accept_create(target.rt, obj, context)
        name = accepted["metadata"].get("name", "")
        generated = bool(accepted["metadata"].get("generateName")) and not name
        attributes = attributes_of(target, "CREATE", accepted, None, name=name)
        await self._consistently(self._admission.admit, attributes)
        metadata.generate_name(accepted["metadata"], name_suffix=context.name_suffix)  # claims are made in its name
        await self._consistently(self._admission.claim, attributes)
        prepared = pipeline.finish_create(target.rt, accepted, context)
        attributes.warnings.extend(prepared.warnings)
        may_create()  # where kube-apiserver asks for it: after all rules, before validating admission
        await self._consistently(self._admission.validate, attributes.storing(prepared.object))
        return generated, Proposal(prepared, attributes.beside)

    def update(self, target: Target, old: Entry, new: dict[str, Any], context: WriteContext) -> Proposal:
        stored = old.object()
        accepted = pipeline.accept_update(target.rt, stored, new, context)
        attributes = attributes_of(target, "UPDATE", accepted, old)
        self._admission.admit(attributes)
        self._admission.claim(attributes)
        prepared = pipeline.finish_update(target.rt, stored, accepted, context)
        attributes.warnings.extend(prepared.warnings)
        self._admission.validate(attributes.storing(prepared.object))
        return Proposal(prepared, attributes.beside)

    def delete(self, target: Target, old: Entry, options: DeleteOptions) -> tuple[Prepared, bool]:
        """What commits.prepare_delete says, once admission has seen it."""
        self._admission.admit(attributes_of(target, "DELETE", None, old))
        return prepare_delete(target, old, options)

    async def admit(self, target: Target, sent: Any) -> None:
        """Show admission what is stored nowhere under its own name, as a creation."""
        attributes = attributes_of(target, "CREATE", sent, None)
        await self._consistently(self._admission.admit, attributes)
        await self._consistently(self._admission.validate, attributes)

    async def _consistently(self, check: Callable[[Attributes], None], attributes: Attributes) -> None:
        """Admission of a creation: a refusal counts only on a view that is up to date (a namespace made on another
        replica)."""
        before = len(attributes.beside)
        try:
            check(attributes)
        except status.StatusError:
            del attributes.beside[before:]
            await self._reads.wait_consistent()
            await patiently(check, attributes)
