"""All routers of a store, found by name, number, source and dest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice

from engine.routers.router import Router


class Roster:
    """Routers as decisions see them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_number: dict[int, Router] = {}
        self._names: list[str] = []
        self._sources: dict[int, dict[int, Router]] = {}
        self._dests: dict[int, dict[int, Router]] = {}
        self._leaving: dict[int, list[Router]] = {}
        """By dest, routers that decisions do not see any more though nothing on disk says so yet."""

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, router: Router) -> None:
        """A router is there from now on. Of two with one name the younger stands."""
        older = self.by_name.get(router.name)
        if older is not None:
            if older.number > router.number:
                router.gone = True
                return
            self.remove(older)
        self.by_name[router.name] = router
        self.by_number[router.number] = router
        insort(self._names, router.name)
        self._sources.setdefault(router.source, {})[router.number] = router
        self._dests.setdefault(router.dest, {})[router.number] = router

    def remove(self, router: Router) -> None:
        """It is not there any more."""
        router.gone = True
        if self.by_number.pop(router.number, None) is None:
            return
        del self.by_name[router.name]
        del self._names[bisect_left(self._names, router.name)]
        for side, topic in ((self._sources, router.source), (self._dests, router.dest)):
            del side[topic][router.number]
            if not side[topic]:
                del side[topic]

    def leave(self, router: Router) -> None:
        """It is not there for decisions any more; in images of its dest it is until `left`."""
        self.remove(router)
        self._leaving.setdefault(router.dest, []).append(router)

    def left(self, router: Router) -> None:
        """What ends it has its condition."""
        leaving = self._leaving.get(router.dest, [])
        if router in leaving:
            leaving.remove(router)
            if not leaving:
                del self._leaving[router.dest]

    def in_image(self, topic: int) -> list[Router]:
        """The routers into a topic as of what is applied there."""
        there = (*self._dests.get(topic, {}).values(), *self._leaving.get(topic, ()))
        return [router for router in there if router.active]

    def of_source(self, topic: int) -> list[Router]:
        """The routers out of a topic, in the order in which they were made."""
        return list(self._sources.get(topic, {}).values())

    def of_dest(self, topic: int) -> list[Router]:
        """The routers into a topic, all from one source."""
        return list(self._dests.get(topic, {}).values())

    def source_of(self, topic: int) -> int | None:
        """The topic that is copied into this one."""
        for router in self._dests.get(topic, {}).values():
            return router.source
        return None

    def of_topic(self, topic: int) -> list[Router]:
        """The routers that end with a topic, by name."""
        found = {router.name: router for router in (*self.of_source(topic), *self.of_dest(topic))}
        return [found[name] for name in sorted(found)]

    def sources(self) -> Iterator[int]:
        """The topics that are copied somewhere."""
        return iter(list(self._sources))

    def page(self, prefix: str, after: str, source: int | None = None, dest: int | None = None) -> Iterator[Router]:
        """Routers by name, whose names begin with `prefix`, after a name: of all, of one source, or into one dest."""
        names = self._names
        if dest is not None:
            names = sorted(router.name for router in self.of_dest(dest) if source in (None, router.source))
        elif source is not None:
            names = sorted(router.name for router in self.of_source(source))
        start = max(bisect_left(names, prefix), bisect_right(names, after) if after else 0)
        for name in islice(names, start, None):
            if not name.startswith(prefix):
                return
            yield self.by_name[name]
