"""Neural collaborative filtering: two embedding tables and a small network (He et al., 2017, arXiv:1708.05031)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.errors import S2SimError
from s2sim.pytorch import task
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    import torch

# He et al. rank an observed item among 99 others, and count how often it is among the first ten.
_COMPARED, _HITS = 99, 10
_MAX_EVALUATED = 1000


@dataclass(frozen=True, slots=True)
class Ncf(task.ModelSettings):
    """Settings of the recommender: observed pairs in a mini-batch, and unobserved ones for each (the paper: 4)."""

    samples: ClassVar[str] = "positives"
    sample: ClassVar[str] = "observed pair and {0.negatives} others"

    width: int = 32
    positives: int = 128
    negatives: int = 4
    warmup_steps: int = 100
    learning_rate: float = 0.003

    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> task.Task:
        """Collect the interactions, deal them out to the ranks, and build the model."""
        assert not text
        return self.prepare_from(task.standard_library_interactions(), workers=workers, seed=seed)

    def prepare_from(self, interactions: task.Interactions, *, workers: int, seed: int) -> task.Task:
        """Build the task on given interactions."""
        import torch

        order = named_generator(seed, "shards").permutation(len(interactions.users))
        held = round(len(order) * self.held_out)
        per_rank = (len(order) - held) // workers
        if per_rank < self.positives:
            raise S2SimError(
                f"there are {len(order) - held} interactions to train on; {workers} workers with {self.positives} "
                f"positives each need {workers * self.positives}: use fewer workers"
            )
        batches = per_rank // self.positives
        module = torch.nn.ModuleDict(
            {
                "embed_user": torch.nn.Embedding(interactions.user_count, self.width),
                "embed_item": torch.nn.Embedding(interactions.item_count, self.width),
                "mlp": torch.nn.Sequential(
                    torch.nn.Linear(2 * self.width, 2 * self.width),
                    torch.nn.ReLU(),
                    torch.nn.Linear(2 * self.width, self.width),
                    torch.nn.ReLU(),
                    torch.nn.Linear(self.width, 1),
                ),
            }
        )
        sparse = frozenset({"embed_user.weight", "embed_item.weight"})
        task.initialise(module, sparse, seed, embedding_scale=0.1)
        observed = interactions.users * interactions.item_count + interactions.items  # increasing: sorted pairs

        def logits(users: Ints, items: Ints) -> torch.Tensor:
            device = task.device_of(module)
            vectors = [
                module[table](torch.from_numpy(numbers).to(device))
                for table, numbers in (("embed_user", users), ("embed_item", items))
            ]
            found: torch.Tensor = module["mlp"](torch.cat(vectors, dim=1)).squeeze(1)
            return found

        def loss(step: int, rank: int) -> torch.Tensor:
            start = rank * per_rank + (step % batches) * self.positives
            chosen = order[start : start + self.positives]
            generator = named_generator(seed, "negatives", step, rank)
            users, items, labels = self._batch(interactions, observed, chosen, generator)
            wanted = torch.from_numpy(labels).to(task.device_of(module))
            return torch.nn.functional.binary_cross_entropy_with_logits(logits(users, items), wanted)

        evaluate = None
        if held:
            # Of each pair that is shown, 99 items that its user is not known to have.
            shown = order[-held:][:_MAX_EVALUATED]
            generator = named_generator(seed, "held out")
            others = generator.integers(interactions.item_count, size=(len(shown), _COMPARED))
            users = interactions.users[shown][:, None]
            while (known := np.isin(users * interactions.item_count + others, observed)).any():
                others[known] = generator.integers(interactions.item_count, size=int(known.sum()))
            items = np.concatenate([interactions.items[shown][:, None], others], axis=1)
            evaluate = partial(self._hits, logits, users, items)

        return task.Task(
            module=module,
            sparse=sparse,
            loss=loss,
            batch=self.positives * (1 + self.negatives),
            model=(
                f"neural collaborative filtering, {interactions.user_count} files x {interactions.item_count} "
                f"identifiers, width {self.width}"
            ),
            origin=interactions.origin,
            evaluate=evaluate,
            score=f"hits among the first {_HITS} of {1 + _COMPARED}",
        )

    def _hits(self, logits: "Callable[[Ints, Ints], torch.Tensor]", users: Ints, items: Ints) -> task.Evaluation:
        """Return held-out loss and the share among the first ten of a hundred items (He et al., section 4.1)."""
        import torch

        with torch.no_grad():
            found = logits(np.repeat(users, items.shape[1]), items.reshape(-1)).reshape(items.shape)
            among = found[:, : 1 + self.negatives]
            wanted = torch.zeros_like(among)
            wanted[:, 0] = 1
            loss = torch.nn.functional.binary_cross_entropy_with_logits(among, wanted)
            before = (found[:, 1:] >= found[:, :1]).sum(dim=1)
            return task.Evaluation(float(loss), float((before < _HITS).double().mean()), len(before))

    def _batch(
        self, interactions: task.Interactions, observed: Ints, chosen: Ints, generator: np.random.Generator
    ) -> tuple[Ints, Ints, Floats32]:
        users, items = interactions.users[chosen], interactions.items[chosen]
        other_users = np.repeat(users, self.negatives)
        other_items = generator.integers(interactions.item_count, size=len(other_users))
        keys = other_users * interactions.item_count + other_items
        unobserved = observed[np.minimum(np.searchsorted(observed, keys), len(observed) - 1)] != keys
        return (
            np.concatenate([users, other_users[unobserved]]),
            np.concatenate([items, other_items[unobserved]]),
            np.concatenate([np.ones(len(users), np.float32), np.zeros(int(unobserved.sum()), np.float32)]),
        )
