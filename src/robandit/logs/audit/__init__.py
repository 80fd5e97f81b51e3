"""An audit of a log of feedback: how much corruption is proved, and where it may sit."""

from robandit.logs.audit.auditing import SOURCES, Audit, Look, Source, audit
from robandit.logs.audit.settings import AuditSettings

__all__ = ["SOURCES", "Audit", "AuditSettings", "Look", "Source", "audit"]
