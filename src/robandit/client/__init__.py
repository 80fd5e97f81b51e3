"""Clients of the decision service."""

from robandit.client.calls import ServiceError
from robandit.client.http import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "ServiceError"]
