"""The sections of the suite, in the order of http-api.md.

Importing a file of cases registers its cases; this is the one list of them. Parts of the wire that come with later
work (§9 routers) get a file each and a line here.
"""

from __future__ import annotations

from tests.conformance import (
    s1_bytes,
    s1_errors,
    s1_http,
    s1_lists,
    s1_open,
    s1_requests,
    s2_config,
    s4_stream,
    s4_write,
    s5_read,
    s6_delete,
    s7_resume,
    s7_watch,
    s8_websocket,
    s9_routers,
    s10_jobs,
    s10_queues,
    s11_cursors,
    s12_admin,
    s12_metrics,
    s12_openapi,
    s12_probes,
)
from tests.conformance.kit import CASES, Case

FILES = (
    s1_requests,
    s1_http,
    s1_lists,
    s1_open,
    s1_bytes,
    s1_errors,
    s2_config,
    s4_write,
    s4_stream,
    s5_read,
    s6_delete,
    s7_watch,
    s7_resume,
    s8_websocket,
    s9_routers,
    s10_jobs,
    s10_queues,
    s11_cursors,
    s12_admin,
    s12_metrics,
    s12_openapi,
    s12_probes,
)


def all_cases() -> list[Case]:
    """Every case, in the order of the sections."""
    return sorted(CASES, key=lambda one: (int(one.section.split()[0]), one.section))
