"""`topics lake compact`: small batches of a directory of exports become few, under the eyes of its readers."""

from __future__ import annotations

from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.commands.export import exported, failures, usage_to
from topics_cli.findings import Sheet
from topics_cli.session import Session


def lake(session: Session, values: dict[str, Any]) -> int:
    """Compact topics one after the other; each is switched by itself."""
    with failures("export", "pyarrow", "numpy"):
        import msgspec

        from topics_lake.compact import Compacted, Plan, compact
        from topics_lake.lake import Lake

        place = Lake(values["to"] or usage_to())
        names = exported(place, values["topic"])
        plan = Plan(**{name: values[name] for name in Plan.__struct_fields__ if values.get(name) is not None})
        sheet = Sheet(session)
        done: list[Compacted] = []
        if values["dry_run"]:
            done = [compact(place, name, plan, dry_run=True) for name in names]
        else:
            with place.turn():
                for name in names:
                    session.talk.progress(name)
                    done.append(compact(place, name, plan, step=lambda step: session.stop.check()))
        session.talk.clear()
        for topic in done:
            if sheet.is_data:
                sheet.put("topic", msgspec.to_builtins(topic))
                continue
            batches = f"{counted(topic.batches_before, 'batch', 'batches')} -> {topic.batches}"
            files = f"{counted(topic.files_before, 'file')} -> {'?' if topic.files is None else topic.files}"
            note = "nothing was written (--dry-run)" if values["dry_run"] else show_size(topic.bytes)
            session.out.line(f"{topic.topic}\t{batches}\t{files}\t{note}")
        if sheet.is_data:
            sheet.end(0, 0)
        return exits.DONE
