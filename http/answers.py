"""What every handler needs to answer: which representation the client asked for, and errors in it."""

from __future__ import annotations

from kubechronicle.api import status
from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.errors import NotAcceptableError
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.status import StatusError
from kubechronicle.http.context import Context
from kubechronicle.http.encoder import encode
from kubechronicle.http.messages import Request, Response
