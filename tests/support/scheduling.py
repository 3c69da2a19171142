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


def easy_backfilling(jobs: Sequence[Job], hosts: int) -> list[int]:
    """Return the start of each job if jobs may overtake the first one that waits without delay.

    EASY (Lifka 1995): only the first waiting job has a promise. Another one starts if it ends by
    the promised time as requested, or leaves enough hosts for the first one. Hosts have no names.
    """
    starts = [-1] * len(jobs)
    arrivals = sorted(range(len(jobs)), key=lambda n: (jobs[n].at, n))
    waiting: list[int] = []
    running: list[int] = []
    while arrivals or waiting:
        moments = [jobs[arrivals[0]].at] if arrivals else []
        now = min(moments + [starts[n] + jobs[n].run for n in running])
        running = [n for n in running if starts[n] + jobs[n].run > now]
        while arrivals and jobs[arrivals[0]].at <= now:
            waiting.append(arrivals.pop(0))
        for n in _started_now(jobs, hosts, starts, waiting, running, now):
            starts[n] = now
            waiting.remove(n)
            running.append(n)
    return starts


def _started_now(
    jobs: Sequence[Job],
    hosts: int,
    starts: Sequence[int],
    waiting: Sequence[int],
    running: Sequence[int],
    now: int,
) -> list[int]:
    free = hosts - sum(jobs[n].hosts for n in running)
    ends = [(starts[n] + jobs[n].requested, jobs[n].hosts) for n in running]
    queue, started = list(waiting), list[int]()

    def start(n: int) -> None:
        nonlocal free
        free -= jobs[n].hosts
        ends.append((now + jobs[n].requested, jobs[n].hosts))
        queue.remove(n)
        started.append(n)

    while queue and jobs[queue[0]].hosts <= free:
        start(queue[0])
    if queue:
        promised, spare = _promise(jobs[queue[0]].hosts, free, ends)
        for n in queue[1:]:
            ends_in_time = now + jobs[n].requested <= promised
            if jobs[n].hosts <= (free if ends_in_time else min(free, spare)):
                spare -= 0 if ends_in_time else jobs[n].hosts
                start(n)
    return started


def _promise(needed: int, free: int, ends: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return when ``needed`` hosts are free, and how many more are free then."""
    for end, count in sorted(ends):
        free += count
        if free >= needed:
            return end, free - needed
    raise ValueError(needed)
