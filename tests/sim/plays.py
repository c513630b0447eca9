"""Plays: situations with clients and checks of their own (queues, routers, tools) and not of the oracle's.

A play runs its script once. At each change of the disk `Crashes` takes the images that SIGKILL and a few legal power
failures would leave, together with what clients have been told by then; when the script is over each is checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from xxhash import xxh3_128

from tests.sim.disk import FakeDisk
from tests.sim.images import power_cuts
from tests.sim.media import ALL, Cut
from tests.sim.probe import FoundError, Tally

BOOT = "boot-9"
"""Of the machine after a power failure."""


class Copied(Protocol):
    """What clients know at one moment."""

    def copy(self: T) -> T: ...


T = TypeVar("T", bound=Copied)


class Crashes(Generic[T]):
    """The crashes of one play, looked at when it is over."""

    def __init__(
        self,
        label: str,
        tally: Tally | None = None,
        *,
        cuts: int = 0,
        share: float = 1.0,
        only: str | None = None,
        look: bool = True,
        wrap: Callable[[Any], Any] = lambda fs: fs,
        seed: int = 0,
        hunt: bool = False,
    ) -> None:
        """`cuts`: so many drawn power failures a moment, beside one of which nothing or all had arrived; `share`:
        the part of the moments, drawn, that is looked at; `only`: this moment and image (replay); `look`: whether at
        crashes, or just at what the script itself shows; `wrap`: what becomes of the file system that a play's process
        works on, in plays that ask for it; `hunt`: something must be found, wherever, and most shows late."""
        self.label = label
        self.tally = tally if tally is not None else Tally()
        self.images = 0
        self.wrap = wrap
        self._cuts, self._share, self._only, self._look, self._hunt = cuts, share, only, look, hunt
        self._rng, self._draw = random.Random(seed), random.Random(seed)
        self._told: Callable[[], T]
        self._moment = 0
        self._taken: list[tuple[str, FakeDisk, T, bool]] = []
        self._known: dict[bytes, list[T]] = {}

    def watch(self, disk: FakeDisk, told: Callable[[], T]) -> None:
        """Take images from now on; `told` is asked what clients know."""
        self._told = told
        disk.on_step = self.moment

    def moment(self, disk: FakeDisk, what: str) -> None:
        """One moment."""
        watching, disk.on_step = disk.on_step, None
        self._moment += 1
        self.tally.moments += 1
        if self._is_looked_at():
            told = self._told().copy()
            self._take("k", disk.killed(), told, power=False)
            for cut in self._power(disk, what):
                self._take(cut.token(), disk.powered_off(cut, BOOT), told, power=True)
        disk.on_step = watching

    def _is_looked_at(self) -> bool:
        if self._only is not None:
            return self._look and self._only.startswith(f"{self._moment}/")
        return self._look and self._draw.random() < self._share

    def _power(self, disk: FakeDisk, what: str) -> list[Cut]:
        if self._only is not None:
            token = self._only.partition("/")[2]
            return [] if token == "k" else [Cut.parse(token)]
        cuts = [Cut(0 if self._moment % 2 or what == "answer" else ALL)]
        if self._cuts:
            legal = list(power_cuts(disk, self._rng, self._cuts))
            cuts += self._rng.sample(legal, min(self._cuts, len(legal)))
        return cuts

    def _take(self, token: str, image: FakeDisk, told: T, *, power: bool) -> None:
        self.tally.images += 1
        digest = xxh3_128(image.boot.encode())
        for path, content in sorted(image.cached_tree().items()):
            digest.update(f"\0{path}\0{-1 if content is None else len(content)}\0".encode())
            digest.update(content or b"")
        key = digest.digest() + (b"p" if power else b"k")
        known = self._known.setdefault(key, [])
        if told in known:
            return
        known.append(told)
        self._taken.append((f"{self._moment}/{token}", image, told, power))
        self.tally.hashes.add(key)
        self.tally.kinds["power" if power else "kill"] += 1

    def check(self, check: Callable[[FakeDisk, T, bool], None]) -> None:
        """Look at every image: what the next process finds, what clients know, whether the power failed. Raises
        `FoundError`."""
        # Of a planted bug any trace will do, and the images of the beginning are those that show none.
        for place, image, told, power in reversed(self._taken) if self._hunt else self._taken:
            if self._only not in (None, place):
                continue
            self.images += 1
            try:
                check(image, told, power)
            except Exception as error:
                raise FoundError(f"{self.label}/{place}", f"{type(error).__name__}: {error}") from error
            self.tally.opened += 1
            self.tally.compared += 1
            self.tally.read_otherwise += 1
        self._taken.clear()


@dataclass(frozen=True, slots=True)
class Play:
    """One play, with any of some numbers of shards."""

    name: str
    run: Callable[[int, Crashes], None]  # type: ignore[type-arg]  # each knows what its clients are told
    shards: tuple[int, ...] = (1,)
    takes_wrap: bool = False
    """It works through `Crashes.wrap`, so that a sync can be taken away from it."""


def played(play: Play, shards: int, tally: Tally | None = None, **how: Any) -> int:
    """Play it, look at its crashes, and return how many there were; `how` is for `Crashes`. Raises `FoundError`."""
    label = f"{play.name}@{shards}"
    crashes: Crashes = Crashes(label, tally, **how)  # type: ignore[type-arg]  # as above
    try:
        play.run(shards, crashes)
    except FoundError:
        raise
    except Exception as error:
        raise FoundError(f"{label}/live", f"{type(error).__name__}: {error}") from error
    return crashes.images
