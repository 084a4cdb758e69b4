"""Max-min fair rates of the flows in flight; when flows or links change, only links of changed levels are visited.

The level of a link is the rate of each flow that no other link limits (infinite if it is not full), so that a flow's
rate is the lowest level on its route. A level depends only on links with lower levels (Bertsekas and Gallager, Data
Networks, section 6.5.2); links that no longer agree with their flows are therefore updated from the lowest level up, as
in a shortest-path search after some lengths have changed, and each is visited about twice.

The functions take a `s2sim.network.base.FlowTable` of lists or of arrays, as plain Python or compiled by numba
(extra ``numba``), with the same bits. They and their constants stay in one file: numba's cache checks no other.
"""

from heapq import heappop, heappush
from math import ceil
from typing import Any

from s2sim.errors import S2SimError
from s2sim.network.base import FlowTable, MemberQueues, Wholes

NEVER = 2**62
TIE = 1e-9  # completions closer than this share of their duration are one event
ROUNDING_PS = 1e-3  # left by floating point above whole numbers: some hundred events round 10 ms by that much
MAX_PS = 2.0**61  # about 27 days: longer ones would not fit in 64 bits with room to add
TOO_LONG = "a transfer would take over 27 days: check its size and the rates of its links"
_INFINITE, _RATE_TOLERANCE = float("inf"), -1.0
# Levels within this share of each other are one level, so that equal flows stay equal whatever the rounding.
_SLACK = 1e-12
BELOW, ABOVE = 1 - _SLACK, 1 + _SLACK
# Places in `s2sim.network.base.FlowTable.tally`.
_DIRTY, _MOVED, _ARRIVED, LOOKS, TALLIES = range(5)


def activate_flow(table: FlowTable, flow: int, now: int) -> None:
    """Let a flow share links from now on; its crossings, limit and bytes are in the table."""
    link, weight, level, head = table.link, table.weight, table.level, table.head
    first, last = table.first[flow], table.last[flow]
    rate = table.limit[flow]
    for crossing in range(first, last):
        rate = min(rate, level[link[crossing]])
    for crossing in range(first, last):
        here = link[crossing]
        other = head[here]
        table.after[crossing] = other
        table.before[crossing] = -1
        if other >= 0:
            table.before[other] = crossing
        head[here] = crossing
        if rate >= level[here] * BELOW:
            table.held[crossing] = True
            table.wide[here] += weight[crossing]
        else:
            table.held[crossing] = False
            table.load[here] += weight[crossing] * rate
        mark_link(table, here)
    table.rate[flow] = rate
    table.entered[flow] = table.since[flow] = now
    table.was[flow] = 0.0
    table.moved[table.tally[_MOVED]] = flow
    table.tally[_MOVED] += 1


def deactivate_flow(table: FlowTable, flow: int) -> None:
    """Remove a flow from its links."""
    link, head = table.link, table.head
    rate = table.rate[flow]
    for crossing in range(table.first[flow], table.last[flow]):
        here = link[crossing]
        after, before = table.after[crossing], table.before[crossing]
        if before >= 0:
            table.after[before] = after
        else:
            head[here] = after
        if after >= 0:
            table.before[after] = before
        if table.held[crossing]:
            table.wide[here] -= table.weight[crossing]
        else:
            table.load[here] -= table.weight[crossing] * rate
        if head[here] < 0:
            table.load[here] = table.wide[here] = 0.0
        if table.level[here] < _INFINITE:
            mark_link(table, here)
    set_finish(table, flow, NEVER)


def mark_link(table: FlowTable, link: int) -> None:
    """Let the next `update_rates` check a link."""
    if not table.marked[link]:
        table.marked[link] = True
        table.dirty[table.tally[_DIRTY]] = link
        table.tally[_DIRTY] += 1


def _round_up_ps(size_bytes: float, rate: float) -> int:
    """Return the duration of bytes at a rate, rounded as by `s2sim.network.network.round_up_ps`."""
    duration_ps = size_bytes / rate
    if not duration_ps < MAX_PS:
        raise S2SimError(TOO_LONG)
    return ceil(duration_ps - ROUNDING_PS)


def update_rates(table: FlowTable, now: int) -> None:
    """Compute the fair rates of all flows, and new ends for changed rates."""
    _solve_levels(table)
    was, rate, left, since = table.was, table.rate, table.left, table.since
    for index in range(table.tally[_MOVED]):
        flow = table.moved[index]
        passed = was[flow] * (now - since[flow])
        was[flow] = -1.0
        left[flow] = left[flow] - passed if left[flow] > passed else 0.0
        since[flow] = now
        set_finish(table, flow, now + _round_up_ps(left[flow], rate[flow]))
    table.tally[_MOVED] = 0


def _solve_levels(table: FlowTable) -> None:
    """Compute the levels of all links and the rates of all flows, starting with the marked links."""
    key, level = table.key, table.level
    pending = [(0.0, 0)]
    pending.pop()
    _queue_inconsistent_links(table, pending)
    while len(pending) > 0:
        lower, here = heappop(pending)
        if key[here] != lower:
            continue
        old, new = level[here], _fair_level(table, here, lower)
        target = min(old, new)
        if new == old or abs(new - old) <= target * _SLACK:
            new = old
        elif target > lower * ABOVE and len(pending) > 0 and pending[0][0] < target:
            # Not yet its turn.
            key[here] = target
            heappush(pending, (target, here))
            continue
        key[here] = _RATE_TOLERANCE
        _set_level(table, here, new)
        _queue_inconsistent_links(table, pending)


def _queue_inconsistent_links(table: FlowTable, pending: list[tuple[float, int]]) -> None:
    """Queue the marked links that do not agree with their flows, by the lower of the present and the new level."""
    level, load, wide, key, capacity = table.level, table.load, table.wide, table.key, table.capacity
    for index in range(table.tally[_DIRTY]):
        here = table.dirty[index]
        table.marked[here] = False
        old = level[here]
        lower = _RATE_TOLERANCE
        if old == _INFINITE or wide[here] <= 0:
            if load[here] > capacity[here] * ABOVE:
                lower = 0.0
            elif old < _INFINITE:
                lower = old
        else:
            new = (capacity[here] - load[here]) / wide[here]
            if new < old * BELOW:
                lower = max(new, 0.0)
            elif new > old * ABOVE:
                lower = old
        if key[here] != lower:
            key[here] = lower
            if lower != _RATE_TOLERANCE:
                heappush(pending, (lower, here))
    table.tally[_DIRTY] = 0


def _set_level(table: FlowTable, here: int, new: float) -> None:
    weight, limits, held, after, rate = table.weight, table.limits, table.held, table.after, table.rate
    table.level[here] = new
    free = new * BELOW
    load = wide = 0.0
    index = 0
    # It agrees with its flows when this is done.
    table.marked[here] = True
    crossing = table.head[here]
    while crossing >= 0:
        flow = table.flow[crossing]
        now_rate = limits[index]
        index += 1
        holds = now_rate >= free
        if holds:
            now_rate = new
            wide += weight[crossing]
        else:
            load += weight[crossing] * now_rate
        if now_rate > rate[flow] * ABOVE or now_rate < rate[flow] * BELOW:
            _set_rate(table, flow, now_rate)
        held[crossing] = holds
        crossing = after[crossing]
    table.marked[here] = False
    table.load[here], table.wide[here] = load, wide


def _set_rate(table: FlowTable, flow: int, new: float) -> None:
    link, weight, level, held, load, wide = table.link, table.weight, table.level, table.held, table.load, table.wide
    old = table.rate[flow]
    if table.was[flow] < 0:
        table.was[flow] = old
        table.moved[table.tally[_MOVED]] = flow
        table.tally[_MOVED] += 1
    table.rate[flow] = new
    for crossing in range(table.first[flow], table.last[flow]):
        here, part = link[crossing], weight[crossing]
        if held[crossing]:
            wide[here] -= part
        else:
            load[here] -= part * old
        if new >= level[here] * BELOW:
            held[crossing] = True
            wide[here] += part
        else:
            held[crossing] = False
            load[here] += part * new
        if not table.marked[here] and (level[here] < _INFINITE or new > old):
            mark_link(table, here)


def _fair_level(table: FlowTable, here: int, least: float) -> float:
    """Return the level at which a link is full, at least ``least``; write the flows' limits elsewhere to ``limits``."""
    link, weight, flow_of, after = table.link, table.weight, table.flow, table.after
    level, limits, capacity = table.level, table.limits, table.capacity[here]
    count = 0
    crossing = table.head[here]
    while crossing >= 0:
        flow = flow_of[crossing]
        most = table.rate[flow]
        if table.held[crossing]:
            most = table.limit[flow]
            for each in range(table.first[flow], table.last[flow]):
                there = link[each]
                if level[there] < most and there != here:
                    most = level[there]
        limits[count] = most
        count += 1
        crossing = after[crossing]
    table.tally[LOOKS] += count
    found = least
    while True:
        free = found * BELOW
        rest, width = capacity, 0.0
        index = 0
        crossing = table.head[here]
        while crossing >= 0:
            if limits[index] < free:
                rest -= weight[crossing] * limits[index]
            else:
                width += weight[crossing]
            index += 1
            crossing = after[crossing]
        if width <= 0:
            return _INFINITE
        level_now = rest / width
        if level_now <= found * ABOVE:
            return level_now
        found = level_now


def set_finish(table: FlowTable, flow: int, finish_ps: int) -> None:
    """Set the end of a flow, `NEVER` if it is not in flight."""
    tree = table.finish
    place = len(tree) // 2 + flow
    tree[place] = finish_ps
    place //= 2
    while place:
        least = min(tree[2 * place], tree[2 * place + 1])
        if tree[place] == least:
            break
        tree[place] = least
        place //= 2


def next_ps(table: FlowTable) -> int:
    """Return the end of the next flows, the latest of those that tie with the earliest, or `NEVER`."""
    tree, half = table.finish, len(table.finish) // 2
    earliest = tree[1]
    if earliest == NEVER:
        return earliest
    latest = earliest
    for index in range(pop_finished(table, earliest + int(earliest * TIE))):
        flow = table.stack[index]
        if tree[half + flow] <= earliest + int((earliest - table.entered[flow]) * TIE):
            latest = max(latest, tree[half + flow])
    return latest


def pop_finished(table: FlowTable, now: int) -> int:
    """Put the flows that end by ``now`` on the stack, in order, and return their number."""
    tree, stack, half = table.finish, table.stack, len(table.finish) // 2
    # The stack has results at its lower end, and positions still to be visited at its upper end.
    found, top = 0, len(stack)
    if tree[1] <= now:
        top -= 1
        stack[top] = 1
    while top < len(stack):
        place = stack[top]
        top += 1
        if place >= half:
            stack[found] = place - half
            found += 1
        else:
            if tree[2 * place + 1] <= now:
                top -= 1
                stack[top] = 2 * place + 1
            if tree[2 * place] <= now:
                top -= 1
                stack[top] = 2 * place
    return found


def add_flows(table: FlowTable, flows: Wholes, now: int) -> None:
    """Let flows share links from now on, and compute all rates."""
    for index in range(len(flows)):
        activate_flow(table, flows[index], now)
    update_rates(table, now)


def remove_finished(table: FlowTable, now: int) -> int:
    """Remove the flows that end by now, put them on the stack and return their number."""
    count = pop_finished(table, now)
    for index in range(count):
        deactivate_flow(table, table.stack[index])
    return count


def _complete_members(table: FlowTable, queues: MemberQueues, flow: int, now: int, delivered_ps: Wholes) -> int:
    """Remove the members of a flow that end by now and return their number; the others continue."""
    first, end = queues.place[flow], queues.end[flow]
    rate, since, size = table.rate[flow], table.since[flow], queues.size
    left = table.left[flow]
    place = first
    while place < end and (place == first or since + _round_up_ps(left, rate) <= now):
        delivered_ps[queues.member[place]] = now
        place += 1
        if place < end:
            left += size[place] - size[place - 1]
    queues.place[flow] = place
    if place == end:
        deactivate_flow(table, flow)
        return end - first
    for crossing in range(table.first[flow], table.last[flow]):
        here = table.link[crossing]
        gone = table.weight[crossing] * (place - first) / (end - first)
        table.weight[crossing] -= gone
        if table.held[crossing]:
            table.wide[here] -= gone
        else:
            table.load[here] -= gone * rate
        if table.level[here] < _INFINITE:
            mark_link(table, here)
    table.left[flow], table.was[flow] = left, rate
    table.moved[table.tally[_MOVED]] = flow
    table.tally[_MOVED] += 1
    return place - first


def run_to_completion(
    table: FlowTable, queues: MemberQueues, order: Wholes, arrive_ps: Wholes, delivered_ps: Wholes, most: int
) -> int:
    """Let flows arrive in ``order`` and complete, and return the number of completed members: ``most`` or more, or all.

    Writes the delivery time of each member. Another call continues with the remaining flows.
    """
    arrived = table.tally[_ARRIVED]
    completed = 0
    while completed < most:
        now = next_ps(table)
        if arrived < len(order):
            now = min(now, arrive_ps[order[arrived]])
        if now == NEVER:
            break
        for index in range(pop_finished(table, now)):
            completed += _complete_members(table, queues, table.stack[index], now, delivered_ps)
        first = arrived
        while arrived < len(order) and arrive_ps[order[arrived]] <= now:
            arrived += 1
        add_flows(table, order[first:arrived], now)
    table.tally[_ARRIVED] = arrived
    return completed


# Functions that the compiled entry points call.
INNER_FUNCTIONS: tuple[Any, ...] = (
    *(activate_flow, deactivate_flow, mark_link, update_rates, _solve_levels, _queue_inconsistent_links),
    *(_fair_level, _set_level, _set_rate, set_finish, next_ps, pop_finished, add_flows, remove_finished),
    *(_complete_members, _round_up_ps),
)
