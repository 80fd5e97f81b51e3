"""An audit of a log of feedback: how much corruption is proved, and where it may sit."""

from robandit.logs.audit.auditing import SOURCES, Audit, AuditSettings, Look, Source, audit

__all__ = ["SOURCES", "Audit", "AuditSettings", "Look", "Source", "audit"]
