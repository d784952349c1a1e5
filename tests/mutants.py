"""Break the library in one place at a time, and see that a test fails each time.

    python tests/mutants.py            all of them
    python tests/mutants.py sums noise those of files whose name contains a word

A mutant that survives is a law that no test holds. Each runs on a copy of the sources.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    file: str
    good: str
    bad: str
    tests: str


def of(file, tests, *pairs):
    return [Mutant(file, good, bad, tests) for good, bad in pairs]


LOSSES = "test_losses.py test_loss_laws.py test_loss_torch.py test_loss_errors.py test_windows.py"
ESTIMATOR = "test_errorbars.py test_modelfile.py test_features.py test_estimator.py"
MUTANTS = [
    *of(
        "weights.py",
        f"test_weights.py test_epsilon.py {LOSSES}",
        ("1.0 / (tensor + offset)", "1.0 / (tensor + 2 * offset)"),
        ("(tensor < limit)", "(tensor <= limit)"),
        ("total.square() / squares", "total / squares"),
        ("weights / largest)", "weights)"),
        ("torch.where(largest > 0, share, 0.0)", "share"),
        ("size.clamp(min=count.clamp(max=1.0), max=count)", "size * 1.000000001"),
        (
            '_checks.all_elements("weights", tensor, tensor >= 0',
            '_checks.all_elements("weights", tensor, tensor > -9',
        ),
        ("torch.where(shifted == least, 1.0, least / shifted)", "least / shifted"),
        ("torch.where(variance.isfinite(), share, 0.0)", "share"),
        ("Range(0.0, open_below=True, closed=True)", "Range(0.0, closed=True)"),
    ),
    *of(
        "epsilon.py",
        "test_epsilon.py test_loss_laws.py test_loss_errors.py",
        ("SIZE_TOLERANCE = 1e-6", "SIZE_TOLERANCE = 1e-5"),
        ("+ margin)", "- margin)"),
        ("relative.amin(dims", "relative.amax(dims"),
        ("root * scale", "root"),
        ("torch.where(none_needed, 0.0, root * scale)", "root * scale"),
        ("high = 1.0 / slack.sqrt() + 1.0", "high = slack.sqrt()"),
        ("(positive * 1e-20)", "(positive * 1e-2)"),
        ("available <= size *", "available < 0 * size *"),
        ("self.fraction * self.label_variance", "self.fraction"),
        (
            "if self.size is not None and 0 < available <=",
            "if self.size is not None and 9 < available <=",
        ),
        ("_solve(flat, (0,), fraction=self.fraction)", "_solve(flat, (0,))"),
    ),
    *of(
        "_search.py",
        "test_epsilon.py test_metrics.py",
        (
            "torch.where(held, low, middle), torch.where(held, middle, high)",
            "torch.where(held, middle, low), torch.where(held, high, middle)",
        ),
        ("STEPS = 40", "STEPS = 12"),
    ),
    *of(
        "_arrays.py",
        "test_weights.py test_loss_laws.py test_noise.py",
        ('np.array(to_float_array(name, value), order="C")', "to_float_array(name, value)"),
        ("torch.promote_types(dtype, torch.float32)", "dtype"),
        ("array.dtype.itemsize > 8", "False"),
        ('tensor >= 0, "non-negative', 'tensor > -9, "non-negative'),
    ),
    *of(
        "_checks.py",
        f"test_weights.py {LOSSES}",
        ("number >= self.least", "True"),
        ("number > self.least", "True"),
        ("number < self.limit", "True"),
        (" and not isinstance(value, bool)", ""),
        ("or torch._C._are_functorch_transforms_active()", ""),
        ("torch.compiler.is_compiling() or ", ""),
        ("value.shape == (like.shape[0], 1)", "True"),
        ("if value.requires_grad:", "if False:"),
        ("if not value.is_floating_point():", "if False:"),
        ("if value.device != like.device:", "if False:"),
    ),
    *of(
        "sums.py",
        LOSSES,
        ("torch.where(self.denominator == 0, 1.0, self.denominator)", "self.denominator"),
        ("self.denominator + other.denominator", "self.denominator"),
        ("used = ~target.isnan()", "used = target == target.nan_to_num(0.0)"),
        ('used = used & _beside_target("mask"', 'used | _beside_target("mask"'),
        ("used = used & (importance > 0)", "used = used"),
        ("good = (variance >= 0) | ~_spoken_for(variance, used)", "good = variance >= 0"),
        ("good = target.isfinite() | ~used", "good = target.isfinite()"),
        ("& sample_weight.isfinite()", ""),
        ("torch.where(used, own, torch.inf)", "own"),
        ("dtype = torch.promote_types(dtype, own.dtype)", "pass"),
        ("dtype = torch.promote_types(dtype, importance.dtype)", "pass"),
        ("w = w * labels.sample_weight", "pass"),
        ("torch.where(counts, pred.to(dtype), NEUTRAL_PRED)", "pred.to(dtype)"),
        ("torch.where(counts, self.target.to(dtype), NEUTRAL_TARGET)", "self.target.to(dtype)"),
        ("(pred - target).square()", "(pred - target).square() / 2"),
        ("(pred - target).abs()", "(pred - target)"),
        ("loss.shape != pred.shape", "False"),
        ("and pred.shape == target.shape == variance.shape", ""),
        ("and pred.dtype == target.dtype == variance.dtype", ""),
        ("and not variance.requires_grad", ""),
        ("if self.validate_args and not bool(variance.amin() >= 0):", "if False:"),
        ("if not 1e-15 < total.item() < 1e15:", "if False:"),
        ("return loss if math.isfinite(loss.item()) else None", "return loss"),
        ("simple = self._of_plain_labels(pred, target, variance)", "simple = None"),
        ("NEUTRAL_PRED, NEUTRAL_TARGET = 0.5, 1.0", "NEUTRAL_PRED, NEUTRAL_TARGET = 1.0, 1.0"),
        ("return self if other == 0 else NotImplemented", "return NotImplemented"),
        (
            "dtype = torch.promote_types(pred.dtype, self.weights.dtype)",
            "dtype = self.weights.dtype",
        ),
    ),
    *of(
        "weightings.py",
        LOSSES,
        ("variance.isfinite().to(dtype)", "torch.ones_like(variance, dtype=dtype)"),
        ("(variance < self.threshold)", "(variance <= self.threshold)"),
        ("1.0 / (variance.to(dtype) + scope.epsilon)", "1.0 / variance.to(dtype)"),
        ("variance.isfinite().sum().to(w.dtype)", "w.sum()"),
        ("if bool((1.0 / least).isinf()):", "if False:"),
        ("weighting.policy.check(variance)", "pass"),
        ("(variance < self.threshold)", "(variance.double() < self.threshold)"),
        ("if self.policy.reads_batch:", "if False:"),
        ("return AbsoluteBIV(self.policy)", "return self"),
    ),
    *of(
        "distributed.py",
        "test_windows.py test_distributed.py",
        ("numerator * self.world_size", "numerator"),
        ("dist.all_reduce(denominator, dist.ReduceOp.SUM, group)", "pass"),
        ("least.reshape(1)", "variance"),
        ("dist.ReduceOp.SUM, group)\n        return", "dist.ReduceOp.SUM)\n        return"),
        ("dist.get_world_size(group)), weighed", "dist.get_world_size()), weighed"),
        ("validate_args and _checks.values_are_readable()", "validate_args"),
        ("    if not validate_args:\n", "    if False:\n"),
        ("new_full((), torch.nan)", "new_full((), 0.0)"),
        (
            "everything = _gather(variance.double(), int(longest), group)",
            "everything = variance.double()",
        ),
        (
            "row = variance.new_full((longest,), torch.inf)",
            "row = variance.new_full((longest,), 1.0)",
        ),
        ("if look and facts[0].item():", "if False:"),
        ("    if window:\n        yield window", "    return"),
    ),
    *of(
        "modules.py",
        f"{LOSSES} test_distributed.py",
        (
            "if self.process_group is not None:\n                devices",
            "if False:\n                devices",
        ),
        ("sample_weight)\n        weighed", "None)\n        weighed"),
        ("self.weighting().additive()", "self.weighting()"),
        ("self.epsilon, self.base = epsilon, base", "self.epsilon = epsilon"),
        (
            "return Recipe(self.weighting(), self.base, self.validate_args)",
            "return Recipe(self.weighting(), self.base, True)",
        ),
        ("sums.require_pred(pred, target)\n        labels = self", "labels = self"),
    ),
    *of(
        "noise.py",
        "test_noise.py",
        ("largest = mu**2 / 3", "largest = mu**2 / 2"),
        ("math.sqrt(3 * self.variance)", "math.sqrt(2 * self.variance)"),
        ("(mean - least) / (1 - p)", "mean / (1 - p)"),
        ('_checks.Range(least), "p/2', '_checks.NON_NEGATIVE, "p/2'),
        ("Range(0.0, limit=1.0)", "Range(0.0, limit=1.1)"),
        ("< self.p\n", "> self.p\n"),
        ("self.mean / self.alpha", "self.mean"),
        ("self.mean**2 / self.alpha", "self.mean / self.alpha"),
        ("(low.mean - self.mean) ** 2", "0"),
        ("np.sqrt(np.where(known, sigma2, 0.0))", "np.where(known, sigma2, 0.0)"),
        ("np.where(known, noisy, np.nan)", "noisy"),
        ("np.abs(1 + relative", "(1 + relative"),
        ("/ 3\n    factor", "/ 9\n    factor"),
        (
            'math.sqrt(_number("d_v", d_v, _checks.NON_NEGATIVE))',
            '_number("d_v", d_v, _checks.NON_NEGATIVE)',
        ),
    ),
    *of(
        "metrics.py",
        "test_metrics.py",
        ("return _weighted_mean((f - y).square() - v,", "return _weighted_mean((f - y).square(),"),
        ("math.sqrt(float((meat @ meat.T)[1, 1])) / scale", "float((meat @ meat.T)[1, 1]) / scale"),
        ("_relative_weights(v, _likely_ratio(square, v))", "_relative_weights(v, 0.0)"),
        ("factor.log() + spread.log().mean(dim=1)", "factor.log()"),
        ("high * 1e-12", "0.0"),
        ("_relative_weights(variance, offset).square()", "_relative_weights(variance, offset)"),
        ("n / (n - 1) *", ""),
        ("used = known & v.isfinite()", "used = known"),
        ("(v >= 0) | ~known", "v >= 0"),
        ("- (n - 1)\n", "- n\n"),
        ("- (w * v * (1 - w / total)).sum()", ""),
        ("(w * v * (1 - w / total))", "(w * v)"),
        ("max(float(corrected / freedom), floor)", "float(corrected / freedom)"),
        ("_steady(start, v)", "start"),
        (
            "_steady(_residual_variance(residual, variance), variance)",
            "_residual_variance(residual, variance)",
        ),
        ("_label_moment(y, v, weighted=weighted)", "_label_moment(y, v)"),
        ("mean.stderr * correction", "mean.stderr"),
        ("influence -= (", "influence += ("),
        ("correction = len(v) / (len(v) - parameters)", "correction = 1.0"),
        ("/ (v + offset)", "/ (v + offset).sqrt()"),
        ("- len(residual)", "- len(residual) + 1"),
        ("_relative_weights(v, offset).square(), (0,)", "_relative_weights(v, offset), (0,)"),
        ("epsilon = _steady(_residual_variance(residual, variance), variance)", "epsilon = 0.0"),
    ),
    *of(
        "datasets/bike.py",
        "test_datasets.py",
        ("(day - 1) / DAYS", "day / DAYS"),
        ("2 * np.pi * hour / 24", "2 * np.pi * hour / 23"),
        ("(weekday == day)", "(weekday == day + 1)"),
    ),
    *of(
        "datasets/files.py",
        "test_dataset_files.py",
        ("if found != file.sha256:", "if False:"),
        ("Path(name).unlink(missing_ok=True)", "pass"),
        ("    _require_checksum(content, file, file.url)\n", ""),
        ("if folder and (Path(folder)", "if not folder and (Path(str(folder))"),
        ("if total and content.tell() < total:", "if False:"),
        ("index + 2", "index + 1"),
    ),
    *of(
        "datasets/scaling.py",
        "test_scaling.py",
        ("return raw / self.std**2", "return raw / self.std"),
        ("return normalised * self.std**2", "return normalised * self.std"),
        ("normalised * self.std + self.mean", "normalised * self.std"),
        ("labels.var(ddof=ddof)", "labels.var()"),
        ("metrics.label_moments(labels, variance)", "(float(labels.mean()), float(labels.var()))"),
        (
            "(x - self.mean) / np.where(varies, self.std, 1.0), 0.0)",
            "(x - self.mean) / self.std, 0.1)",
        ),
    ),
    *of(
        "datasets/splits.py",
        "test_scaling.py",
        ("order[second : second + first]", "order[:first]"),
        (
            "order[second : second + first], order[:second]",
            "order[:first], order[first : first + second]",
        ),
        ("if first + second > available:", "if False:"),
    ),
    *of(
        "datasets/amyloid.py",
        "test_datasets.py",
        ('table.numbers("dy") ** 2', 'table.numbers("dy")'),
    ),
    *of(
        "datasets/dataset.py",
        "test_datasets.py",
        ("view.flags.writeable = False", "pass"),
        ("array.view()", "array"),
    ),
    *of(
        "models/mlp.py",
        "test_models.py",
        ("bound = 1.0 / math.sqrt(inputs)", "bound = 1.0 / inputs"),
        ("a=math.sqrt(5), generator=generator", "a=math.sqrt(5)"),
        ("widths: tuple[int, ...] = PAPER_WIDTHS", "widths: tuple[int, ...] = (100, 50)"),
    ),
    *of(
        "models/embeddings.py",
        "test_models.py",
        ("(2 * math.pi * self.frequency)", "(math.pi * self.frequency)"),
        ("embedded.relu()", "embedded"),
        ("start * spec.scale", "start"),
        ("normal_(generator=generator)", "normal_()"),
    ),
    *of(
        "models/stacked.py",
        "test_models.py test_stack.py",
        ("_relu_backward(gradient, self.out)", "pass"),
        ("_relu_backward(self.d_hidden, self.hidden)", "pass"),
        ("return self.out.relu_() if self.relu else self.out", "return self.out.relu_()"),
        ("torch.sum(gradient, dim=2, keepdim=True, out=self.d_bias)", "pass"),
        ("value=-1", "value=1"),
        ("mul_(2 * math.pi)", "mul_(math.pi)"),
        ("-(-elements // ALIGNED) * ALIGNED", "elements"),
        ("if count < 2 or rows % ALIGNED:", "if False:"),
        ("module = copy.deepcopy(self._template)", "module = self._template"),
        ("and part not in parts[:position]", ""),
        ("if repr(other) != repr(first):", "if False:"),
    ),
    *of(
        "training/batches.py",
        "test_stack.py test_training.py",
        ("gradient *= 2.0", "pass"),
        ("torch.where(self.share > 0, pred - self.target, 0.0)", "pred - self.target"),
        ("Scope.over(recipe.weighting, labels, validate_args=True)", "pass"),
        ("torch.where(orders == lengths, blank,", "torch.where(orders == lengths, 0,"),
        ("torch.where(share > 0, leaf, NEUTRAL_PRED)", "leaf * 1.0"),
        ("torch.where(w > 0, labels[0], NEUTRAL_TARGET)", "labels[0]"),
        ("torch.where(denominator == 0, 1.0, denominator)", "denominator"),
        ("self.room = aligned(self.size)", "self.room = self.size"),
        ("orders + self.starts.view(1, count, 1)", "orders"),
        (
            "torch.full((self.steps, self.size), rows)",
            "torch.zeros((self.steps, self.size), dtype=torch.int64)",
        ),
        ("if recipe == recipes[group[0]]:", "if True:"),
        ("if id(table) not in begins:", "if True:"),
        (
            "_with_row(torch.ones_like(y) if weight is None else weight, 0.0)",
            "_with_row(torch.ones_like(y), 0.0)",
        ),
        ("m.generators()[1] for m in members", "m.generators()[0] for m in members"),
    ),
    *of(
        "training/data.py",
        "test_training.py test_stack.py",
        ("if not bool((weights > 0).any()):", "if False:"),
        ("return (eta + 1.0) / (step + eta)", "return 1.0 / (step + eta)"),
        ("self.seed if self.order_seed is None else self.order_seed", "self.seed"),
        ('if array.dtype.kind not in "fiub":', "if False:"),
        ("rows // self.batch_size if self.drop_last else", "rows // self.batch_size if True else"),
        ("if self.momentum and self.optimizer", "if False and self.optimizer"),
        ("momentum=self.momentum, ", ""),
        ("kind(groups, weight_decay=self.weight_decay, fused=fused)", "kind(groups, fused=fused)"),
        ('torch.optim.AdamW if self.optimizer == "adamw"', "torch.optim.Adam if True"),
        ('_checks.all_elements("x", x, x.isfinite(), "finite")', "pass"),
    ),
    *of(
        "training/history.py",
        "test_training.py",
        ("curve[-1] > DIVERGED_ABOVE", "curve[0] > DIVERGED_ABOVE"),
        ("SMOOTHING = 35", "SMOOTHING = 34"),
    ),
    *of(
        "training/testing.py",
        "test_stack.py",
        ("error.square_()", "error.abs_()"),
        ("if members.stop - members.start > 1:", "if False:"),
        ("first = min(members.start, count - 2)", "first = members.start"),
        ("place = slice(block.start - members.start", "place = slice(block.start"),
    ),
    *of(
        "training/train.py",
        "test_stack.py test_checkpoint.py test_training.py",
        (", done=stack.step", ""),
        ("and not stack.all_frozen", ""),
        ("stack.run_epoch(bar.update)", "stack.run_epoch()"),
        ("time.monotonic() - saved >= checkpoint_seconds", "True"),
        ("while stack.epoch < schedule.epochs and", "while stack.epoch <= schedule.epochs and"),
    ),
    *of(
        "training/stack.py",
        "test_stack.py test_checkpoint.py test_training.py",
        ("return order if len(order) > 1 else order * 2", "return [*order, order[0]]"),
        (
            "for member, at in enumerate(self._frozen_at):\n            if at is None:",
            "for member, at in enumerate(self._frozen_at):\n            if True:",
        ),
        ("self._stacked.parameters.copy_(last)", "pass"),
        (
            "with steady_machine(self.threads), self._averaged():",
            "with steady_machine(self.threads):",
        ),
        (
            "if not any(self._frozen_at):\n            self._averages",
            "if True:\n            self._averages",
        ),
        ("self._averages.lerp_(self._stacked.parameters, share)\n            return", "return"),
        (
            "for member in self._order]\n        with",
            "for member in range(len(self._order))]\n        with",
        ),
        ("[each[place] for place in self._place]", "each"),
        ("self._last_or_average().clone()", "self._last_or_average()"),
        (
            "self._stacked.parameters if self._averages is None else",
            "self._stacked.parameters if True else",
        ),
        ('self._averages.copy_(state["averages"])', "pass"),
        ("key=lambda member: tables.index(tables[member])", "key=lambda member: 0"),
        ("finite[member] and sizes[member] > 0 and", "finite[member] and"),
        ("finite[member] and sizes[member] > 0 and", "sizes[member] > 0 and"),
        ("and self._frozen_at[member] is None", ""),
        ("[a and b for a, b in zip(finite, self._finite_states(), strict=True)]", "finite"),
        ("value if at is None else math.nan", "value"),
        (
            "self._freeze_others((losses.isfinite() | ~tested).tolist())",
            "self._freeze_others(losses.isfinite().tolist())",
        ),
        ("self.step % every == 0", "(self.step + 1) % every == 0"),
        (
            "self._parameters, rates, strict=True) if own == rate",
            "self._parameters, rates, strict=True)",
        ),
        ("generator.set_state(own)", "pass"),
        ('buffer.copy_(state["moments"][name])', "pass"),
        ('self._frozen_at = list(state["frozen_at"])', "pass"),
        ("if differing:", "if False:"),
        ("pred[self._place]", "pred"),
        ("self._stacked.module(self._place[member],", "self._stacked.module(member,"),
        (
            "self._stacked.module(place, snapshot) for place in self._place",
            "self._stacked.module(place, snapshot) for place in sorted(self._place)",
        ),
        (
            "with steady_machine(self.threads):\n            for batch",
            "if True:\n            for batch",
        ),
        ("math.isfinite(value) or all(", "True or all("),
        ("(self._stacked.parameters, *self._moments.values())", "(self._stacked.parameters,)"),
        ("(self._stacked.parameters, *self._moments.values())", "tuple(self._moments.values())"),
        ('base if at is None else "mse"', "base"),
        ("if self.all_frozen:\n            total", "if False:\n            total"),
        ('if state["step"] > self.schedule.epochs * self.steps_per_epoch:', "if False:"),
        ("if self.step % self.steps_per_epoch:", "if False:"),
        ("count.copy_(own)", "pass"),
        ('momentum = ("momentum_buffer",) if schedule.momentum else ()', "momentum = ()"),
    ),
    *of(
        "training/checkpoint.py",
        "test_checkpoint.py",
        (": member.learning_rate,", ": 0,"),
        (": member.seeds,", ": 0,"),
        ("identity(loss.base)", "0"),
        ("identity(loss.weighting())", "0"),
        ("repr(stacked.module(0))", "0"),
        ("held]", "0]"),
        ("repr(constants)", "0"),
        ("[type(value).__qualname__, identity(state)]", "[type(value).__qualname__]"),
        (
            "if tensor is None:\n            return None",
            "if tensor is None:\n            return ''",
        ),
        ("if found != FORMAT:", "if False:"),
        ("rows(member.test)", "0"),
        ("repr(replace(schedule, epochs=0))", "repr(schedule)"),
    ),
    *of(
        "training/machine.py",
        "test_stack.py",
        ("torch.set_flush_denormal(flushed)", "torch.set_flush_denormal(False)"),
        ("torch.set_flush_denormal(True)", "pass"),
        ("torch.set_num_threads(threads)", "pass"),
        ("torch.set_num_threads(before)", "pass"),
    ),
    *of(
        "training/reference.py",
        "test_stack.py test_crossfit.py",
        ("bool((counts > 0).any()) and", ""),
        ("and _is_finite(self.model, self._optimizer)", ""),
        ("model.eval()", "pass"),
        ("with self.average.in_place():\n            predicted", "if True:\n            predicted"),
        ("self.diverged_at = self.step", "pass"),
    ),
    *of(
        "training/crossfit.py",
        "test_crossfit.py",
        ("kept[part] = False", "pass"),
        ("predicted[fold * each : (fold + 1) * each]", "predicted[:each]"),
        ("scores[-1] <= min(scores)", "True"),
        ("stack.epoch - passed_at >= patience", "False"),
        ("scores[-1] - TOLERANCE * abs(scores[-1])", "scores[-1]"),
        ("np.isfinite(scores[-1]) and", ""),
        ("score - fewer * float(", "score + 0 * float("),
        ("1 / len(each) - 1 / len(self.tables)", "1 / len(each)"),
        ("if len(each) == 1:", "if True:"),
        ("copy.deepcopy(loop.model).eval()", "copy.deepcopy(loop.model).train()"),
        ("with loop.average.in_place():\n", "if True:\n"),
        ("rows.x[part] for part in parts", "rows.x[parts[0]] for part in parts"),
        ("seed=seed * members + number", "seed=number"),
        ("torch.Generator().manual_seed(seed)", "torch.Generator()"),
        (
            "torch.zeros_like(rows.y) if rows.variance is None",
            "torch.ones_like(rows.y) if rows.variance is None",
        ),
        ("tau2 = judge.residual_variance(predicted)", "tau2 = scores[-1]"),
    ),
    *of(
        "labels.py",
        "test_labels.py",
        ("(nu / (nu - 2.0))", "1.0"),
        ("shrunk = (prior * scale + squares) / nu", "shrunk = scale + 0 * squares"),
        ("np.maximum(nu, FEWEST_DEGREES)", "nu + 0.0"),
        ("(freedom / left)", "1.0"),
        (
            "variance = _moderated(squares, counts - 1, counts) + uncertain",
            "variance = _moderated(squares, counts - 1, counts)",
        ),
        ("new -= np.average(new, weights=rated)", "pass"),
        ("1.0 / 3.0 if level is None", "1.0 if level is None"),
        ("(1 + 1 / count) * (count - 1) / (count - 3)", "1.0"),
        ("(1 + 1 / count) * spread", "spread"),
        ("own.double().mean(dim=axis) +", ""),
        ("h @ covariance @ h", "h @ covariance @ np.ones(len(h))"),
        ("variance = variance * (1 - n / population)", "pass"),
        ("(k.double() + 1) / time.double() ** 2", "(k.double() + 1) / time.double()"),
        ("discount**2 * v.double()", "discount * v.double()"),
        ("torch.where(ends, 0.0, discount * value)", "discount * value"),
    ),
    *of(
        "features.py",
        "test_features.py test_estimator.py",
        ("if self.flagged:", "if True:"),
        ("place += 1 + column.flagged", "place += 1"),
        ("text[missing] = MISSING", "pass"),
        ("if np.isinf(values).any():", "if False:"),
        ("float(np.median(known))", "float(np.mean(known)) + 1"),
    ),
    *of(
        "modelfile.py",
        "test_modelfile.py",
        ('if told.get("format") != FORMAT:', "if False:"),
        ("if not Path(path).is_file():", "if False:"),
        ('if told.get("sha256") != _digest(tensors, text):', "if False:"),
    ),
    *of(
        "fitted.py",
        ESTIMATOR,
        ("errorbars.multiplied(bars.variance, story.factors)", "bars.variance"),
        ("torch.default_generator.manual_seed(generator.initial_seed())", "pass"),
        ("with torch.random.fork_rng(devices=[]):\n", "if True:\n"),
        ("ddof=1 if len(each) > 1 else 0) * scales**2", "ddof=1 if len(each) > 1 else 0)"),
        ("module.load_state_dict(own)", "module.load_state_dict(own, strict=False)"),
        ("bars.filled(story.unknown_variance)", "bars.variance"),
        ("if self.calibrated and", "if"),
    ),
    *of(
        "estimator.py",
        ESTIMATOR,
        ("spread + fitted.story.tau2", "spread"),
        ("spread + fitted.story.tau2", "0 * spread + fitted.story.tau2"),
        ('"l2" if bars is None and self.loss == "biv"', '"l2" if bars is None'),
        ("epsilon = tau2 = fitting.residual_variance(out_of_fold)", "epsilon = tau2 = 0.5"),
        ("tau2) < fitting.score(", "tau2) > fitting.score("),
        ("key=lambda one: fitting.score(one[1], USUAL_EPSILON)", "key=lambda one: 0"),
        ('L2Loss() if loss == "l2" else BIVLoss(epsilon)', "BIVLoss(epsilon)"),
        ('if (content.get("network", {}) is None) != (model is not None):', "if False:"),
        ("self.__dict__ = before", "pass"),
        ("return float(np.mean(scores))", "return float(scores[0])"),
        ("known = ~np.isnan(target)", "known = np.ones(len(target), dtype=bool)"),
        ("fitted.epsilon * scale", "fitted.epsilon"),
        ("variance if noise is None else variance + noise", "variance"),
        ("recipe, rows, BIVLoss(epsilon), seed)", "recipe, rows, L2Loss(), seed)"),
        ("return IVLoss()", "return L2Loss()"),
        ("(float(self.threshold))", "(1e9)"),
        ("self.n_epochs_ == self.max_epochs", "False"),
        ("(Fixed, Relative)", "()"),
        ("max(SMALLEST_BATCH, learned // STEPS)", "USUAL_BATCH"),
        ("max(PILOT_EPOCHS, -(-PILOT_STEPS // steps))", "PILOT_EPOCHS"),
        ("k: modelfile.plain(v)", "k: v"),
    ),
    *of(
        "fitting.py",
        ESTIMATOR,
        ("LabelScaler.fit(labels, variance, ddof=0)", "LabelScaler.fit(labels, None, ddof=0)"),
        ("bars = ErrorBars(errorbars.multiplied(bars.variance, self.factors), bars.name)", "pass"),
        ("gone = gone | (self.weight == 0)[:, None]", "pass"),
        ("gone = gone | np.isinf(self.bars.variance)", "pass"),
        ("None if self.weight is None else single(self.weight[:, None])", "None"),
        ("fill[k] = errorbars.common_variance(residual, tau2, v)", "pass"),
        ("self.fill = self.fill * [", "self.fill = self.fill + 0 * ["),
        ("if factor.value <= 0:", "if False:"),
        ("self.factors = factors\n", "pass\n"),
        (
            "self._factors(out_of_fold) if self.factors is None else self.factors",
            "self._factors(out_of_fold)",
        ),
        ("& ~self.bars.unknown[:, k]", ""),
        ("inverse_variance_weights(column, own)", "inverse_variance_weights(column, 10 * own)"),
        ("factor.low > FAR_OFF", "False"),
        ("abs(float(known[0])) or 1.0", "1.0"),
    ),
    *of(
        "errorbars.py",
        ESTIMATOR,
        ("else value**2, name)", "else value, name)"),
        ("np.where(np.isnan(labels), np.inf, value)", "value + 0.0"),
        ("if (value < 0).any():", "if False:"),
        ("np.nanmedian(known, axis=0)", "np.nanmean(known, axis=0)"),
        ("np.isnan(labels), np.inf, value", "np.isnan(labels) & False, np.inf, value"),
        ("value - INTERVAL * stderr", "value"),
    ),
    *of(
        "training/progress.py",
        "test_training.py",
        ("disable=None if enabled else True", "disable=False"),
        ("PATIENCE = 2.0", "PATIENCE = 0.0"),
    ),
    *of(
        "experiments/verdicts.py",
        "test_verdicts.py test_claims.py",
        ("EQUAL_WITHIN = 0.05", "EQUAL_WITHIN = 0.1"),
        ("std(ddof=1)", "std()"),
        (
            "below, above = self.high < 1, self.low > 1",
            "below, above = self.low < 1, self.high > 1",
        ),
        ("min(len(logs) - 1, len(T_975)) - 1", "min(len(logs), len(T_975)) - 1"),
        ("if self.times < self.seeds:", "if False:"),
        ("if self.seeds == self.asked", "if True"),
        (' - {"shown"}', ""),
        ('if "fails" in verdicts:', "if False:"),
    ),
    *of(
        "experiments/measures.py",
        "test_claims.py",
        ("if result.diverged_at is None else DIVERGED_ABOVE", ""),
        ("result.train_loss_std / result.train_loss", "result.train_loss_std"),
        ("(unsmoothed + first + 1)", "(unsmoothed + first)"),
        ("* result.run.test_every", "* 1"),
        ("& (result.diverged_at is None)", ""),
        ("result.smoothed <= targets[seed]", "result.smoothed < targets[seed]"),
        ("len(reached) - 1", "0"),
        ("best_of(self.chosen_on", "best_of(self.options"),
        ("np.argmin([np.mean", "np.argmax([np.mean"),
        ("self.factor * value", "value"),
    ),
    *of(
        "experiments/claims.py",
        "test_claims.py",
        ("LEVELS = (0.01, 0.1, 10.0)", "LEVELS = (0.01, 0.1)"),
        ("Tuned(here, at_mean), Tuned(here, here)", "Tuned(here, here), Tuned(here, at_mean)"),
        ("grid.advantage(gamma(lower)),", "grid.lowest(gamma(lower), BIV),"),
        ("train_rows=2 * run.train_rows", "train_rows=run.train_rows"),
        ("<= ROWS[run.dataset].all", "<= 10**9"),
        ("StepsTo(biv, plain),", "StepsTo(plain, plain),"),
        (
            "claim.number: claim for claim in made if claim.parts",
            "claim.number: claim for claim in made",
        ),
    ),
    *of(
        "experiments/store.py",
        "test_store.py",
        ("np.uint32(0x80)", "np.uint32(0)"),
        ("np.uint32(0xFFFFFF00)", "np.uint32(0xFFFFFFFF)"),
        ("np.isfinite(value) else None", "value == value else None"),
        ("raw.T.tobytes()", "raw.tobytes()"),
        ('connection.execute("BEGIN IMMEDIATE")\n            for', "for"),
        ("if version != FORMAT:", "if False:"),
        ("if application != APPLICATION:", "if False:"),
        ('AND error IS NULL", (key,))\n        if', '", (key,))\n        if'),
    ),
    *of(
        "experiments/summary.py",
        "test_report.py",
        ("std(axis=0, ddof=1)", "std(axis=0)"),
        ("self.std[self.mean.argmin()]", "self.std[0]"),
        ("if not result.diverged]", "]"),
        ("* run.batch_size)[-length:]", "* run.batch_size)[:length]"),
    ),
    *of(
        "experiments/artefacts.py",
        "test_spec.py test_claims.py test_report.py",
        ("run.test_every * self.blank.batch_size // size", "run.test_every"),
        ("Rows(5_500, 2_200, 8_645)", "Rows(5_500, 2_200, 18_645)"),
        ('asked = f"fig{int(number):02d}"', "pass"),
    ),
    *of(
        "experiments/protocol.py",
        "test_spec.py",
        (
            "noise.disturbance**2 if noise.squared_reading",
            "noise.disturbance if noise.squared_reading",
        ),
        ("np.random.default_rng([run.seed, 0])", "np.random.default_rng([0, 0])"),
        ("np.random.default_rng([seed, 1])", "np.random.default_rng([0, 1])"),
        ("noise.level * prepared.mean_noise_raw", "prepared.mean_noise_raw"),
        ("1.0 if loss.raw_threshold else prepared.mean_noise_raw", "prepared.mean_noise_raw"),
        ('== (run.test_region == "quiet")', '!= (run.test_region == "quiet")'),
        ("drop_last=True", "drop_last=False"),
        ("scaler.variance_raw(0.608)", "scaler.variance_raw(0.5)"),
    ),
    *of(
        "report/tables.py",
        "test_report.py",
        ("label == best,", "False,"),
        ("(plain - lowest[label]) / (plain - truth)", "(plain - lowest[label]) / plain"),
        ("lowest[label] / truth,", "lowest[label],"),
        ('if k != "GT" and', "if"),
    ),
    *of(
        "report/figures.py",
        "test_report.py",
        ("own.count(colour) > 1", "False"),
        ("run.batch_size != Run.batch_size", "False"),
        ('"svg.hashsalt": "biv"', '"svg.hashsalt": None'),
    ),
    *of(
        "report/lines.py",
        "test_report.py",
        ("own.samples[own.mean.argmin()]", "own.samples[0]"),
        ("own.mean[-1]", "own.mean[0]"),
    ),
    *of(
        "report/claims.py",
        "test_claims.py",
        ('finding.verdict != "shown"', "True"),
        ("{'s' if seeds > 1 else ''}", "s"),
    ),
]


def survives(mutant):
    """Whether the tests pass on a copy of the library with this one change."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        path = source / "biv" / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.good, mutant.bad), encoding="utf-8")
        tests = [str(ROOT / "tests" / name) for name in mutant.tests.split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
        )
        if run.returncode not in (0, 1):
            raise SystemExit(f"{mutant.file}: {mutant.bad!r}\n{run.stdout[-2000:]}{run.stderr}")
        return run.returncode == 0


def main():
    words = sys.argv[1:]
    for mutant in MUTANTS:
        if mutant.good not in (ROOT / "src" / "biv" / mutant.file).read_text(encoding="utf-8"):
            raise SystemExit(f"{mutant.file} no longer has {mutant.good!r}: mend tests/mutants.py")
    chosen = [m for m in MUTANTS if not words or any(word in m.file for word in words)]
    alive = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, survived in zip(chosen, pool.map(survives, chosen), strict=True):
            alive += survived
            verdict = "SURVIVED" if survived else "caught"
            print(f"{verdict:8} {mutant.file}: {mutant.good!r} -> {mutant.bad!r}", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants caught")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
