"""A model of a queue on hosts without names, with which to compare the wait list."""

import heapq
from collections import deque
from collections.abc import Sequence

from climate.cmd.simulator.traces import Job


def first_come_first_served(jobs: Sequence[Job], hosts: int) -> list[int]:
    """Return the start of each job; no job starts before an earlier one."""
    free, waiting, ends, starts = hosts, deque[int](), list[tuple[int, int]](), dict[int, int]()
    arrivals = deque(enumerate(jobs))
    while arrivals or ends:
        moments = [arrivals[0][1].at] if arrivals else []
        now = min([*moments, *([ends[0][0]] if ends else [])])
        while ends and ends[0][0] <= now:
            free += heapq.heappop(ends)[1]
        while arrivals and arrivals[0][1].at <= now:
            waiting.append(arrivals.popleft()[0])
        while waiting and jobs[waiting[0]].hosts <= free:
            number = waiting.popleft()
            starts[number], free = now, free - jobs[number].hosts
            heapq.heappush(ends, (now + jobs[number].run, jobs[number].hosts))
    return [starts[number] for number in range(len(jobs))]
