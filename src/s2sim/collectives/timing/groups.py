"""How long a collective takes that several groups of ranks do at once, each on ranks of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.algorithms.registry import helpers_of, make_algorithm
from s2sim.collectives.libraries.profile import PLAIN, as_sent
from s2sim.collectives.schedules.beside import beside_each_other
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.sharing import Sharing
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.collectives.timing.work import check_work
from s2sim.errors import OptionError
from s2sim.options import option_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.collectives.algorithms.registry import Algorithm
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.bounds import LowerBound
    from s2sim.collectives.timing.ways import Ways
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.cuts import Cuts


class GroupsTimer(Timer):
    """Times what all groups do at once; whoever asks need know of one group alone, the first.

    Groups do not know of each other: each takes the algorithm and the protocol that are fastest for the first group
    alone, as a library would that has a communicator for each. Then all of their rounds share links.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    members : int64 array, shape (groups, ranks)
        The ranks of each group, in its order.
    algorithm, ways, profile
        As of a `Timer`; ``ways`` are those of ``cluster``.
    alone : Timer, optional
        That of the first group with no other.
    sets : int64 array, shape (groups,), optional
        Which groups are known to share links, see `Sharing`.

    Attributes
    ----------
    cluster : Cluster
        All groups, one after the other: rank r of group g is number g times the ranks of a group plus r.
    alone : Timer
        That of the first group with no other.
    """

    def __init__(
        self,
        cluster: Cluster,
        members: Ints,
        algorithm: str | Algorithm = AUTO,
        ways: Ways | None = None,
        profile: Profile = PLAIN,
        *,
        alone: Timer | None = None,
        sets: Ints | None = None,
    ) -> None:
        everyone, first = tuple(members.reshape(-1).tolist()), tuple(members[0].tolist())
        super().__init__(cluster.within(everyone), algorithm, ways.within(everyone) if ways else None, profile)
        self._members = np.arange(members.size, dtype=np.int64).reshape(members.shape)
        self._kinds = _placed_alike(self.cluster, self._members)
        self._sharing = Sharing(self.cluster, self._ways, self._members, sets)
        self._refuse_servers()
        self.alone = alone or Timer(cluster.within(first), algorithm, ways.within(first) if ways else None, profile)

    def _refuse_servers(self) -> None:
        asked, gpus = self._algorithm, self.cluster.shape.gpus_per_node
        if not isinstance(asked, str) and helpers_of(asked, self.workers, gpus):
            raise OptionError(
                f"{option_text(asked)} has servers on GPUs of their own, which groups beside each other have not: take "
                "another algorithm"
            )

    @property
    def workers(self) -> int:
        """Ranks of a group."""
        return len(self._members[0])

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self._members)

    def members_of(self, ranks: tuple[int, ...]) -> Ints:
        """Return which ranks of ``cluster`` are these in each group, group after group; none for all."""
        return self._members[:, list(ranks)].reshape(-1)

    def within(self, ranks: tuple[int, ...]) -> Timer:
        """Return the timer of some ranks of every group, which are groups then; of all, if there are none."""
        if not ranks:
            return self
        if ranks not in self._within:
            self._within[ranks] = GroupsTimer(
                self.cluster,
                self._members[:, list(ranks)],
                self._algorithm,
                self._ways,
                self.profile,
                alone=self.alone.within(ranks),
                sets=self._sharing.sets,
            )
        return self._within[ranks]

    def with_profile(self, profile: Profile) -> Timer:
        """Return the timer of the same groups for a library's profile; itself for its own."""
        if profile not in self._by_profile:
            other = GroupsTimer(
                self.cluster,
                self._members,
                self._algorithm,
                self._ways,
                profile,
                alone=self.alone.with_profile(profile),
                sets=self._sharing.sets,
            )
            other._by_profile = self._by_profile
            self._by_profile[profile] = other
        return self._by_profile[profile]

    def bound(self, demands: Sequence[Demand], *, assisted: bool = False) -> LowerBound:
        """Return the lower bound of demands of every group: the bytes of all groups have to cross a cut."""
        return lower_bound(demands, self.cuts(), assisted=assisted)

    def cuts(self) -> Cuts:
        """Return the cuts of the cluster, which all groups have to cross."""
        return replace(self.cluster.cuts(), beside=self.groups)

    def _possibilities(self, demand: Demand) -> tuple[list[Schedule], str]:
        """Return what all groups do when each does what is fastest for the first one alone, and why that."""
        alone = self.alone.time(demand)
        parts = [(self._as_alone(alone.schedule, kind[0]), kind) for kind in self._kinds]
        # Groups that share no link with those that are timed, and are placed alike, take as long as these.
        timed = beside_each_other(self._sharing.one_of_each(parts))
        schedule = replace(timed, beside=self.cluster.workers - self.workers)
        check_work(schedule, len(self.cluster.fabric))
        return [schedule], f"for one group alone: {alone.why}" if self.groups > 1 else alone.why

    def _as_alone(self, alone: Schedule, group: int) -> Schedule:
        """Return the schedule of one group by the algorithm and the protocol of another one's."""
        view, demand = self.cluster.within(self._members[group]), alone.demand
        asked, name = self._algorithm, alone.algorithm.partition(":")[0]
        # A schedule does not tell all options that were asked for.
        given = not isinstance(asked, str) and asked.name == name and option_text(asked) != name
        plain = make_algorithm(asked if given else alone.algorithm, demand.kind).schedule(demand, view)
        profiles = self.profile.protocols(plain, view)
        profile = next((each for each in profiles if each.protocol == alone.protocol), profiles[-1])
        return as_sent(plain, view, profile)


def _placed_alike(cluster: Cluster, members: Ints) -> list[Ints]:
    """Return which groups are placed alike, the kind of group 0 first: the same library sends alike in them.

    Their ranks share nodes and interfaces in the same way, and what goes from each rank to the next takes as long.
    """
    nodes, count = cluster.dims.node_set, len(members)
    if members.shape[1] == 1 or count == 1:
        return [np.arange(count)]
    gpus = cluster.gpu_of_rank[members]
    following = np.roll(members, -1, axis=1)
    latency_ps = cluster.routes(members.reshape(-1), following.reshape(-1)).latency_ps.reshape(members.shape)
    told = [nodes.spec[nodes.node_of_gpu[gpus]], latency_ps]
    if nodes.meshes.variants:
        told.append(nodes.local_gpu(gpus))
    numbers = (cluster.node_of_rank[members], nodes.node_of_gpu[gpus], nodes.port_of_gpu[gpus])
    told += [number - number[:, :1] for number in numbers]
    _, first, kind = np.unique(np.concatenate(told, axis=1), axis=0, return_index=True, return_inverse=True)
    return [np.flatnonzero(kind == number) for number in np.argsort(first)]
