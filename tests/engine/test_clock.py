"""Engine time never falls, follows no bogus step forward, and counts suspension; epochs rise and count nothing."""

from engine.clock import EPOCH_START_MAX, LOOK_MS, STEADY_MS, EngineTime, EpochClock


class Hands:
    """Two clocks moved by hand."""

    def __init__(self, wall: int = 1_000_000, boot: int = 5_000) -> None:
        self.wall, self.boot = wall, boot

    def wall_ms(self) -> int:
        return self.wall

    def boot_ns(self) -> int:
        return self.boot * 1_000_000

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms


def test_it_starts_at_the_later_of_the_log_and_the_wall_clock() -> None:
    assert EngineTime(Hands(), 0).now_ms == 1_000_000
    assert EngineTime(Hands(), 2_000_000).now_ms == 2_000_000


def test_in_the_same_boot_it_goes_on_whatever_the_wall_clock_says() -> None:
    for step in (-3_600_000, 0, 86_400_000):
        assert EngineTime(Hands(1_000_000 + step), 0, 995_000).now_ms == 1_000_000
    assert EngineTime(Hands(), 1_500_000, 995_000).now_ms == 1_500_000


def test_it_advances_with_the_boot_clock_so_that_suspension_counts() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    hands.pass_ms(3_600_000)
    assert time.advance() == 4_600_000


def test_a_step_back_of_the_wall_clock_changes_nothing() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    hands.wall -= 3_600_000
    hands.pass_ms(10)
    assert time.advance() == 1_000_010


def test_a_step_forward_is_adopted_only_after_it_has_been_steady() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    hands.wall += 86_400_000
    assert time.advance() == 1_000_000
    hands.pass_ms(STEADY_MS - 1)
    assert time.advance() == 1_000_000 + STEADY_MS - 1
    hands.pass_ms(1)
    assert time.advance() == 1_000_000 + STEADY_MS + 86_400_000


def test_a_step_forward_that_is_taken_back_expires_nothing() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    hands.wall += 86_400_000
    time.advance()
    hands.pass_ms(60_000)
    hands.wall -= 86_400_000
    time.advance()
    hands.pass_ms(STEADY_MS)
    assert time.advance() == 1_000_000 + 60_000 + STEADY_MS


def test_a_second_step_starts_the_wait_again() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    hands.wall += 1_000_000
    time.advance()
    hands.pass_ms(STEADY_MS - 1)
    hands.wall += 1_000_000
    time.advance()
    hands.pass_ms(2)
    assert time.advance() == 1_000_000 + STEADY_MS + 1


def test_the_wall_clock_is_looked_at_now_and_then_while_it_does_not_step() -> None:
    hands = Hands()
    time = EngineTime(hands, 0)
    looks = 0

    def wall_ms() -> int:
        nonlocal looks
        looks += 1
        return hands.wall

    hands.wall_ms = wall_ms  # type: ignore[method-assign]  # counts
    for ms in range(1, 101):
        hands.pass_ms(1)
        assert time.advance() == 1_000_000 + ms
    assert looks == 100 // LOOK_MS
    hands.wall += 1_000_000
    for _ in range(LOOK_MS + 5):
        hands.pass_ms(1)
        time.advance()
    assert looks > 100 // LOOK_MS + 5, "a step that was seen is watched closely"
    hands.pass_ms(STEADY_MS)
    assert time.advance() == hands.wall


def test_epochs_tell_the_time_between_two_and_not_how_many_there_were() -> None:
    told = []
    for others in (0, 40):
        hands = Hands()
        epochs = EpochClock(hands, EngineTime(hands, 0).now_ms)
        mine = last = epochs.next(0)
        for _ in range(others):
            hands.pass_ms(1)
            last = epochs.next(last)
        hands.pass_ms(100 - others)
        told.append(epochs.next(last) - mine)
    assert told == [100_000, 100_000]


def test_an_epoch_is_above_all_before_it_also_where_time_stands_still() -> None:
    epochs = EpochClock(Hands(), 1_000_000)
    last = epochs.next(0)
    assert [last := epochs.next(last) for _ in range(3)] == [1_000_000_001, 1_000_000_002, 1_000_000_003]


def test_epochs_go_on_with_time_from_one_of_a_clock_that_was_ahead() -> None:
    hands = Hands()
    epochs = EpochClock(hands, 1_000_000)
    ahead = epochs.next(0) + 86_400_000_000
    assert epochs.next(ahead) == ahead + 1
    hands.pass_ms(5)
    assert epochs.next(ahead + 1) == ahead + 1 + 5_000


def test_epochs_stay_below_two_to_the_53_whatever_the_clock_believes() -> None:
    for year in (2026, 2255, 9999):
        hands = Hands(wall=(year - 1970) * 31_556_952_000)
        epoch = EpochClock(hands, hands.wall).next(0)
        assert epoch <= EPOCH_START_MAX
        assert EpochClock(hands, hands.wall).next(epoch) == epoch + 1
