"""Work in turn."""

import threading
import time

from xskill.engine.workers import Places


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
