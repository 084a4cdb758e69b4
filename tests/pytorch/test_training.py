"""Training by reducers gives what plain PyTorch gives where they are exact, and what their papers say elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from s2sim.errors import OptionError, S2SimError
from s2sim.pytorch.model_updates import Trainer, make_training_setup
from s2sim.pytorch.models.cnn import Cnn
from s2sim.pytorch.models.language import Lstm, Transformer
from s2sim.pytorch.models.ncf import Ncf
from s2sim.pytorch.task import DataOrigin, Evaluation, Interactions, hold_out, reproducible_torch, use_sparse_embeddings
from s2sim.reducers.registry import make_reducer, reducer_names

WORKERS = 4
SMALL_LSTM = Lstm(width=16, sequences=4, length=8, negatives=32, held_out=0.1)
SMALL_CNN = Cnn(channels=4, hidden=16, images=8, held_out=0.1)


def trainer(settings, reducer, text=(), *, workers=WORKERS, seed=0, rate=None):
    task = settings.prepare(workers=workers, seed=seed, text=list(text))
    use_sparse_embeddings(task)
    return Trainer(task, settings, make_training_setup(reducer, settings, rate), workers=workers, seed=seed)


def losses(settings, reducer, steps, text=(), **how):
    here = trainer(settings, reducer, text, **how)
    return [here.step().loss for _ in range(steps)]


def plain_losses(settings, steps, text=(), *, workers=WORKERS):
    """Autograd of the mean loss of all ranks' batches, and PyTorch's optimizer; nothing of what is tested."""
    task = settings.prepare(workers=workers, seed=0, text=list(text))
    parameters = list(task.module.parameters())
    if settings.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    else:
        optimizer = torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=settings.momentum)
    found = []
    with reproducible_torch():
        for step in range(steps):
            optimizer.zero_grad()
            mean = torch.stack([task.loss(step, rank) for rank in range(workers)]).mean()
            mean.backward()
            optimizer.step()
            found.append(float(mean.detach()))
    return found


EXACT = ["dense", "union", "s2-exact", "owner-reduce", "gather-rows", "parallax", "embrace"]


@pytest.mark.parametrize("reducer", EXACT)
def test_an_exact_reducer_gives_the_losses_of_plain_pytorch(reducer, text):
    settings = replace(SMALL_LSTM, learning_rate=1.0)
    assert losses(settings, reducer, 12, [text]) == pytest.approx(plain_losses(settings, 12, [text]), rel=1e-5)


@pytest.mark.parametrize("settings", [SMALL_CNN, replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1, momentum=0.9)])
def test_dense_layers_train_as_in_plain_pytorch_with_adam_and_with_momentum(settings):
    assert losses(settings, "dense", 12) == pytest.approx(plain_losses(settings, 12), rel=1e-5)


@pytest.mark.slow
def test_exact_reducers_give_the_losses_of_plain_pytorch_over_200_steps(text):
    plain = plain_losses(SMALL_LSTM, 200, [text])
    for reducer in EXACT:
        assert losses(SMALL_LSTM, reducer, 200, [text]) == pytest.approx(plain, rel=1e-5), reducer


def test_a_loss_differs_where_a_reducer_is_lossy(text):
    lossy = losses(SMALL_LSTM, "topk:density=0.01", 6, [text])
    assert lossy != pytest.approx(plain_losses(SMALL_LSTM, 6, [text]), rel=1e-5)


def by_hand(settings, steps, exchange):
    """Local SGD (Stich 2019, algorithm 1) in plain PyTorch: models apart, their mean every ``exchange`` steps."""
    task = settings.prepare(workers=WORKERS, seed=0, text=[])
    parameters = list(task.module.parameters())
    models = [[each.detach().clone() for each in parameters] for _ in range(WORKERS)]
    found = []
    with reproducible_torch():
        for step in range(steps):
            here = []
            for rank in range(WORKERS):
                with torch.no_grad():
                    for parameter, own in zip(parameters, models[rank], strict=True):
                        parameter.copy_(own)
                loss = task.loss(step, rank)
                gradients = torch.autograd.grad(loss, parameters)
                here.append(float(loss.detach()))
                models[rank] = [
                    own - settings.learning_rate * each for own, each in zip(models[rank], gradients, strict=True)
                ]
            if (step + 1) % exchange == 0:
                mean = [sum(each) / WORKERS for each in zip(*models, strict=True)]
                models = [[each.clone() for each in mean] for _ in range(WORKERS)]
            found.append(float(np.mean(here)))
    return found


def test_local_steps_are_local_sgd():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1)
    found = losses(settings, "dense:h=3", 9)
    assert found == pytest.approx(by_hand(settings, 9, 3), rel=1e-5)
    assert found != pytest.approx(losses(settings, "dense", 9), rel=1e-5)


def test_federated_averaging_of_all_clients_is_plain_sgd():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1)
    everybody = losses(settings, "fedavg:fraction=1", 8)
    assert everybody == pytest.approx(losses(settings, "dense", 8), rel=1e-5)


def test_gossip_without_compression_on_a_complete_graph_is_plain_sgd():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1)
    found = losses(settings, "choco:graph=complete,compressor=none,gamma=1", 8)
    assert found == pytest.approx(losses(settings, "dense", 8), rel=1e-4)


def test_momentum_correction_of_everything_is_sgd_with_momentum():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.05, momentum=0.9)
    corrected = losses(settings, "topk:density=1,momentum=0.9,masking=false", 8)
    assert corrected == pytest.approx(losses(settings, "dense", 8), rel=1e-4)


def test_one_bit_adam_begins_as_adam_without_bias_correction():
    found = losses(SMALL_CNN, "onebit-adam:freeze_step=99,eps=0.001", 8, rate=0.005)
    task = SMALL_CNN.prepare(workers=WORKERS, seed=0, text=[])
    parameters = list(task.module.parameters())
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    expected = []
    with reproducible_torch():
        for step in range(8):
            mean = torch.stack([task.loss(step, rank) for rank in range(WORKERS)]).mean()
            expected.append(float(mean.detach()))
            for parameter, g, (m, v) in zip(parameters, torch.autograd.grad(mean, parameters), moments, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                with torch.no_grad():
                    parameter.sub_(0.005 * m / (v.sqrt() + 0.001))
    assert found == pytest.approx(expected, rel=1e-4)


def test_diloco_without_an_outer_optimizer_is_local_sgd():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1)
    assert losses(settings, "diloco:h=3,rate=1,momentum=0", 9) == pytest.approx(by_hand(settings, 9, 3), rel=1e-5)


def test_one_asynchronous_worker_is_plain_sgd():
    settings = replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1)
    alone = losses(settings, "downpour", 6, workers=1)
    assert alone == pytest.approx(losses(settings, "dense", 6, workers=1), rel=1e-5)


FALLS = {
    "onebit-adam:freeze_step=40,eps=0.01": 0.005,
    "onebit-lamb:freeze_step=40,eps=0.01": 0.01,
    "zero-one-adam:freeze_step=40,local_step_scaler=40,local_step_clipper=4,eps=0.01": 0.005,
    "demo": 0.003,
    "dion:rank=8": 0.03,
    "diloco:h=10": None,
    "slowmo:h=10": None,
    "streaming-diloco:h=12,delay=1": None,
    "downpour": None,
    "qsdp": None,
    "thc": None,
    "l-greco": None,
}


@pytest.fixture(scope="module")
def dense_loss():
    here = trainer(SMALL_CNN, "dense")
    for _ in range(160):
        here.step()
    return here.evaluate().loss


@pytest.mark.slow
@pytest.mark.parametrize("reducer", FALLS)
def test_the_loss_falls_about_as_with_dense(reducer, dense_loss):
    here = trainer(SMALL_CNN, reducer, rate=FALLS[reducer])
    first = here.evaluate().loss
    for _ in range(160):
        here.step()
    assert here.evaluate().loss < min(1.7 * dense_loss, 0.3 * first)


def test_what_training_needs_is_added_and_can_be_left_out():
    assert make_training_setup("topk:density=0.1", SMALL_CNN).reducer.options()["ef"] is True
    assert "ef" not in make_training_setup("topk:density=0.1,ef=false", SMALL_CNN).reducer.options()
    assert "ef" not in make_training_setup("dense", SMALL_CNN).reducer.options()


@pytest.mark.parametrize(
    ("reducer", "why"),
    [
        ("s2:warm=true", "leave warm=true out"),
        ("signsgd-vote", "--learning-rate signsgd-vote"),
        ("onebit-adam", "--learning-rate onebit-adam"),
        ("onebit-lamb", "--learning-rate onebit-lamb"),
        ("per-layer:*=demo", "some of its parts end with update"),
        ("dgc", "add optimizer=sgd"),
    ],
)
def test_what_would_not_be_its_paper_is_refused(reducer, why):
    with pytest.raises(OptionError, match=why):
        make_training_setup(reducer, SMALL_CNN)


RESUMED = ["dense", "topk:density=0.02", "dgc", "dense:h=3", "choco", "fetchsgd", "powersgd", "s2:cells=4", "stc"]
RATES = {"zero-one-adam:freeze_step=1,local_step_scaler=1,eps=0.01": 0.01, "dion:rank=2": 0.01, "demo": 0.001}
RESUMED += ["streaming-diloco:h=4,fragments=2,delay=1", "downpour", "l-greco:every=2", *RATES]


@pytest.mark.parametrize("reducer", RESUMED)
def test_training_goes_on_from_its_state_bit_for_bit(reducer, text):
    whole, first, second = (trainer(SMALL_LSTM, reducer, [text], rate=RATES.get(reducer)) for _ in range(3))
    found = [whole.step().loss for _ in range(5)]
    for _ in range(2):
        first.step()
    second.restore(first.state())
    assert found[2:] == [second.step().loss for _ in range(3)]
    assert second.evaluate() == whole.evaluate()


@pytest.mark.slow
def test_adam_and_momentum_go_on_bit_for_bit():
    for settings in (SMALL_CNN, replace(SMALL_CNN, optimizer="sgd", learning_rate=0.1, momentum=0.9)):
        for reducer in ("dense", "dense:h=2"):
            whole, first, second = (trainer(settings, reducer) for _ in range(3))
            found = [whole.step().loss for _ in range(5)]
            for _ in range(3):
                first.step()
            second.restore(first.state())
            assert found[3:] == [second.step().loss for _ in range(2)]


@pytest.mark.slow
def test_every_reducer_trains_or_says_why_not(text):
    refused = {}
    for name in reducer_names():
        try:
            make_reducer(name)
            found = losses(replace(SMALL_LSTM, learning_rate=0.05), name, 3, [text], rate=None)
        except OptionError as error:
            refused[name] = str(error)
        else:
            assert np.isfinite(found).all(), name
    assert set(refused) == {"signsgd-vote", "onebit-adam", "onebit-lamb", "zero-one-adam", "demo", "dion"}


def test_a_text_is_cut_once_and_nothing_of_its_end_is_trained_on():
    tokens = np.arange(1000)
    kept, windows = hold_out(tokens, 0.1, length=7, most=5)
    assert kept.tolist() == list(range(900))
    assert windows.shape == (5, 8)
    assert windows.min() == 900
    assert (np.diff(windows, axis=1) == 1).all()
    with pytest.raises(S2SimError, match="use a longer text"):
        hold_out(tokens, 0.005, length=7, most=5)


def clicks():
    pairs = np.unique(np.random.default_rng(0).integers((30, 200), size=(900, 2)), axis=0)
    return Interactions(pairs[:, 0], pairs[:, 1], 30, 200, DataOrigin("", "", ""))


def test_hits_are_counted_among_a_hundred_items():
    settings = Ncf(width=4, positives=16, held_out=0.2)
    task = settings.prepare_from(clicks(), workers=2, seed=0)
    # Nothing is known yet: an item is among the first ten of a hundred by chance.
    assert task.evaluate().accuracy == pytest.approx(0.1, abs=0.08)
    before = task.evaluate().loss
    with torch.no_grad():
        for parameter in task.module.parameters():
            parameter.zero_()
    # All items are alike, and an item that is no better than the others is no hit.
    assert task.evaluate() == Evaluation(pytest.approx(np.log(2), rel=1e-6), 0.0)
    assert before == pytest.approx(np.log(2), rel=0.05)


def test_words_are_foretold_by_all_of_the_vocabulary(text):
    for settings in (SMALL_LSTM, Transformer(width=8, heads=2, blocks=1, sequences=4, length=8, held_out=0.1)):
        task = settings.prepare(workers=2, seed=0, text=[text])
        words = task.module["encoder"].weight.shape[0]
        assert task.evaluate().loss == pytest.approx(np.log(words), rel=0.1)
        assert replace(settings, held_out=0.0).prepare(workers=2, seed=0, text=[text]).evaluate is None


def test_evaluating_changes_nothing(text):
    one, other = (trainer(SMALL_LSTM, "topk:density=0.05", [text]) for _ in range(2))
    found = []
    for _ in range(3):
        one.evaluate()
        found.append(one.step().loss)
    assert found == [other.step().loss for _ in range(3)]
