"""Work beside others, and in turn."""

import os
import threading
import time

from xskill.engine.workers import NICE, Places, spread


def test_workers_give_way_to_whoever_trains() -> None:
    here = os.nice(0)
    assert list(spread(os.nice, [(0,), (0,)], 2)) == [min(19, here + NICE)] * 2


def test_places_are_given_in_turn_however_many_wait() -> None:
    places, came = Places(1), []

    def work(turn: int) -> None:
        with places.taken(turn) as place:
            came.append((turn, place))

    with places.taken(9) as first:
        threads = [threading.Thread(target=work, args=(turn,)) for turn in (3, 0, 2, 1)]
        for thread in threads:
            thread.start()
        while len(places._waiting) < len(threads):
            time.sleep(0.01)
    for thread in threads:
        thread.join(10)
    assert came == [(turn, first) for turn in range(4)]
