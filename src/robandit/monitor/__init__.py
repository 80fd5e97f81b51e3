"""A certified lower bound on the corruption in any stream of feedback."""

from robandit.monitor.certificate import Certificate, Group
from robandit.monitor.monitor import OTHERS, CorruptionMonitor, joint_certificate

__all__ = ["OTHERS", "Certificate", "CorruptionMonitor", "Group", "joint_certificate"]
