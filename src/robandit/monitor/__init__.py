"""A certified lower bound on the corruption in any stream of feedback."""

from robandit.monitor.certificate import Certificate, Group
from robandit.monitor.joint import joint_certificate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.monitor.sources import OTHERS

__all__ = ["OTHERS", "Certificate", "CorruptionMonitor", "Group", "joint_certificate"]
