"""Which files of checkpoints go when, and which tails files are worth copying what is left of them."""

from __future__ import annotations

from engine.checkpoint.files import Files, TailsUse
from engine.formats.segment import ROW_LEN
from engine.formats.snapshot import tails_path
from engine.segment.segment import Segment
from tests.sim.scenarios_history import SMALL
from tests.sim.world import World


def piece(number: int, size: int = 1000) -> Segment:
    return Segment(1, 1, 10, 10, number, 64, size, 1, 1, 0)


def segment(*, cold: bool = False) -> Segment:
    made = Segment(1, 1, 10, 10, 3, 0, 1000, 1, 1, 0)
    made.cold = cold
    return made


def test_a_file_goes_when_the_older_kept_snapshot_does_not_name_it() -> None:
    files = Files([], {})
    files.drop(5, ["a", "b"])
    files.drop(0, ["old"])
    files.drop(7, [])
    assert files.take(0) == ["old"]
    assert files.take(4) == []
    assert files.take(5) == ["a", "b"]
    assert files.take(9) == []


def test_a_tails_file_goes_with_its_last_piece() -> None:
    files = Files([piece(2), piece(2)], {2: 4000})
    files.retire(piece(2), 4)
    assert files.take(9) == []
    files.retire(piece(2), 5)
    assert files.take(4) == []
    assert files.take(5) == [tails_path(2)]


def test_a_tails_file_of_which_nobody_has_a_piece_goes() -> None:
    files = Files([], {})
    files.wrote_tails(3, 500)
    files.tails_are_used(3, TailsUse())
    assert files.take(3) == []
    assert files.take(4) == [tails_path(3)]


def test_the_local_data_of_a_cold_segment_goes_with_its_other_files() -> None:
    files = Files([], {})
    files.retire(segment(cold=True), 4)
    files.retire(segment(), 6)
    assert files.take(4) == [segment().idx_path, segment().data_path]
    assert files.take(6) == segment().paths()


def test_a_tails_file_is_worn_when_most_of_it_is_nobodys() -> None:
    used = 1000 + 10 * ROW_LEN
    assert not Files([piece(2)], {2: 2 * used}).is_worn(2)
    assert Files([piece(2)], {2: 2 * used + 1}).is_worn(2)
    assert not Files([piece(2)], {}).is_worn(2)
    assert not Files([piece(2)], {2: 9 * used}).is_worn(3)


def test_what_is_worn_is_known_after_a_start() -> None:
    world = World(settings=SMALL).start()
    for name in ("a", "b", "c", "d"):
        world.append(name, 3, size=100)
    world.checkpoint()
    for name in ("a", "b", "c"):
        world.drop(name)
    world.checkpoint()
    world.kill().start()
    (block,) = world.core.catalog.visible["d"].topic.tail.blocks
    assert block.segment is not None
    first = block.segment.number
    assert world.core.keeper._files.is_worn(first)
    world.append("other")
    world.checkpoint()
    (block,) = world.core.catalog.visible["d"].topic.tail.blocks
    assert block.segment is not None
    assert block.segment.number > first, "what is left of a worn file is not copied"
    world.check()
    for _ in range(2):
        world.append("other")
        world.checkpoint()
    assert tails_path(first) not in world.disk.cached_tree()
    world.check()
