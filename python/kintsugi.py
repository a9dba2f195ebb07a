"""Train a model of your own, in any framework, with Kintsugi.

A program calls run_torch for a model in PyTorch, run_jax for a model in JAX, or run for any other
framework. Kintsugi starts the program once for each worker:

    kintsugi train --workers 4 -- python3 train.py

Kintsugi asks the program for gradients. It does the rest itself: it holds the parameters, makes the
steps, saves checkpoints, and goes on when processes die. This file needs only Python 3.8.
Parameters are numpy arrays if numpy is installed, and otherwise flat memoryviews of float32.

The binary kintsugi contains this file, and the programs that it starts find it on PYTHONPATH. To
load a trained model elsewhere, install it (pip install ./python) or copy it.

The one rule: a gradient is a function of the parameters and the batch. All randomness must come
from batch.seed, and nothing may be kept from one gradient to the next. Then a worker that died
computes the same gradients again, and a run ends with the same parameters whichever servers die.
If a worker is away, the steps made meanwhile lack its gradients.
"""

import faulthandler
import fnmatch
import json
import math
import mmap
import os
import random
import signal
import socket
import struct
import sys
import traceback

try:
    import numpy
except ImportError:
    numpy = None

__all__ = ["Batch", "Values", "load", "load_jax", "load_torch", "run", "run_jax", "run_torch"]

_VARIABLE = "KINTSUGI_ASKS"
_PAGE = 4096
_SUGGESTED = {
    "batch": int, "steps": int, "learning_rate": float, "optimizer": str, "momentum": float, "codec": str, "warmup": int, "decay": str, "betas": str, "epsilon": float,
    "weight_decay": float, "weight_decay_for": str, "clip_norm": float,
}  # fmt: skip

if _VARIABLE in os.environ and hasattr(sys.stdout, "reconfigure"):
    sys.stdout.reconfigure(line_buffering=True)  # otherwise what a killed program has printed would be lost


class Values:
    """The values of a model, by tensor name: values["w"] is an array with the shape of tensor w, and values.flat has all values."""

    def __init__(self, tensors, memory, writable):
        self.flat = _array(memory, writable)
        self._arrays, self._bytes, self._shapes, at = {}, {}, dict(tensors), 0
        for name, shape in tensors:
            n = math.prod(shape)
            part = self.flat[at : at + n]
            self._arrays[name] = part if numpy is None else part.reshape(shape)  # with shape (): an array of one value
            self._bytes[name] = memory[4 * at : 4 * (at + n)]
            at += n

    def __getitem__(self, name):
        return self._arrays[name]

    def __iter__(self):
        return iter(self._arrays)

    def items(self):
        return self._arrays.items()


def _array(memory, writable):
    if numpy is None:
        flat = memory.cast("f")
        return flat if writable else flat.toreadonly()
    flat = numpy.frombuffer(memory, dtype=numpy.float32)
    if not writable:
        flat.flags.writeable = False
    return flat


class Batch:
    """What to compute a gradient of.

    indices     list of the numbers of the examples, from 0; None if run was called without examples
    seed        seed of all randomness, an integer below 2**53; the same batch has the same seed
    slot        number of the worker that asks, from 0
    local_rank  number of that worker among those of its machine, by which to take one of several GPUs
    version     version of the parameters: the number of steps made so far, local steps included
    sequence    number of the gradient, if a worker computes several on one version; otherwise 0
    """

    def __init__(self, question, memory):
        self.indices = question.get("indices")
        self.seed = question["seed"]
        self.slot = question["slot"]
        self.local_rank = question.get("local_rank", self.slot)
        self.version = question["version"]
        self.sequence = question["sequence"]
        self._id, self._memory = question["id"], memory

    @property
    def wanted(self):
        """False once newer parameters have made this gradient useless. A gradient that takes seconds may look at it, and then return anything."""
        return self._memory is None or struct.unpack_from("=Q", self._memory)[0] == self._id


class _Steps:
    """The local steps that a program takes by itself; see package program of Kintsugi for what each field means."""

    def __init__(self, question, memory):
        if question["rule"] not in ("sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "lazyadam"):
            raise ValueError("this kintsugi.py does not know the optimizer %r; take the one of the Kintsugi that asks" % question["rule"])
        self.rule, self.momentum, self.betas, self.epsilon = (question[k] for k in ("rule", "momentum", "betas", "epsilon"))
        self.clip_norm, self.groups, self.decays, self.units = (question[k] for k in ("clip_norm", "groups", "decays", "units"))
        common = {k: question[k] for k in ("id", "slot", "local_rank", "sequence") if k in question}
        self.batches = [(Batch({**b, **common}, memory), b["rates"]) for b in question["batches"]]


def run(name, tensors, initialise, gradient, *, examples=None, evaluate=None, rates=None, **suggested):
    """Answers Kintsugi's questions until there are no more, and then ends the process (SystemExit): what follows in the program does not run.

    name        name of the model: letters, digits, dots, dashes and underscores
    tensors     its parameters, as pairs of a name and a shape, or as a dict; () is the shape of a
                single number
    initialise  initialise(params, seed) fills params, which are Values, with the initial parameters.
                They must be a function of the seed. It is called only where somebody reads them
    gradient    gradient(params, grads, batch) fills grads with the gradient of the mean loss over
                batch.indices at params, and returns that loss. params and grads are Values; params
                are read-only. Without examples it returns the loss and the number of examples
    examples    the number of examples to draw from. batch.indices then says which to use, so that
                an epoch uses each example once. None: gradient draws its examples itself
    evaluate    evaluate(params) returns a loss, an accuracy, and the number of examples they are
                measured on. Loss and accuracy may be None
    rates       factors of the learning rate, by patterns of tensor names:
                {"head.*": 10, "embed*": 0.1}. The first pattern that fits a name counts; the factor
                of other tensors is 1
    suggested   settings to train with unless the command line sets them: batch, steps,
                learning_rate, optimizer, momentum and codec; warmup, the number of steps in which
                the learning rate rises; decay, how it falls after that, as for --decay: "cosine",
                "linear:0.1", "drop:0.1@300,600" and so on; betas, a pair, and epsilon, of adam,
                adamw and lazyadam; weight_decay, and weight_decay_for, the tensors it applies to: "all",
                or "matrices", those with two or more dimensions; clip_norm, the longest norm that a
                worker's gradient counts with
    """
    _answer(name, tensors, initialise, gradient, None, examples, evaluate, rates, suggested)


def _answer(name, tensors, initialise, gradient, steps, examples, evaluate, rates, suggested, touches=False):
    """Does what run does. steps, unless None, is called in place of gradient in runs with local steps: steps(params, grads, plan) takes those of
    the plan by itself, which is a _Steps, fills grads with the way back, and returns the mean loss and the number of examples. With touches,
    grads._touched has a byte for each 16 values, which gradient and steps set to 1 where one of them may not be 0, and to 0 elsewhere."""
    suggested = _suggestions(suggested)
    tensors = _tensors(tensors)
    values = sum(math.prod(shape) for _, shape in tensors)
    about = {"name": name, "tensors": [{"name": n, "shape": s or (1,)} for n, s in tensors], "evaluates": evaluate is not None, **suggested}
    if steps is not None:
        about["takes_steps"] = True
    if touches:
        about["touches"] = True
    if rates:
        about["rates"] = _rates(rates, [n for n, _ in tensors])
    if examples is not None:
        about["examples"] = int(examples)
        if about["examples"] < 1:
            raise ValueError("examples is %s: there is nothing to draw from; leave it out where the program draws its own" % examples)
    _stacks()
    questions, answers, descriptor = _connect()
    memory = params = readable = grads = None
    seed = 0
    for line in questions:
        question = json.loads(line)
        answer = {}
        try:
            ask = question["ask"]
            if ask == "describe":
                seed, answer = question["seed"], dict(about)
            elif ask == "initialise":
                memory = memoryview(mmap.mmap(descriptor, question["bytes"]))
                middle = _PAGE + 4 * values
                params = Values(tensors, memory[_PAGE:middle], True)
                readable = Values(tensors, memory[_PAGE:middle], False)
                grads = Values(tensors, memory[middle : middle + 4 * values], True)
                grads._touched = memory[middle + 4 * values :]
                if not question.get("unread"):
                    initialise(params, seed)
            elif ask == "gradient":
                _keep_memory()
                loss = gradient(readable, grads, Batch(question, memory))
                if examples is None:
                    loss, n = _parts(loss, 2, "without examples a gradient returns the loss and of how many examples it is")
                    answer["examples"] = int(n)
                answer["loss"] = _finite(loss)
            elif ask == "steps":
                _keep_memory()
                loss, n = steps(readable, grads, _Steps(question, memory))
                answer = {"loss": _finite(loss), "examples": int(n)}
            elif ask == "evaluate":
                loss, accuracy, n = _parts(evaluate(readable), 3, "evaluate returns a loss and an accuracy, either may be None, and on how many examples")
                answer = {"loss": _finite(loss), "accuracy": _finite(accuracy), "examples": int(n)}
            else:
                raise ValueError("this kintsugi.py does not know the question %r; take the one of the Kintsugi that asks" % ask)
        except Exception as e:  # the author of the program reads what happened; Kintsugi decides whether to go on
            traceback.print_exc()
            sys.stderr.flush()
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        answer["id"] = question["id"]
        try:
            answers.write(json.dumps(answer, allow_nan=False) + "\n")
            answers.flush()
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)  # Kintsugi has closed the socket
    # Each process that Kintsugi has asked comes here: those of the workers, again after each death, and those that were asked
    # for a first gradient. Whatever followed, such as saving a module, would be done by all of them, with parameters that are not those of the run.
    sys.exit(0)


def _tensors(given):
    """Returns the tensors as pairs of a name and a tuple."""
    tensors = []
    for pair in given.items() if hasattr(given, "items") else given:
        try:
            name, shape = pair
            tensors.append((name, tuple(int(d) for d in shape)))
        except (TypeError, ValueError):
            raise ValueError("tensors has %r, which is no pair of a name and a shape, such as ('w', (3, 2)); () is the shape of a single number" % (pair,)) from None
    return tensors


def _stacks():
    """Has the process write where each of its threads stands if a library crashes, and on SIGQUIT, which Kintsugi sends it if it hangs.
    What the program has arranged for these stays."""
    if not faulthandler.is_enabled():
        faulthandler.enable(2)
    if hasattr(faulthandler, "register") and signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL:
        faulthandler.register(signal.SIGQUIT, 2)


_kept = False  # whether _keep_memory has been called


def _keep_memory():
    """Has the C library keep what is freed from now on, if it is glibc and nobody has told it otherwise.

    It gives large arrays back to the system when they are freed, and the system clears each page that it hands out again. A gradient allocates and frees
    a multiple of the model, so for a large one that would be much of its time. What the program needs to read its data is behind it by now.
    """
    global _kept
    if _kept:
        return
    _kept = True
    if any(name in os.environ for name in ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")):
        return
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, AttributeError, OSError, TypeError):
        return  # another system, or another C library
    mallopt(-4, 0)  # M_MMAP_MAX: no array has a mapping of its own
    mallopt(-1, -1)  # M_TRIM_THRESHOLD: the heap does not shrink
    mallopt(-2, 2 * (64 << 20))  # M_TOP_PAD: nor do those of other threads, from which the C library otherwise removes each part of 64 MiB that is empty


def _rates(rates, names):
    """The factors of the learning rate, by tensor name."""
    found = {}
    for pattern, rate in rates.items():
        fits = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
        if not fits:
            raise ValueError("rates: no tensor fits %r; there are %s" % (pattern, ", ".join(names)))
        rate = float(rate)
        if not (rate > 0 and math.isfinite(rate)):
            raise ValueError("rates: %r has %r times the learning rate; it must be a positive number (what is not to be trained is no tensor)" % (pattern, rate))
        if all(n in found for n in fits):
            raise ValueError("rates: every tensor that fits %r, such as %s, fits an earlier pattern, and the first one counts; put this one before it" % (pattern, fits[-1]))
        for n in fits:
            found.setdefault(n, rate)
    return found


def _suggestions(told):
    """The suggested settings, as numbers and strings."""
    unknown = sorted(set(told) - set(_SUGGESTED))
    if unknown:
        lacks = "run has no argument %s; what a program does not suggest is for the command line of kintsugi train. It may suggest %s"
        raise TypeError(lacks % (", ".join(unknown), ", ".join(_SUGGESTED)))
    return {name: _suggestion(name, value) for name, value in told.items() if value is not None}


def _suggestion(name, value):
    kind = _SUGGESTED[name]
    if name == "betas" and not isinstance(value, str):
        try:
            first, second = (float(v) for v in value)
        except (TypeError, ValueError):
            raise TypeError("betas is %r; it must be a pair of numbers, such as (0.9, 0.95)" % (value,)) from None
        return "%r,%r" % (first, second)
    if hasattr(value, "item") and not isinstance(value, type):
        value = value.item()  # a number of numpy or of a framework
    if kind is str:
        if isinstance(value, str):
            return value
        raise TypeError("%s is %r; it must be a word, as for --%s of kintsugi train" % (name, value, name.replace("_", "-")))
    if isinstance(value, (int, float)) and math.isfinite(value) and kind(value) == value:
        return kind(value)
    raise TypeError("%s is %r; it must be a %s" % (name, value, "whole number" if kind is int else "number"))


def _parts(value, n, of):
    """Checks that a function has returned n values, and returns them. of describes what it should return."""
    if isinstance(value, (tuple, list)) and len(value) == n:
        return value
    raise TypeError("%s; it returned %s" % (of, type(value).__name__ if not isinstance(value, (tuple, list)) else "%d values" % len(value)))


def _connect():
    told = os.environ.get(_VARIABLE, "").split()
    if not told:
        sys.exit("%s is asked for gradients by Kintsugi; start it so: kintsugi train -- %s" % (sys.argv[0], " ".join(["python3"] + sys.argv)))
    if told[0] != "1":
        sys.exit("this kintsugi.py speaks version 1 of the protocol, and Kintsugi version %s; take the kintsugi.py that belongs to it" % told[0])
    stream = socket.socket(fileno=int(told[1]))
    del os.environ[_VARIABLE]  # child processes of this program must not answer
    return stream.makefile("r", encoding="utf-8"), stream.makefile("w", encoding="utf-8"), int(told[2])


def _finite(value):
    value = None if value is None else float(value)
    return value if value is not None and math.isfinite(value) else None


def load(path):
    """Returns the parameters, as Values, in a file that "kintsugi checkpoint export RUN --out FILE.safetensors" has written."""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        memory = memoryview(bytearray(f.read()))
    head.pop("__metadata__", None)
    tensors = sorted(head.items(), key=lambda item: item[1]["data_offsets"])
    for name, about in tensors:
        if about["dtype"] != "F32":
            raise ValueError("%s: tensor %s is of type %s, and Kintsugi writes F32" % (path, name, about["dtype"]))
    return Values([(name, tuple(about["shape"])) for name, about in tensors], memory, True)


def run_torch(name, build, loss, *, examples=None, evaluate=None, device=None, **suggested):
    """Does what run does, for a model in PyTorch. For name, examples and the settings, see run.

    build     build() returns the torch.nn.Module. The random generators of torch, numpy and random
              are seeded before it is called
    loss      loss(module, batch) returns the mean loss over batch.indices, a scalar tensor to
              differentiate. Without examples it returns the loss and the number of examples. The
              same generators are seeded with batch.seed before it is called, so that dropout is a
              function of the batch. loss may call backward itself, once or for parts of the batch,
              and then change the gradients in grad. It must then return the loss detached
    evaluate  evaluate(module) returns a loss, an accuracy, and the number of examples they are
              measured on. Loss and accuracy may be None. The module is in eval mode, gradients are
              off, and the generators are seeded with 0
    device    the device that the module computes on. Default: a GPU if there is one, and otherwise
              the CPU. If there are several GPUs, each worker takes the next one

    Parameters are trained as float32, whatever their type in the module; complex parameters are
    refused. Parameters that need no gradient, or have no values, stay as build made them first.
    Kintsugi has the optimizer, so a loss that changes a parameter, or makes a new one, is an error.
    Buffers are not parameters, and servers do not have them. The running means of BatchNorm are
    measured before each evaluation, at its parameters, on 32 batches. A forward pass that changes
    any other buffer is an error.
    """
    import torch

    module = _build(torch, build)
    trained = _trained(torch, module)
    means = _Means(torch, module)
    asked = 0  # number of gradients so far
    pinned = False  # whether _pin has been called
    written = {}  # by parameter, the rows of the last answer that are not zero, if the others are
    touches = any(getattr(m, "sparse", False) is True for m in module.modules())  # an Embedding, or an EmbeddingBag

    def tensor(values, n):
        return torch.frombuffer(values._bytes[n], dtype=torch.float32).view(trained[n].shape)

    def move(rank):
        at, n = device, torch.cuda.device_count()
        if at is None:
            at = torch.device("cuda", rank % n) if n else torch.device("cpu")
        module.to(at)

    def pin(memory):
        nonlocal pinned
        at = next(iter(trained.values())).device
        if not pinned and at.type == "cuda":
            pinned = True
            _pin(torch, memory, at)

    def initialise(params, seed):
        _seed(torch, seed)
        fresh = dict(_named(build()))
        with torch.no_grad():
            for n in trained:
                tensor(params, n).copy_(fresh[n])

    def update(params, apart=False):
        """Gives the module the parameters: those that can be in the memory that Kintsugi shares are there, unless apart. They then need no copy, and no memory of their own."""
        with torch.no_grad():
            for n, p in trained.items():
                given = tensor(params, n)
                storage = getattr(p, "untyped_storage", p.storage)  # PyTorch 1 has only the latter
                if p.data_ptr() == given.data_ptr():
                    if apart:
                        p.data = given.clone()
                elif not apart and p.dtype == given.dtype and p.device == given.device and p.is_contiguous() and storage().nbytes() == 4 * p.numel():
                    p.data = given
                else:
                    p.copy_(given)

    def differentiate(batch, held):
        """The loss of a batch, its number of examples, and pairs of a parameter's name and its gradient. held(name) returns a copy of what the module has of a parameter."""
        nonlocal asked
        asked += 1
        module.train()
        means.forget()
        _seed(torch, batch.seed)
        closely = asked & asked - 1 == 0  # the 1st, 2nd, 4th, 8th … gradient: comparing all values takes time, and code that changes values without autograd's knowledge does so in many passes
        changes = _Changes(torch, module, trained, means.built, closely)
        before = {n: held(n) for n in trained} if closely else {}
        for p in trained.values():
            p.grad = None
        found = loss(module, batch)
        value, count = (found, len(batch.indices)) if examples is not None else _parts(found, 2, "without examples loss returns the mean loss and of how many examples it is")
        changes.refuse()
        found = _gradients(torch, value, trained)
        changes.refuse()  # again: a hook may be an optimizer that steps during backward
        for n, values in before.items():
            if not _same(torch, trained[n], values):
                raise RuntimeError(_CHANGED % n)
        return value, count, found

    def gradient(params, grads, batch):
        move(batch.local_rank)
        pin(batch._memory)
        update(params)
        value, count, found = differentiate(batch, lambda n: tensor(params, n).clone())
        for n, g in found:
            answer(tensor(grads, n), n, g)
        if touches:
            touch(torch.frombuffer(grads._touched, dtype=torch.uint8))
        return value.item() if examples is not None else (value.item(), count)

    def answer(to, n, g):
        """Writes a gradient. Of one with sparse rows, such as those of an Embedding with sparse=True, it writes these rows, and zeros to those of the answer before."""
        rows = written.pop(n, None)
        if g is None or not g.is_sparse or g.sparse_dim() > 1:
            to.zero_() if g is None else to.copy_(g.to_dense() if g.is_sparse else g)
            return
        at = g._indices()[0].to(to.device, copy=True)  # they may be the loss's own, which may change them
        to.zero_() if rows is None else to.index_fill_(0, rows, 0)
        to.index_add_(0, at, g._values().to(to.device, to.dtype))
        written[n] = at

    def touch(at):
        """Says which values of the answer are not 0, by 16 of them."""
        at.zero_()
        first = 0
        for n, p in trained.items():
            last, width = first + p.numel(), p.numel() // len(p) if p.dim() else 1
            if n in written:
                lo, hi = ((first + written[n] * width) // 16).unsqueeze(1), ((first + (written[n] + 1) * width - 1) // 16).unsqueeze(1)
                at.index_fill_(0, torch.minimum(lo + torch.arange((width + 14) // 16 + 1), hi).flatten(), 1)
            else:
                at[first // 16 : (last + 15) // 16] = 1
            first = last

    def steps(params, grads, plan):
        written.clear()
        if touches:
            torch.frombuffer(grads._touched, dtype=torch.uint8).fill_(1)
        move(plan.batches[0][0].local_rank)
        pin(plan.batches[0][0]._memory)
        update(params, apart=True)  # the steps are the module's alone
        start = {n: tensor(params, n).to(p.device, copy=True) for n, p in trained.items()}
        own = {n: p if p.dtype == torch.float32 else start[n].clone() for n, p in trained.items()}  # what the optimizer steps; a parameter of another type is rounded from it
        optimizer = _optimizer(torch, plan, own)
        losses, counted = [], 0
        for batch, rates in plan.batches:
            if not batch.wanted:
                break
            value, count, found = differentiate(batch, lambda n: own[n].detach().clone())
            with torch.no_grad():
                _step(torch, optimizer, plan, rates, own, found)
                for n, p in trained.items():
                    if p is not own[n]:
                        p.copy_(own[n])
            losses.append(value.detach())
            counted += count
        with torch.no_grad():
            for (n, p), group in zip(own.items(), plan.groups):
                to, unit = tensor(grads, n), plan.units[group]
                to.zero_() if unit == 0 else to.copy_((start[n] - p) / unit)
        return sum(v.item() for v in losses) / len(plan.batches), counted

    def judge(params):
        move(0)
        update(params)
        means.measure(loss, examples, suggested.get("batch") or 64)
        module.eval()
        _seed(torch, 0)  # so that an evaluation that draws random numbers is a function of the parameters too
        with torch.no_grad():
            return evaluate(module)

    tensors = [(n, tuple(p.shape)) for n, p in trained.items()]
    far = torch.cuda.device_count() > 0 if device is None else torch.device(device).type != "cpu"
    _answer(name, tensors, initialise, gradient, steps if _takes_steps(far) else None, examples, None if evaluate is None else judge, suggested.pop("rates", None), suggested, touches)


def _pin(torch, memory, device):
    """Has CUDA pin memory, and returns whether it could. Copies between a GPU and memory that is not pinned go through a buffer of the driver, at a
    fraction of the link's rate."""
    try:
        with torch.cuda.device(device):
            status = int(torch.cuda.cudart().cudaHostRegister(torch.frombuffer(memory, dtype=torch.uint8).data_ptr(), len(memory), 1))  # 1: for all contexts
    except Exception:  # without it, everything is as it was
        return False
    if status != 0:
        try:
            torch.zeros(1, device=device)  # takes the error: otherwise it would be that of the loss's first kernel
        except RuntimeError:
            pass
    return status == 0


def _takes_steps(far):
    """Whether a program takes local steps by itself: if it computes on a GPU. In the host's memory Kintsugi takes them, which is faster."""
    return far


def _optimizer(torch, plan, own):
    """The optimizer of local steps, with a group of parameters for each of the plan. Its state begins at zero."""
    groups = [{"params": [], "weight_decay": d} for d in plan.decays]
    for p, g in zip(own.values(), plan.groups):
        groups[g]["params"].append(p)
    if plan.rule == "lazyadam":
        return _lazy_adam(torch)(groups, {"lr": 0.0, "betas": tuple(plan.betas), "eps": plan.epsilon})
    if plan.rule in ("adam", "adamw"):
        return (torch.optim.Adam if plan.rule == "adam" else torch.optim.AdamW)(groups, lr=0.0, betas=tuple(plan.betas), eps=plan.epsilon)
    if plan.rule == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.0, eps=plan.epsilon)
    momentum = 0.0 if plan.rule == "sgd" else plan.momentum
    return torch.optim.SGD(groups, lr=0.0, momentum=momentum, nesterov=plan.rule == "nesterov" and momentum > 0)


def _lazy_adam(torch):
    """Adam for the values that have a gradient; others keep their value and their moments. torch.optim.SparseAdam is that for sparse gradients."""

    class LazyAdam(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    state = self.state[p]
                    t = state["step"] = state.get("step", 0) + 1
                    if t == 1:
                        state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                    m, v, none = state["m"], state["v"], p.grad == 0
                    g = p.grad.add(p, alpha=group["weight_decay"])
                    m.copy_(torch.where(none, m, m * beta1 + g * (1 - beta1)))
                    v.copy_(torch.where(none, v, v * beta2 + g * g * (1 - beta2)))
                    way = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + group["eps"])
                    p.sub_(way.masked_fill(none, 0), alpha=group["lr"])

    return LazyAdam


def _step(torch, optimizer, plan, rates, own, found):
    """Takes a local step along gradients. One that no loss depends on is 0: it decays, and goes on by its momentum."""
    for n, g in found:
        own[n].grad = torch.zeros_like(own[n]) if g is None else (g.to_dense() if g.is_sparse else g).to(own[n].dtype)
    if plan.clip_norm > 0:
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in own.values()]))
        scale = (plan.clip_norm / norm).clamp(max=1.0)
        for p in own.values():
            p.grad.mul_(scale)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    optimizer.step()
    for p in own.values():
        p.grad = None


def load_torch(build, path, *, loss=None, examples=None, batch=64):
    """Returns the module with the parameters of an exported checkpoint, on the CPU. See load for path, and run_torch for build.

    Parameters that were not trained are as build makes them. If the module has BatchNorm, pass the
    loss, examples and batch of run_torch: checkpoints do not contain running means, so they are
    measured as for an evaluation.
    """
    import torch

    module = _build(torch, build)
    trained, values = _trained(torch, module), load(path)
    shapes = {n: tuple(p.shape) or (1,) for n, p in trained.items()}
    for n in sorted(set(shapes) | set(values)):
        if shapes.get(n) != values._shapes.get(n):
            raise ValueError("%s is of another model: parameter %s has shape %s there, and %s in the module" % (path, n, values._shapes.get(n), shapes.get(n)))
    with torch.no_grad():
        for n, p in trained.items():
            p.copy_(torch.frombuffer(values._bytes[n], dtype=torch.float32).view(p.shape))
    means = _Means(torch, module)
    if means.built and loss is None:
        raise ValueError("the module has BatchNorm, whose running means are in no checkpoint: give load_torch the loss and the examples that run_torch has")
    means.measure(loss, examples, batch)
    return module


def _seed(torch, seed):
    if torch is not None:
        torch.manual_seed(seed)
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def run_jax(name, build, loss, data, *, examples=None, evaluate=None, **suggested):
    """Does what run does, for a model in JAX or in a library built on it. For name, examples and the settings, see run.

    build     build(key) returns the initial parameters: a tree of arrays, such as a dict of dicts,
              of any real type
    loss      loss(params, data, key) returns the mean loss, a scalar. It is compiled. key is a
              function of the batch
    data      data(batch) returns the data of a batch for loss: a tree of arrays such as
              (x[batch.indices], y[batch.indices]). Without examples it returns the tree and the
              number of examples
    evaluate  evaluate(params) returns a loss, an accuracy, and the number of examples they are
              measured on. Loss and accuracy may be None

    If there are GPUs, each worker takes the next one. Parameters are trained as float32, whatever
    their type.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise the first worker takes three quarters of a GPU that others may need
    import jax

    named, tree = _leaves(jax, build)
    differentiate, step = jax.jit(jax.value_and_grad(loss)), jax.jit(_jax_step, static_argnums=(0, 1))

    def fill(values, leaves):
        for (n, like), leaf in zip(named, leaves):
            if like.size:
                values[n][...] = numpy.asarray(leaf, dtype=numpy.float32).reshape(values[n].shape)

    def initialise(params, seed):
        fill(params, jax.tree_util.tree_leaves(build(_key(jax, seed))))

    def on_device(rank):
        devices = jax.local_devices()
        return jax.default_device(devices[rank % len(devices)])

    def drawn(batch):
        _seed(None, batch.seed)
        if examples is not None:
            return data(batch), len(batch.indices)
        return _parts(data(batch), 2, "without examples data returns the arrays of a batch and how many examples they have")

    def gradient(params, grads, batch):
        with on_device(batch.local_rank):
            of, count = drawn(batch)
            value, found = differentiate(_tree(jax, named, tree, params, lent=True), of, _key(jax, batch.seed))
            fill(grads, jax.tree_util.tree_leaves(found))
        return float(value) if examples is not None else (float(value), count)

    def steps(params, grads, plan):
        with on_device(plan.batches[0][0].local_rank):
            trained = [i for i, (_, leaf) in enumerate(named) if leaf.size]
            start = [jax.numpy.array(params[named[i][0]]) for i in trained]  # in float32: leaves of another type are rounded from it
            own, state = start, [[jax.numpy.zeros_like(x) for x in start]] * 2
            leaves, losses, counted = [leaf for _, leaf in named], [], 0
            for number, (batch, rates) in enumerate(plan.batches):
                if not batch.wanted:
                    break
                for i, x in zip(trained, own):
                    leaves[i] = x.astype(named[i][1].dtype).reshape(named[i][1].shape)
                of, count = drawn(batch)
                value, found = differentiate(tree.unflatten(leaves), of, _key(jax, batch.seed))
                found = jax.tree_util.tree_leaves(found)
                numbers = (plan.momentum, *plan.betas, plan.epsilon, plan.clip_norm, number + 1.0)
                by = [(rates[g], plan.decays[g]) for g in plan.groups]
                own, state = step(plan.rule, plan.clip_norm > 0, numbers, by, own, [found[i].astype(x.dtype).reshape(x.shape) for i, x in zip(trained, own)], state)
                losses.append(value)
                counted += count
            for i, a, b, g in zip(trained, start, own, plan.groups):
                unit = plan.units[g]
                grads[named[i][0]][...] = numpy.asarray((a - b) / unit) if unit else 0
        return sum(float(v) for v in losses) / len(plan.batches), counted

    def judge(params):
        _seed(None, 0)
        return evaluate(_tree(jax, named, tree, params))

    tensors = [(n, leaf.shape) for n, leaf in named if leaf.size]
    far = jax.local_devices()[0].platform != "cpu"
    _answer(name, tensors, initialise, gradient, steps if _takes_steps(far) else None, examples, None if evaluate is None else judge, suggested.pop("rates", None), suggested)


def _jax_step(rule, clips, numbers, by, params, grads, state):
    """A step on arrays, as package kernels of Kintsugi has it. by are their learning rates and weight decays. Returns the parameters and the state after it."""
    from jax import numpy as jnp

    momentum, beta1, beta2, epsilon, clip_norm, t = numbers
    if clips:
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads))
        grads = [g * jnp.minimum(1, clip_norm / norm) for g in grads]
    moved, first, second = [], [], []
    for (rate, decay), w, g, m, v in zip(by, params, grads, *state):
        given = w, m, v, g == 0
        if rule != "adamw":
            g = g + decay * w
        if rule in ("momentum", "nesterov"):
            m = momentum * m + g
            g = g + momentum * m if rule == "nesterov" else m
        elif rule == "adagrad":
            m = m + g * g
            g = g / (jnp.sqrt(m) + epsilon)
        elif rule in ("adam", "adamw", "lazyadam"):
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            g = m / (1 - beta1**t) / (jnp.sqrt(v / (1 - beta2**t)) + epsilon)
            if rule == "adamw":
                w = w - rate * decay * w
        w = w - rate * g
        if rule == "lazyadam":
            w, m, v = (jnp.where(given[3], old, new) for old, new in zip(given, (w, m, v)))
        moved, first, second = moved + [w], first + [m], second + [v]
    return moved, [first, second]


def load_jax(build, path):
    """Returns the parameters of an exported checkpoint, as the tree that build makes. See load for path, and run_jax for build."""
    import jax

    named, tree = _leaves(jax, build)
    values = load(path)
    shapes = {n: leaf.shape or (1,) for n, leaf in named if leaf.size}
    for n in sorted(set(shapes) | set(values)):
        if shapes.get(n) != values._shapes.get(n):
            raise ValueError("%s is of another model: parameter %s has shape %s there, and %s in the tree" % (path, n, values._shapes.get(n), shapes.get(n)))
    return _tree(jax, named, tree, values)


def _key(jax, seed):
    return jax.random.fold_in(jax.random.key(seed % 2**32), seed >> 32)


def _tree(jax, named, tree, values, lent=False):
    """The tree with the given values. It copies them: otherwise JAX might read them from the shared memory when that already has the next version.
    Where lent, whoever gets the tree is done with it by then, and on a CPU most arrays are that memory. (Those that do not begin at a multiple of 64 bytes
    are not.)"""

    def array(values):
        try:
            return jax.device_put(values, may_alias=True)
        except TypeError:  # JAX before 0.4.34
            return jax.numpy.array(values)

    make = array if lent else jax.numpy.array
    return tree.unflatten([make(values[n]).astype(leaf.dtype).reshape(leaf.shape) if leaf.size else leaf for n, leaf in named])


def _entry(entry):
    """The name of a step down a tree: the key of a dict, the index in a list, or the name of a field."""
    return str(next((getattr(entry, a) for a in ("key", "idx", "name") if hasattr(entry, a)), entry))


def _leaves(jax, build):
    """The arrays that build makes, as pairs with their names, such as dense/w, and the structure of their tree."""
    _seed(None, 0)
    found, tree = jax.tree_util.tree_flatten_with_path(build(_key(jax, 0)))
    named = []
    for path, leaf in found:
        n = "/".join(map(_entry, path)) or "params"
        kind = getattr(leaf, "dtype", type(leaf))
        if not jax.numpy.issubdtype(kind, jax.numpy.floating):
            lacks = "parameter %s is of type %s, and real numbers alone are trained: what is not trained is for the loss to have by itself"
            raise TypeError(lacks % (n, getattr(kind, "__name__", kind)))
        named.append((n, jax.numpy.asarray(leaf)))
    if len({n for n, _ in named}) < len(named):
        raise ValueError("two parameters have one name: %s" % ", ".join(sorted(n for n, _ in named)))
    if not any(leaf.size for _, leaf in named):
        raise ValueError("build returned no parameter that has values: there is nothing to train")
    return named, tree


def _build(torch, build):
    _seed(torch, 0)
    module = build()
    if not isinstance(module, torch.nn.Module):
        raise TypeError("build returned %s; it must return a torch.nn.Module" % type(module).__name__)
    return module


def _named(module):
    """The parameters of a module and their names, which are the same if it, or a part of it, is compiled."""
    return [(n.replace("_orig_mod.", ""), p) for n, p in module.named_parameters()]


def _trained(torch, module):
    """The parameters that are trained, which servers hold, by name."""
    trained = {n: p for n, p in _named(module) if p.requires_grad}
    for n, p in trained.items():
        if isinstance(p, torch.nn.parameter.UninitializedParameter):
            raise ValueError("parameter %s has no shape yet: run the module once in build, on inputs of the right shape, before it is returned" % n)
        if p.is_complex():
            raise TypeError("parameter %s is of type %s, and real numbers alone are trained: make it of torch.view_as_real(…), and use torch.view_as_complex of it" % (n, p.dtype))
    trained = {n: p for n, p in trained.items() if p.numel()}
    owners = {}
    for n, p in trained.items():
        owner = owners.setdefault(p.data_ptr() or n, n)
        if owner != n:
            raise ValueError("parameters %s and %s have the same memory and are two: make them one in build, as by decoder.weight = encoder.weight without .data" % (owner, n))
    if not trained:
        raise ValueError("no parameter of the module that build returned needs a gradient: there is nothing to train")
    return trained


class _Changes:
    """Finds changes of the module by a loss that would be lost, since servers do not get them."""

    def __init__(self, torch, module, trained, means, closely):
        self._torch, self._module, self._trained, self._means, self._closely = torch, module, trained, means, closely
        self._buffers = {n: (b, b._version, b.clone() if closely else b) for n, b in module.named_buffers()}
        self._parameters = {n: p._version for n, p in trained.items()}

    def refuse(self):
        for n, b in self._module.named_buffers():
            if n not in self._means and not self._kept(b, *self._buffers.get(n, (None, 0, None))):
                lost = "the forward pass changes buffer %s, which no server has: its values would differ between workers and die with them. Leave it as build makes it, or compute it in each pass"
                raise RuntimeError(lost % n)
        for n, p in self._trained.items():
            if p._version != self._parameters[n]:
                raise RuntimeError(_CHANGED % n)
        for n, p in _named(self._module) if self._closely else ():
            if p.requires_grad and p.numel() and self._trained.get(n) is not p:
                raise RuntimeError("parameter %s is not what build has made: it is new, or was frozen then, and no server would train it. Make it in build, and have it need a gradient there" % n)

    def _kept(self, buffer, before, version, values):
        """Whether a buffer is unchanged: the same object and version, or another one with the same values."""
        if buffer is before and buffer._version != version or before is None:
            return False
        return buffer is values or _same(self._torch, buffer, values)


_CHANGED = "the loss changes parameter %s, as an optimizer's step, a clamp of its data or max_norm of an embedding does. Servers have the parameters, and the change is lost: leave it out"


def _same(torch, parameter, values):
    """Whether a parameter still has the given values, after they were converted to its type."""
    with torch.no_grad():
        a, b = parameter, values.to(parameter.device, parameter.dtype)
        return a.shape == b.shape and (torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all()))


def _gradients(torch, value, trained):
    """Pairs of a parameter's name and its gradient. It differentiates value, unless the loss has called backward itself. The gradient is None if the loss does not depend on the parameter."""
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        found = "a tensor of shape %s" % (tuple(value.shape),) if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError("loss returned %s; it must return the mean loss, a tensor of one value" % found)
    called = any(p.grad is not None for p in trained.values())
    if value.requires_grad:
        if called:
            raise RuntimeError("the loss has called backward, and returns a value to be differentiated: return it detached, as by value.detach()")
        value.backward()
        if value.grad_fn is not None and all(p.grad is None for p in trained.values()):  # a constant is said on purpose
            raise RuntimeError("the loss depends on no parameter of the module that it was given, but on others: compute it with this module, not with one that was made elsewhere")
    elif not called:
        raise RuntimeError("the loss depends on no parameter, and has left no gradient in one: return a value to be differentiated, or call backward and leave grad as it is")
    found = [(n, p.grad) for n, p in trained.items()]
    for p in trained.values():
        p.grad = None
    return found


class _Means:
    """The running means and variances of BatchNorm. Servers do not have them, so they are computed from the parameters."""

    def __init__(self, torch, module):
        self._torch, self._module = torch, module
        self._norms = {n: m for n, m in module.named_modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.track_running_stats}
        names = [n + "." + b if n else b for n, m in self._norms.items() for b, _ in m.named_buffers(recurse=False)]
        self.built = {n: module.get_buffer(n).clone() for n in names}

    def forget(self):
        """Restores the values that build made."""
        for n, b in self.built.items():
            self._module.get_buffer(n).copy_(b)

    def measure(self, loss, examples, batch):
        """Measures them on 32 batches with equal weights, the same batches each time. Layers that loss puts into eval mode keep their values."""
        if not self.built:
            return
        torch, module = self._torch, self._module
        training, momenta = module.training, {n: m.momentum for n, m in self._norms.items()}
        self.forget()
        for m in self._norms.values():
            m.momentum = None  # averages over all batches since num_batches_tracked was 0
            m.num_batches_tracked.zero_()
        module.train()
        generator = torch.Generator().manual_seed(0)
        for i in range(32):
            chosen = None if examples is None else torch.randint(examples, (batch,), generator=generator).tolist()
            _seed(torch, i)
            loss(module, Batch({"id": 0, "seed": i, "slot": 0, "version": 0, "sequence": 0, "indices": chosen}, None))
        for n, m in self._norms.items():
            m.momentum = momenta[n]
        module.zero_grad()  # loss may have called backward
        module.train(training)
